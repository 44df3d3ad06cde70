//! Which stored answers have been dropped, without looking for them.
//!
//! A label is the first eight bytes of a digest of what an answer depends on: its resource, route, revision, tag.
//! Dropping one writes down the time, by a clock that counts drops, in the label's slot. An answer is alive while no slot
//! of its labels was written after its request began. Labels that share a slot are dropped together: that costs hits, and
//! never keeps what has to go.

const std = @import("std");
const little = @import("little.zig");

/// The clock when a request began: the era above, the clock below.
pub const Born = u64;

/// The label that stands for everything.
pub const everything: u64 = 0;

pub const slot_count = 1 << 16;

/// What labels are multiplied by for their slots, odd and drawn anew in each life: else whoever finds a path whose label
/// shares a slot with that of a route could have all of the route dropped. As it is here, a slot is a label's lowest bits.
pub var mixer: u64 = 1 << 48;

/// The slot of a label.
pub inline fn slotOf(label: u64) u16 {
    return @intCast(label *% mixer >> 48);
}

pub const Slots = struct {
    era: u32 = 0,
    clock: u32 = 0,
    all: u32 = 0,
    last: [slot_count]u32 = @splat(0),

    /// What a request that begins now has to remember.
    pub inline fn now(self: *const Slots) Born {
        return @as(u64, self.era) << 32 | self.clock;
    }

    /// Drops what has this label; `everything` drops all.
    pub fn drop(self: *Slots, label: u64) void {
        if (label == everything) return self.dropAll();
        self.tick();
        self.last[slotOf(label)] = self.clock;
    }

    pub fn dropAll(self: *Slots) void {
        self.tick();
        self.all = self.clock;
    }

    /// Whether what began at `born` is still to be used, by the slots of its labels.
    pub inline fn alive(self: *const Slots, born: Born, of: []const u16) bool {
        if (born >> 32 != self.era) return false;
        const since: u32 = @truncate(born);
        if (self.all > since) return false;
        for (of) |slot| {
            if (self.last[slot] > since) return false;
        }
        return true;
    }

    /// Moves the clock on. After its last value a new era begins, in which nothing from before is alive.
    fn tick(self: *Slots) void {
        if (self.clock == std.math.maxInt(u32)) {
            self.era +%= 1;
            self.clock = 0;
            self.all = 0;
            self.last = @splat(0);
        }
        self.clock += 1;
    }
};

/// The drops that the workers of one Envoy tell each other, as they lie in shared data:
/// `u64` number of all drops ever, then the last `length` labels as a ring, all little endian.
pub const Ring = struct {
    pub const length = 256;
    pub const size = 8 + 8 * length;

    /// Number of drops that `bytes` tells of; null when it is no ring. Nothing stored yet is a ring without drops.
    pub fn count(bytes: []const u8) ?u64 {
        if (bytes.len == 0) return 0;
        if (bytes.len != size) return null;
        return little.read(u64, bytes[0..8]);
    }

    /// The ring `old` with `labels` added, in `new`. What is no ring is replaced by one that drops everything.
    pub fn add(old: []const u8, labels: []const u64, new: *[size]u8) void {
        var total: u64 = undefined;
        if (count(old)) |known| {
            total = known;
            if (old.len == size) @memcpy(new, old[0..size]) else @memset(new, 0);
        } else {
            // Everyone is behind a count that is so far on, and drops everything.
            total = if (old.len >= 8) little.read(u64, old[0..8]) +% 2 * length else 2 * length;
            @memset(new, 0);
        }
        for (labels) |label| {
            little.write(u64, new[8 + 8 * @as(usize, @intCast(total % length)) ..][0..8], label);
            total +%= 1;
        }
        little.write(u64, new[0..8], total);
    }

    /// Applies to `slots` what `bytes` has beyond the `seen` first drops, and gives the new number of drops seen. One that
    /// is too far behind, or ahead, and whatever is no ring, drops everything.
    pub fn apply(bytes: []const u8, seen: u64, slots: *Slots) u64 {
        const total = count(bytes) orelse {
            slots.dropAll();
            return seen;
        };
        const behind = total -% seen;
        if (behind > length) {
            slots.dropAll();
            return total;
        }
        var number = seen;
        while (number != total) : (number +%= 1) {
            slots.drop(little.read(u64, bytes[8 + 8 * @as(usize, @intCast(number % length)) ..][0..8]));
        }
        return total;
    }
};
