//! The plan: what the policies in force say, as the sidecar has written it. The format stands in
//! `meshcache.wasm.plan`, `plan_arms` and `plan_routes`.
//!
//! Whatever the bytes are, reading them takes linear time and ends with a plan by which no decision leaves its memory,
//! or with a refusal: all numbers that lead somewhere are checked here, once.

const std = @import("std");
const arm = @import("arm.zig");
const key = @import("key.zig");
const route = @import("route.zig");
const trust = @import("trust.zig");
const Reader = @import("reader.zig").Reader;
pub const Refused = @import("reader.zig").Refused;

/// How much of `cache-status` a caller sees (`policy.compiled.CacheStatus`).
pub const Shown = enum(u8) { off, minimal, standard, full };

/// One share of the memory.
pub const Pool = struct {
    /// As in the sidecar's storage keys; 0 is the common one, which is the first of a plan's.
    id: u64,
    /// Of `Plan.budget`, between 0 and 1.
    fraction: f64,
};

/// In the place of a place: the request is handed on.
pub const nowhere = 0xFFFF;

/// Where a request can come to, and what follows from that.
pub const Place = struct {
    /// Bit 1: GET, bit 2: HEAD.
    methods: u8,
    spec: u16,
    pool: u16,
    largest: u32,
    arm: []const u8,
    policy: []const u8,
    /// What its material begins with.
    head: []const u8,
    tag: []const u8,
};

pub const Target = union(enum) {
    hand_on,
    /// With what such requests are counted by.
    not_cached: []const u8,
    place: u16,
    experiment: u16,
};

pub const Plan = struct {
    /// Digest of all but itself and the secret.
    id: [8]u8,
    /// Proves the marks.
    secret: [32]u8,
    /// How long a worker may serve without hearing from the sidecar.
    lease_ms: u32,
    /// Memory for entries of this worker, in bytes.
    budget: u64,
    /// Bytes of the largest body that is kept.
    largest: u32,
    /// Whether Envoy may have verified a token that does not stand in `authorization`.
    tokens: bool,
    /// What strangers see of `cache-status`.
    shown: Shown,
    /// Who sees all of it.
    shows_all: trust.Rule,
    /// Whose headers may force an arm.
    canary: trust.Rule,
    /// Whether the cluster's name is the revision; then `revision` stands in where there is none.
    by_cluster: bool,
    revision: []const u8,
    pools: []const Pool,
    specs: []const key.Spec,
    places: []const Place,
    experiments: []const arm.Experiment,
    targets: []const Target,
    /// What requests without a route are counted by.
    no_route: []const u8,
    routes: route.Index,
};

/// Memory that `decode` needs at most for a plan of so many bytes.
pub fn room(length: usize) usize {
    return 2 * @sizeOf(usize) * length + 4096;
}

/// Reads `bytes` into `arena`, of at least `room(bytes.len)` bytes, to which the plan and all it holds belong.
/// `bytes` are not needed afterwards.
pub fn decode(bytes: []const u8, arena: []u8) Refused!*const Plan {
    var fixed: std.heap.FixedBufferAllocator = .init(arena);
    return read(bytes, fixed.allocator()) catch error.Refused;
}

/// What is read from and written to while a plan is decoded.
pub const Source = struct {
    reader: Reader,
    memory: std.mem.Allocator,

    pub const Error = Refused || std.mem.Allocator.Error;

    /// A list of `T`, behind its number, each read by `one` with what has been read of the plan so far.
    pub fn list(self: *Source, comptime T: type, comptime Count: type, plan: *const Plan, comptime one: fn (*Source, *const Plan) Error!T) Error![]const T {
        const count = try self.reader.int(Count);
        // Each item has a byte at least, so that no number makes more memory than there are bytes.
        if (count > self.reader.bytes.len - self.reader.at) return error.Refused;
        const made = try self.memory.alloc(T, count);
        for (made) |*item| item.* = try one(self, plan);
        return made;
    }

    pub fn texts(self: *Source, plan: *const Plan) Error![]const []const u8 {
        return self.list([]const u8, u16, plan, struct {
            fn one(from: *Source, _: *const Plan) Error![]const u8 {
                return from.reader.text();
            }
        }.one);
    }

    pub fn place(self: *Source, plan: *const Plan) Error!u16 {
        const found = try self.reader.int(u16);
        return if (found == nowhere or found < plan.places.len) found else error.Refused;
    }

    pub fn flag(self: *Source) Error!bool {
        return try self.reader.below(u8, 2) == 1;
    }
};

fn read(bytes: []const u8, memory: std.mem.Allocator) Source.Error!*const Plan {
    var from: Source = .{ .reader = .{ .bytes = try memory.dupe(u8, bytes) }, .memory = memory };
    const reader = &from.reader;
    if (!std.mem.eql(u8, try reader.raw(4), "MCP1") or try reader.int(u16) != 1) return error.Refused;
    const plan = try memory.create(Plan);
    plan.id = (try reader.raw(8))[0..8].*;
    plan.secret = (try reader.raw(32))[0..32].*;
    plan.lease_ms = try reader.int(u32);
    plan.budget = try reader.int(u64);
    plan.largest = try reader.int(u32);
    plan.tokens = try from.flag();
    plan.shown = @fromBackingInt(@intCast(try reader.below(u8, 4)));
    plan.shows_all = try trust.Rule.read(&from, plan);
    plan.canary = try trust.Rule.read(&from, plan);
    plan.by_cluster = try from.flag();
    plan.revision = try reader.text();
    plan.pools = try from.list(Pool, u16, plan, readPool);
    if (plan.pools.len == 0) return error.Refused;
    plan.specs = try from.list(key.Spec, u16, plan, key.Spec.read);
    plan.places = try from.list(Place, u16, plan, readPlace);
    plan.experiments = try from.list(arm.Experiment, u16, plan, arm.Experiment.read);
    plan.targets = try from.list(Target, u16, plan, readTarget);
    plan.no_route = try reader.text();
    plan.routes = try route.Index.read(&from, plan);
    if (reader.at != reader.bytes.len) return error.Refused;
    return plan;
}

fn readPool(from: *Source, _: *const Plan) Source.Error!Pool {
    const made: Pool = .{ .id = try from.reader.int(u64), .fraction = try from.reader.float() };
    return if (made.fraction >= 0 and made.fraction <= 1) made else error.Refused;
}

fn readPlace(from: *Source, plan: *const Plan) Source.Error!Place {
    const reader = &from.reader;
    return .{
        .methods = try reader.int(u8),
        .spec = try reader.below(u16, plan.specs.len),
        .pool = try reader.below(u16, plan.pools.len),
        .largest = try reader.int(u32),
        .arm = try shownName(reader),
        .policy = try shownName(reader),
        .head = try reader.text(),
        .tag = try reader.text(),
    };
}

/// A name that may stand in a header, in quotes.
fn shownName(reader: *Reader) Refused![]const u8 {
    const found = try reader.text();
    for (found) |byte| {
        if (byte <= ' ' or byte >= 0x7F or byte == '"' or byte == '\\') return error.Refused;
    }
    return found;
}

fn readTarget(from: *Source, plan: *const Plan) Source.Error!Target {
    const reader = &from.reader;
    const kind = try reader.int(u8);
    const number = try reader.int(u16);
    const tag = try reader.text();
    return switch (kind) {
        0 => .hand_on,
        1 => .{ .not_cached = tag },
        2 => if (number < plan.places.len) .{ .place = number } else error.Refused,
        3 => if (number < plan.experiments.len) .{ .experiment = number } else error.Refused,
        else => error.Refused,
    };
}
