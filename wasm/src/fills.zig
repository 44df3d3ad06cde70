//! Answers that are still arriving: a fixed number of them, written block by block.

const std = @import("std");
const blocks_file = @import("blocks.zig");
const entry_file = @import("entry.zig");
const memory_file = @import("memory.zig");

const Entry = entry_file.Entry;
const Memory = memory_file.Memory;
const Ref = memory_file.Ref;

/// Answers that may arrive at once.
pub const max_fills = 128;
/// A fill to which nothing came for so long, milliseconds, gives way to another one.
pub const idle_ms = 1000;
/// So does one that takes longer than this, whatever comes: else who reads answers that drip keeps all others out.
pub const slow_ms = 5000;

/// Names a fill; one that is over is named by none that comes later.
pub const Handle = enum(u32) { _ };

pub const Fill = struct {
    /// Raised when a fill is over.
    generation: u24 = 0,
    /// First and last block; 0 when the place is free.
    entry: Ref = 0,
    last: Ref = 0,
    /// Bytes of the last block that are written.
    at: usize = 0,
    /// Bytes that the body has to have, if that is known.
    expected: ?u64 = null,
    /// When it began, and when something came last.
    began: i64 = 0,
    touched: i64 = 0,

    pub fn idle(self: *const Fill, now: i64) bool {
        return isPast(self.touched, idle_ms, now);
    }

    /// Whether it gives way to another one where there is no room for both.
    pub fn yields(self: *const Fill, now: i64) bool {
        return self.idle(now) or isPast(self.began, slow_ms, now);
    }
};

/// Whether so many milliseconds have gone by since `then`. So they have when somebody has set the clock back meanwhile.
pub fn isPast(then: i64, after_ms: i64, now: i64) bool {
    const since = now -| then;
    return since >= after_ms or since < 0;
}

pub const Fills = struct {
    places: [max_fills]Fill,
    open: usize,

    pub fn init(self: *Fills) void {
        self.* = .{ .places = @splat(.{}), .open = 0 };
    }

    pub fn get(self: *Fills, named: Handle) ?*Fill {
        const number = @backingInt(named) & 0xFF;
        if (number >= max_fills) return null;
        const fill = &self.places[number];
        if (fill.entry == 0 or fill.generation != @backingInt(named) >> 8) return null;
        return fill;
    }

    pub fn handle(self: *const Fills, fill: *const Fill) Handle {
        const number = (@intFromPtr(fill) - @intFromPtr(&self.places)) / @sizeOf(Fill);
        return @fromBackingInt(@intCast(@as(u32, fill.generation) << 8 | @as(u32, @intCast(number))));
    }

    /// A free place, or of those that yield the one to which something came least lately; null when there is none.
    pub fn place(self: *Fills, now: i64) ?*Fill {
        var idlest: ?*Fill = null;
        for (&self.places) |*fill| {
            if (fill.entry == 0) return fill;
            if (fill.yields(now) and (idlest == null or fill.touched < idlest.?.touched)) idlest = fill;
        }
        return idlest;
    }

    pub fn end(self: *Fills, fill: *Fill) void {
        fill.entry = 0;
        fill.generation +%= 1;
        self.open -= 1;
    }
};

test "what is idle gives way, and what takes long, the idlest first" {
    const testing = std.testing;
    var fills: Fills = undefined;
    fills.init();
    for (&fills.places, 0..) |*fill, number| {
        fill.entry = 1;
        fill.began = @intCast(number);
        fill.touched = @intCast(1000 + number);
    }
    try testing.expectEqual(null, fills.place(1999));
    try testing.expectEqual(&fills.places[0], fills.place(2000).?);
    fills.places[0].touched = 5000;
    try testing.expectEqual(&fills.places[1], fills.place(5001).?);
    for (&fills.places) |*fill| fill.touched = slow_ms - 1;
    try testing.expectEqual(null, fills.place(slow_ms - 1));
    try testing.expect(fills.place(slow_ms) == &fills.places[0]);
    fills.places[9].entry = 0;
    try testing.expectEqual(&fills.places[9], fills.place(0).?);
    // Somebody has set the clock back.
    fills.places[9].entry = 1;
    try testing.expect(fills.place(-1) != null);
}
