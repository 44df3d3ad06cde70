//! The host calls of proxy-wasm 0.2.1 that the filter uses, with their sharp edges taken off: statuses as `bool` or
//! optional, what the host returns in memory that the caller has named.
//!
//! The host copies what it returns into memory that it asks for through `proxy_on_memory_allocate`. Each wrapper below
//! names that memory just before its call, so that nothing is ever allocated, and an answer that does not fit is refused
//! by the host (`InvalidMemoryAccess`) and reads here as one that is not there.

const std = @import("std");
const little = @import("little.zig");
const Writer = @import("fields.zig").Writer;

pub const Map = enum(u32) {
    request_headers = 0,
    response_headers = 2,
    call_response_headers = 6,
};

pub const Buffer = enum(u32) {
    response_body = 1,
    call_response_body = 4,
    plugin_configuration = 7,
};

/// Of the kinds of metrics: a number that only grows.
const counter = 0;

pub const Level = enum(u32) { debug = 1, info = 2, warn = 3, err = 4 };

/// What a header callback tells the host: go on, or wait. The filter waits only behind a local response.
pub const Action = enum(u32) { go_on = 0, stop = 1 };

/// Statuses by the host's numbers; only these are told apart.
const Status = enum(i32) { ok = 0, not_found = 1, cas_mismatch = 8, _ };

const env = struct {
    extern "env" fn proxy_log(level: u32, text: [*]const u8, size: usize) Status;
    extern "env" fn proxy_get_property(path: [*]const u8, path_size: usize, value: *[*]const u8, size: *usize) Status;
    extern "env" fn proxy_set_property(path: [*]const u8, path_size: usize, value: [*]const u8, size: usize) Status;
    extern "env" fn proxy_get_buffer_bytes(kind: Buffer, start: usize, length: usize, value: *[*]const u8, size: *usize) Status;
    extern "env" fn proxy_get_header_map_pairs(map: Map, value: *[*]const u8, size: *usize) Status;
    extern "env" fn proxy_get_header_map_value(map: Map, key: [*]const u8, key_size: usize, value: *[*]const u8, size: *usize) Status;
    extern "env" fn proxy_add_header_map_value(map: Map, key: [*]const u8, key_size: usize, value: [*]const u8, size: usize) Status;
    extern "env" fn proxy_replace_header_map_value(map: Map, key: [*]const u8, key_size: usize, value: [*]const u8, size: usize) Status;
    extern "env" fn proxy_remove_header_map_value(map: Map, key: [*]const u8, key_size: usize) Status;
    extern "env" fn proxy_send_local_response(status: u32, details: [*]const u8, details_size: usize, body: [*]const u8, body_size: usize, pairs: [*]const u8, pairs_size: usize, grpc_status: i32) Status;
    extern "env" fn proxy_http_call(cluster: [*]const u8, cluster_size: usize, pairs: [*]const u8, pairs_size: usize, body: [*]const u8, body_size: usize, trailers: [*]const u8, trailers_size: usize, timeout: u32, token: *u32) Status;
    extern "env" fn proxy_set_tick_period_milliseconds(period: u32) Status;
    extern "env" fn proxy_define_metric(kind: u32, name: [*]const u8, name_size: usize, id: *u32) Status;
    extern "env" fn proxy_increment_metric(id: u32, by: i64) Status;
    extern "env" fn proxy_get_metric(id: u32, value: *u64) Status;
    extern "env" fn proxy_get_shared_data(key: [*]const u8, key_size: usize, value: *[*]const u8, size: *usize, cas: *u32) Status;
    extern "env" fn proxy_set_shared_data(key: [*]const u8, key_size: usize, value: [*]const u8, size: usize, cas: u32) Status;
    extern "env" fn proxy_get_current_time_nanoseconds(time: *u64) Status;
};

const wasi = struct {
    extern "wasi_snapshot_preview1" fn random_get(buffer: [*]u8, size: usize) u32;
    extern "wasi_snapshot_preview1" fn clock_time_get(clock: u32, precision: u64, time: *u64) u32;
};

/// Where the next answer of the host goes.
var landing: []u8 = &.{};

/// What `proxy_on_memory_allocate` returns: the memory named by the wrapper that made the call, null where it is too
/// small.
pub fn allocate(size: usize) ?[*]u8 {
    if (size > landing.len) return null;
    const where = landing.ptr;
    landing = &.{};
    return where;
}

fn taken(status: Status, value: [*]const u8, size: usize) ?[]const u8 {
    landing = &.{};
    if (status != .ok) return null;
    // Nothing is allocated for what is empty.
    return if (size == 0) &.{} else value[0..size];
}

/// All pairs of a header map in one call, in the host's serialised form (`fields.zig` reads it).
pub fn pairs(map: Map, into: []u8) ?[]const u8 {
    var value: [*]const u8 = undefined;
    var size: usize = 0;
    landing = into;
    return taken(env.proxy_get_header_map_pairs(map, &value, &size), value, size);
}

/// The first line of a header; null when there is none.
pub fn header(map: Map, name: []const u8, into: []u8) ?[]const u8 {
    var value: [*]const u8 = undefined;
    var size: usize = 0;
    landing = into;
    return taken(env.proxy_get_header_map_value(map, name.ptr, name.len, &value, &size), value, size);
}

/// Adds a line of a header.
pub fn addHeader(map: Map, name: []const u8, value: []const u8) void {
    _ = env.proxy_add_header_map_value(map, name.ptr, name.len, value.ptr, value.len);
}

pub fn setHeader(map: Map, name: []const u8, value: []const u8) bool {
    return env.proxy_replace_header_map_value(map, name.ptr, name.len, value.ptr, value.len) == .ok;
}

/// Removes all lines of a header; nothing happens where there are none.
pub fn removeHeader(map: Map, name: []const u8) void {
    _ = env.proxy_remove_header_map_value(map, name.ptr, name.len);
}

/// At most `into.len` bytes of a buffer from `start`; empty past its end, null when the host has no such buffer.
pub fn bytes(kind: Buffer, start: usize, into: []u8) ?[]const u8 {
    var value: [*]const u8 = undefined;
    var size: usize = 0;
    landing = into;
    return taken(env.proxy_get_buffer_bytes(kind, start, into.len, &value, &size), value, size);
}

/// A property of the request or its connection; the parts of `path` are separated by NUL.
pub fn property(path: []const u8, into: []u8) ?[]const u8 {
    var value: [*]const u8 = undefined;
    var size: usize = 0;
    landing = into;
    return taken(env.proxy_get_property(path.ptr, path.len, &value, &size), value, size);
}

/// Whether there is such a property, however long; true as well when nobody can say.
pub fn hasProperty(path: []const u8) bool {
    var value: [*]const u8 = undefined;
    var size: usize = 0;
    landing = &.{};
    return env.proxy_get_property(path.ptr, path.len, &value, &size) != .not_found;
}

/// Sets filter state under `wasm.` and `path`: no client can.
pub fn setProperty(path: []const u8, value: []const u8) bool {
    return env.proxy_set_property(path.ptr, path.len, value.ptr, value.len) == .ok;
}

/// Answers the client. To be called once for a stream at most: a second one has hung or crashed Envoy. `serialised` are
/// header pairs in the host's form. `details` shows in access logs as RESPONSE_CODE_DETAILS.
pub fn respond(status: u32, details: []const u8, serialised: []const u8, body: []const u8) bool {
    return env.proxy_send_local_response(status, details.ptr, details.len, body.ptr, body.len, serialised.ptr, serialised.len, -1) == .ok;
}

pub const Pair = struct { name: []const u8, value: []const u8 };

/// `pairs` in the host's serialised form, in `into`; null where they do not fit.
pub fn serialise(list: []const Pair, into: []u8) ?[]const u8 {
    var out: Writer = .{ .bytes = into };
    putAll(&out, list) catch return null;
    return into[0..out.len];
}

fn putAll(out: *Writer, list: []const Pair) error{NoRoom}!void {
    try putSize(out, list.len);
    for (list) |pair| {
        try putSize(out, pair.name.len);
        try putSize(out, pair.value.len);
    }
    for (list) |pair| {
        try out.put(pair.name);
        try out.byte(0);
        try out.put(pair.value);
        try out.byte(0);
    }
}

fn putSize(out: *Writer, size: usize) error{NoRoom}!void {
    var number: [4]u8 = undefined;
    little.write(u32, &number, @intCast(size));
    try out.put(&number);
}

/// Starts a call to a cluster; its answer comes by `proxy_on_http_call_response`. Null when the cluster is not there.
pub fn call(cluster: []const u8, serialised: []const u8, body: []const u8, timeout_ms: u32) ?u32 {
    var token: u32 = 0;
    const none: []const u8 = &.{};
    const status = env.proxy_http_call(cluster.ptr, cluster.len, serialised.ptr, serialised.len, body.ptr, body.len, none.ptr, 0, timeout_ms, &token);
    return if (status == .ok) token else null;
}

pub fn tickEvery(milliseconds: u32) void {
    _ = env.proxy_set_tick_period_milliseconds(milliseconds);
}

/// The counter of this name, which is one and the same for all workers, and atomic.
pub fn defineCounter(name: []const u8) ?u32 {
    var id: u32 = 0;
    return if (env.proxy_define_metric(counter, name.ptr, name.len, &id) == .ok) id else null;
}

/// Adds one to a counter.
pub fn increment(id: u32) void {
    _ = env.proxy_increment_metric(id, 1);
}

pub fn metric(id: u32) ?u64 {
    var value: u64 = 0;
    return if (env.proxy_get_metric(id, &value) == .ok) value else null;
}

pub const Shared = struct {
    value: []const u8,
    /// The version to give to `share`, which fails when it has changed since. 0 stands for any.
    cas: u32,
};

/// What all workers share under `key`: empty with version 0 where nothing has been set.
pub fn shared(key: []const u8, into: []u8) ?Shared {
    var value: [*]const u8 = undefined;
    var size: usize = 0;
    var cas: u32 = 0;
    landing = into;
    const status = env.proxy_get_shared_data(key.ptr, key.len, &value, &size, &cas);
    if (status == .not_found) {
        landing = &.{};
        return .{ .value = &.{}, .cas = 0 };
    }
    return .{ .value = taken(status, value, size) orelse return null, .cas = cas };
}

pub const Sharing = enum { done, changed, failed };

/// Sets what all workers share under `key`, unless another worker has set it since version `cas`.
pub fn share(key: []const u8, value: []const u8, cas: u32) Sharing {
    return switch (env.proxy_set_shared_data(key.ptr, key.len, value.ptr, value.len, cas)) {
        .ok => .done,
        .cas_mismatch => .changed,
        else => .failed,
    };
}

/// Unix time in nanoseconds; 0 when the host has none.
pub fn nanoseconds() u64 {
    var time: u64 = 0;
    return if (env.proxy_get_current_time_nanoseconds(&time) == .ok) time else 0;
}

/// Nanoseconds by a clock that nobody sets; 0 when the host has none.
pub fn steadyNanoseconds() u64 {
    const monotonic = 1;
    var time: u64 = 0;
    return if (wasi.clock_time_get(monotonic, 1, &time) == 0) time else 0;
}

/// Fills `into` with bytes that nobody can guess.
pub fn random(into: []u8) bool {
    return wasi.random_get(into.ptr, into.len) == 0;
}

/// For what happens once, never for what a request can cause.
pub fn log(level: Level, text: []const u8) void {
    _ = env.proxy_log(@backingInt(level), text.ptr, text.len);
}
