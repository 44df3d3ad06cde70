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
const equal = @import("equal.zig").equal;
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
    var from: Source = .{ .reader = .{ .bytes = bytes }, .arena = arena };
    const copied = from.alloc(u8, bytes.len);
    if (from.reader.failed) return error.Refused;
    @memcpy(copied, bytes);
    from.reader.bytes = copied;
    const plan = read(&from);
    return if (from.reader.failed) error.Refused else plan;
}

/// What is read from and written to while a plan is decoded.
pub const Source = struct {
    reader: Reader,
    /// What is left of it.
    arena: []u8,

    /// Memory for `count` of `T`; for none of them, and all that is read is refused, when there is not so much.
    pub fn alloc(self: *Source, comptime T: type, count: usize) []T {
        const at = self.take(count, @sizeOf(T), @alignOf(T)) orelse return &.{};
        return @as([*]T, @ptrCast(@alignCast(at)))[0..count];
    }

    noinline fn take(self: *Source, count: usize, size: usize, alignment: usize) ?[*]u8 {
        const skipped = (0 -% @intFromPtr(self.arena.ptr)) & (alignment - 1);
        // Of no more items than there are bytes of a plan, of which there are less than 2 to the 32th.
        const bytes = @as(u64, count) * size + skipped;
        self.reader.check(bytes <= self.arena.len);
        if (self.reader.failed) return null;
        const at = self.arena.ptr + skipped;
        self.arena = self.arena[@intCast(bytes)..];
        return at;
    }

    /// A list of `T`, behind its number, each read by `one` with what has been read of the plan so far.
    pub fn list(self: *Source, comptime T: type, comptime Count: type, plan: *const Plan, comptime one: fn (*Source, *const Plan) T) []const T {
        const made = self.alloc(T, self.number(Count));
        for (made) |*item| item.* = one(self, plan);
        return made;
    }

    /// A number of items. Each has a byte at least, so that no number makes more memory than there are bytes.
    pub fn number(self: *Source, comptime Count: type) usize {
        const found = self.reader.int(Count);
        self.reader.check(found <= self.reader.bytes.len - self.reader.at);
        return if (self.reader.failed) 0 else found;
    }

    pub fn texts(self: *Source, plan: *const Plan) []const []const u8 {
        return self.list([]const u8, u16, plan, struct {
            fn one(from: *Source, _: *const Plan) []const u8 {
                return from.reader.text();
            }
        }.one);
    }

    pub fn place(self: *Source, plan: *const Plan) u16 {
        const found = self.reader.int(u16);
        self.reader.check(found == nowhere or found < plan.places.len);
        return found;
    }

    pub fn flag(self: *Source) bool {
        return self.reader.below(u8, 2) == 1;
    }
};

/// To be used when nothing has failed.
fn read(from: *Source) *const Plan {
    const reader = &from.reader;
    reader.check(equal(reader.raw(4), "MCP1") and reader.int(u16) == 1);
    const room_for_it = from.alloc(Plan, 1);
    if (room_for_it.len == 0) return undefined;
    const plan = &room_for_it[0];
    plan.id = reader.raw(8)[0..8].*;
    plan.secret = reader.raw(32)[0..32].*;
    plan.lease_ms = reader.int(u32);
    plan.budget = reader.int(u64);
    plan.largest = reader.int(u32);
    plan.shown = @fromBackingInt(@intCast(reader.below(u8, 4)));
    plan.shows_all = trust.Rule.read(from, plan);
    plan.canary = trust.Rule.read(from, plan);
    plan.by_cluster = from.flag();
    plan.revision = reader.text();
    plan.pools = from.list(Pool, u16, plan, readPool);
    reader.check(plan.pools.len > 0);
    plan.specs = from.list(key.Spec, u16, plan, key.Spec.read);
    plan.places = from.list(Place, u16, plan, readPlace);
    plan.experiments = from.list(arm.Experiment, u16, plan, arm.Experiment.read);
    plan.targets = from.list(Target, u16, plan, readTarget);
    plan.no_route = reader.text();
    plan.routes = route.Index.read(from, plan);
    reader.check(reader.at == reader.bytes.len);
    return plan;
}

fn readPool(from: *Source, _: *const Plan) Pool {
    const made: Pool = .{ .id = from.reader.int(u64), .fraction = from.reader.float() };
    from.reader.check(made.fraction >= 0 and made.fraction <= 1);
    return made;
}

fn readPlace(from: *Source, plan: *const Plan) Place {
    const reader = &from.reader;
    return .{
        .methods = reader.int(u8),
        .spec = reader.below(u16, plan.specs.len),
        .pool = reader.below(u16, plan.pools.len),
        .largest = reader.int(u32),
        .arm = shownName(reader),
        .policy = shownName(reader),
        .head = reader.text(),
        .tag = reader.text(),
    };
}

/// A name that may stand in a header, in quotes.
fn shownName(reader: *Reader) []const u8 {
    const found = reader.text();
    for (found) |byte| {
        reader.check(byte > ' ' and byte < 0x7F and byte != '"' and byte != '\\');
    }
    return found;
}

fn readTarget(from: *Source, plan: *const Plan) Target {
    const reader = &from.reader;
    const kind = reader.below(u8, 4);
    const number = reader.int(u16);
    const tag = reader.text();
    switch (kind) {
        0 => return .hand_on,
        1 => return .{ .not_cached = tag },
        2 => {
            reader.check(number < plan.places.len);
            return .{ .place = number };
        },
        else => {
            reader.check(number < plan.experiments.len);
            return .{ .experiment = number };
        },
    }
}
