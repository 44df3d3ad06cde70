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
    /// When something came last.
    touched: i64 = 0,

    pub fn idle(self: *const Fill, now: i64) bool {
        const since = now -| self.touched;
        return since >= idle_ms or since < 0;
    }
};

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

    /// A free place, or the one that has been idle longest; null when all are busy.
    pub fn place(self: *Fills, now: i64) ?*Fill {
        var idlest: ?*Fill = null;
        for (&self.places) |*fill| {
            if (fill.entry == 0) return fill;
            if (fill.idle(now) and (idlest == null or fill.touched < idlest.?.touched)) idlest = fill;
        }
        return idlest;
    }

    pub fn end(self: *Fills, fill: *Fill) void {
        fill.entry = 0;
        fill.generation +%= 1;
        self.open -= 1;
    }
};
