//! Blocks of one size, chained: what every object is kept in.
//!
//! With one size nothing fragments, and no class of sizes keeps memory that another one needs. The price is half a
//! block for each object and a short hop for each block that is copied; decision 30 has the numbers.

const equal = @import("equal.zig").equal;
const memory_file = @import("memory.zig");

const Memory = memory_file.Memory;
const Ref = memory_file.Ref;
const page = memory_file.page;

/// Bytes of a block; its first four are the next block of the chain, 0 in the last one.
pub const block_size: usize = 256;
/// Where the content of a block begins.
pub const block_start: usize = 4;
/// Bytes of content of a block.
const block_room: usize = block_size - block_start;

/// Pages by which memory grows at a time, unless fewer are left of the budget.
const step: usize = 16;

/// Blocks that hold so many bytes.
pub fn needed(length: usize) usize {
    return (length + block_room - 1) / block_room;
}

const Range = struct { from: Ref = 0, to: Ref = 0 };

/// The blocks of a store, taken from memory as they are needed, up to `limit`.
pub const Blocks = struct {
    memory: *Memory,
    /// Blocks that may be in use at once.
    limit: usize = 0,
    /// Blocks that are in use.
    used: usize = 0,
    /// Blocks that memory has been grown for, in use or not.
    total: usize = 0,
    free: Ref = 0,
    /// Stretches that have never been used, so that growing touches nothing.
    fresh: [8]Range = @splat(.{}),

    pub inline fn next(self: *const Blocks, ref: Ref) *Ref {
        return self.memory.at(Ref, ref);
    }

    /// A block, the last of its chain; null when `limit` are in use or memory does not grow.
    pub fn take(self: *Blocks) ?Ref {
        if (self.used >= self.limit) return null;
        const ref = self.reuse() orelse self.unused() orelse return null;
        self.next(ref).* = 0;
        self.used += 1;
        return ref;
    }

    /// Gives back a chain of `count` blocks, in one step whatever its length.
    pub fn give(self: *Blocks, first: Ref, last: Ref, count: usize) void {
        self.next(last).* = self.free;
        self.free = first;
        self.used -= count;
    }

    /// Makes blocks of a stretch of memory that served for something else. Both ends lie on a border of pages.
    pub fn adopt(self: *Blocks, from: Ref, length: usize) void {
        self.total += length / block_size;
        const range: Range = .{ .from = from, .to = @intCast(from + length) };
        for (&self.fresh) |*place| {
            if (place.from != place.to) continue;
            place.* = range;
            return;
        }
        var ref = range.from;
        while (ref < range.to) : (ref += block_size) {
            self.next(ref).* = self.free;
            self.free = ref;
        }
    }

    fn reuse(self: *Blocks) ?Ref {
        if (self.free == 0) return null;
        const ref = self.free;
        self.free = self.next(ref).*;
        return ref;
    }

    fn unused(self: *Blocks) ?Ref {
        for (0..2) |_| {
            for (&self.fresh) |*range| {
                if (range.from == range.to) continue;
                const ref = range.from;
                range.from += block_size;
                return ref;
            }
            const left = (self.limit -| self.total) * block_size / page;
            // In small stores by eighths, so that an idle one stays small.
            const count = @min(left, @max(1, @min(step, self.limit * block_size / page / 8)));
            if (count == 0) return null;
            self.adopt(self.memory.grow(count) orelse return null, count * page);
        }
        return null;
    }
};

/// A place in a chain, from which it is read.
pub const Reader = struct {
    memory: *const Memory,
    block: Ref,
    /// Bytes from the beginning of the block, `block_start` to `block_size`.
    at: usize,

    /// What can be read in one piece, at most `length`. The chain has that many bytes left.
    pub inline fn piece(self: *Reader, length: usize) []u8 {
        if (self.at == block_size) {
            self.block = self.memory.at(Ref, self.block).*;
            self.at = block_start;
        }
        const count = @min(length, block_size - self.at);
        const found = (self.memory.bytes(self.block) + self.at)[0..count];
        self.at += count;
        return found;
    }

    pub fn copy(self: *Reader, to: []u8) void {
        var done: usize = 0;
        while (done < to.len) {
            const part = self.piece(to.len - done);
            @memcpy(to[done..][0..part.len], part);
            done += part.len;
        }
    }

    pub fn equals(self: *Reader, other: []const u8) bool {
        var done: usize = 0;
        while (done < other.len) {
            const part = self.piece(other.len - done);
            if (!equal(part, other[done..][0..part.len])) return false;
            done += part.len;
        }
        return true;
    }

    pub fn skip(self: *Reader, length: usize) void {
        var left = length;
        while (left > 0) left -= self.piece(left).len;
    }

    /// The next `length` bytes in one piece: where they lie, or in `scratch` when they lie in several blocks.
    pub fn whole(self: *Reader, length: usize, scratch: []u8) []const u8 {
        if (length == 0) return &.{};
        const first = self.piece(length);
        if (first.len == length) return first;
        @memcpy(scratch[0..first.len], first);
        self.copy(scratch[first.len..length]);
        return scratch[0..length];
    }
};
