//! The rules of the filter for tests: a module without a host, to which plans and requests are handed as bytes, and
//! which says what it would do. `tests/wasm/vectors.py` is its other side.

const std = @import("std");
const filter = @import("filter");
const decide = filter.decide;
const fields = filter.fields;
const plans = filter.plan;

comptime {
    _ = @import("counts.zig");
}

const memory = std.heap.wasm_allocator;

var input: []u8 = &.{};
var arena: []u8 = &.{};
var plan: ?*const plans.Plan = null;
var view: fields.View = .{};
var scratch: decide.Scratch = .{};
var output: [64 << 10]u8 = undefined;
var address: ?[]const u8 = null;
var cluster: ?[]const u8 = null;
var mtls = false;
var verified = false;
/// Which properties were asked for since the last call.
var asked: u32 = 0;

const properties: decide.Properties = .{
    .address = getAddress,
    .mtls = getMtls,
    .cluster = getCluster,
    .verified = getVerified,
};

fn getAddress() ?[]const u8 {
    asked |= 1;
    return address;
}

fn getMtls() bool {
    asked |= 2;
    return mtls;
}

fn getCluster() ?[]const u8 {
    asked |= 4;
    return cluster;
}

fn getVerified() bool {
    asked |= 8;
    return verified;
}

/// Memory for so many bytes of input.
export fn room(length: usize) [*]u8 {
    if (length > input.len) {
        memory.free(input);
        input = memory.alloc(u8, length) catch unreachable;
    }
    return input.ptr;
}

export fn result() [*]const u8 {
    return &output;
}

/// Takes the plan in the input; 0 when it is refused, and no plan is in force.
export fn load(length: usize) u32 {
    plan = null;
    memory.free(arena);
    arena = memory.alloc(u8, plans.room(length)) catch unreachable;
    plan = plans.decode(input[0..length], arena) catch return 0;
    return 1;
}

/// The input holds the address, the cluster, and the header list. Bits: 1 address known, 2 cluster known, 4 mTLS, 8
/// verified token. Gives the length of the result: u8 properties that were asked for, u8 shown, u8 what is done (0
/// handed on, 1 no route, 2 not cached, 3 looked up, 4 malformed); for what is looked up u16 pool, u32 largest, u8 counts,
/// u16 arm, 16 bytes unit; then texts (u32 length): tag, and for what is looked up material, arm, policy, tag of the
/// experiment.
export fn decided(address_length: usize, cluster_length: usize, length: usize, bits: u32) usize {
    asked = 0;
    address = if (bits & 1 != 0) input[0..address_length] else null;
    cluster = if (bits & 2 != 0) input[address_length..][0..cluster_length] else null;
    mtls = bits & 4 != 0;
    verified = bits & 8 != 0;
    var out: fields.Writer = .{ .bytes = &output, .len = 3 };
    output[1] = 0;
    output[2] = write(&out, input[address_length + cluster_length ..][0..length]) catch unreachable;
    output[0] = @intCast(asked);
    if (plan) |known| output[1] = @backingInt(decide.shownTo(known, &properties));
    return out.len;
}

fn write(out: *fields.Writer, bytes: []const u8) !u8 {
    view.parse(bytes) catch return 4;
    const known = plan orelse return 0;
    switch (decide.decide(known, &view, &scratch, &properties)) {
        .hand_on => return 0,
        .skip => |skip| {
            try text(out, skip.tag);
            return if (std.mem.eql(u8, skip.tag, known.no_route)) 1 else 2;
        },
        .look_up => |found| {
            try int(out, u16, found.pool);
            try int(out, u32, found.largest);
            try int(out, u8, @intFromBool(found.exposure != null));
            try int(out, u16, if (found.exposure) |exposure| exposure.arm else 0);
            try out.put(if (found.exposure) |*exposure| &exposure.unit else &@as([16]u8, @splat(0)));
            try text(out, found.tag);
            try text(out, found.material);
            try text(out, found.arm);
            try text(out, found.policy);
            try text(out, if (found.exposure) |exposure| exposure.tag else "");
            return 3;
        },
    }
}

/// Decides on the header list that is the whole input so many times over, as often parsed.
export fn repeat(length: usize, times: usize) usize {
    var sum: usize = 0;
    for (0..times) |_| {
        view.parse(input[0..length]) catch return 0;
        switch (decide.decide(plan.?, &view, &scratch, &properties)) {
            .look_up => |found| sum += found.material.len,
            else => {},
        }
    }
    return sum;
}

/// Whether the path in the input is plain.
export fn plain(length: usize) u32 {
    return @intFromBool(filter.asked.plain(input[0..length]));
}

/// The input holds a field's name and its value; gives the length of its normal form, -1 when there is none here.
export fn normal(name_length: usize, length: usize) i32 {
    var out: fields.Writer = .{ .bytes = &output };
    filter.normal.write(input[0..name_length], input[name_length..][0..length], &out) catch return -1;
    return @intCast(out.len);
}

/// The kind of the field whose name is the input.
export fn kind(length: usize) u32 {
    return @backingInt(fields.kindOf(input[0..length]));
}

fn text(out: *fields.Writer, bytes: []const u8) !void {
    try int(out, u32, @intCast(bytes.len));
    try out.put(bytes);
}

fn int(out: *fields.Writer, comptime T: type, value: T) !void {
    var bytes: [@sizeOf(T)]u8 = undefined;
    std.mem.writeInt(T, &bytes, value, .little);
    try out.put(&bytes);
}
