//! What one of Envoy's workers has: its plan, what it has stored, what it counts. Each worker has a module of its own, and
//! in a module only one thing happens at a time.

const std = @import("std");
const abi = @import("abi.zig");
const admission_file = @import("admission.zig");
const answer = @import("answer.zig");
const decide = @import("decide.zig");
const drops_file = @import("drops.zig");
const marks = @import("marks.zig");
const numbers_file = @import("numbers.zig");
const plan_file = @import("plan.zig");
const settings_file = @import("settings.zig");
const slots_file = @import("slots.zig");
const store_file = @import("store.zig");
const streams_file = @import("streams.zig");

const page = @import("memory.zig").page;

pub var settings: settings_file.Settings = undefined;
pub var memory: store_file.Memory = undefined;
pub var store: store_file.Store = undefined;
pub var admission: admission_file.Admission = .{};
pub var drops: drops_file.Drops = undefined;
pub var streams: streams_file.Streams = undefined;
pub var numbers: numbers_file.Numbers = undefined;
pub var scratch: decide.Scratch = undefined;
pub var room: answer.Room = undefined;

/// This worker's alone, for all time.
pub var id: u64 = 0;

/// The plan in force; null for none, when the filter does nothing.
pub var plan: ?*const plan_file.Plan = null;
/// Whom marks are exchanged with under that plan.
pub var party: marks.Party = undefined;
/// Counts plans, and times without one.
pub var plan_number: u32 = 0;
/// Until when hits are answered, in Unix milliseconds; 0 for not at all.
pub var serves_until: i64 = 0;

/// Two stretches of memory for plans, of which one holds that in force.
var arenas: [2]Stretch = .{ .{}, .{} };
var arena_in_use: usize = 0;
var shares: [store_file.max_pools]store_file.Share = undefined;

/// Memory that is taken once and grows when it has to: what it was before is lost then, so it is doubled at least.
pub const Stretch = struct {
    bytes: []u8 = &.{},

    pub fn ensure(self: *Stretch, size: usize) ?[]u8 {
        if (size > self.bytes.len) {
            const wanted = @max(size, 2 * self.bytes.len);
            const pages = (wanted + page - 1) / page;
            const at = memory.grow(pages) orelse return null;
            self.bytes = memory.bytes(at)[0 .. pages * page];
        }
        return self.bytes[0..size];
    }
};

/// Whether everything is in its place. Envoy configures a VM once more when the configuration of the filter changes: what
/// is stored and counted stays.
var begun = false;

/// False where the host has no randomness: without it keys could be made to collide.
pub fn init(configuration: []const u8) bool {
    settings = .read(configuration);
    if (begun) return true;
    var seeds: [4]u64 = undefined;
    if (!abi.random(std.mem.asBytes(&seeds))) return false;
    memory = store_file.Memory.init(0) catch return false;
    store.init(&memory, seeds[0]);
    slots_file.mixer = seeds[3] | 1;
    drops.init();
    streams.init();
    id = seeds[1];
    numbers.init(id, seeds[2]);
    begun = true;
    return true;
}

/// Puts a plan in force, as its bytes say it; false when they are none, and then no plan is in force.
pub fn adopt(bytes: []const u8) bool {
    const next = 1 - arena_in_use;
    const arena = arenas[next].ensure(plan_file.room(bytes.len)) orelse return retire();
    const made = plan_file.decode(bytes, arena) catch return retire();
    if (made.pools.len > shares.len) return retire();
    arena_in_use = next;
    plan = made;
    plan_number +%= 1;
    party = .{ .plan = made.id, .secret = made.secret };
    numbers.table.newPlan(made.id);
    for (made.pools, shares[0..made.pools.len]) |pool, *share| {
        share.* = .{ .id = pool.id, .bytes = @intFromFloat(pool.fraction * @as(f64, @floatFromInt(made.budget))) };
    }
    store.configure(made.budget, made.largest, shares[0..made.pools.len]);
    admission.forgive();
    return true;
}

/// No plan is in force any more: the sidecar works by one that is not known here, so nothing that is stored can be judged.
/// Always false.
pub fn retire() bool {
    plan = null;
    plan_number +%= 1;
    serves_until = 0;
    drops.slots.dropAll();
    admission.forgive();
    return false;
}
