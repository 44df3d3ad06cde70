//! Which misses are worth asking for at once, and which only when the same comes again.
//!
//! To ask costs: a proof, what may be kept, a copy of the answer, and something that has to go for it. It is worth that
//! where answers are asked for again, so the first hit of each pays for it: as long as each has one, or nearly, everything
//! is. Where one new key follows the other, as when a crawler goes by or in the long tail of what is asked for, only what has
//! been seen lately is (a doorkeeper, as of TinyLFU: Einziger, Friedman and Manes 2017, section 3.4.2).

/// Answers of a pool that are asked for ahead of the first hits that pay for them.
pub const allowance = 1024;
/// Pools that are told apart.
const pools = 256;
/// Keys of which it is known that they have been seen, a power of 2; each takes the place of one before.
const remembered = 1 << 14;

/// All zeros at the beginning.
pub const Admission = struct {
    /// What was asked for and no hit has paid for, up to `allowance`: for each pool, as one lives off no other's hits.
    owed: [pools]u16 = @splat(0),
    /// Of keys that were seen, some bits of their hash, found by others of them.
    seen: [remembered]u16 = @splat(0),

    /// Whether to ask for what has this hash, which is not stored.
    pub fn asks(self: *Admission, pool: u16, hash: u64) bool {
        const owed = &self.owed[pool % pools];
        if (owed.* < allowance) {
            owed.* += 1;
            return true;
        }
        const place = &self.seen[@intCast(hash % remembered)];
        const mark: u16 = @intCast(hash >> 48 | 1);
        if (place.* == mark) return true;
        place.* = mark;
        return false;
    }

    /// What is stored was given for the first time, or what was asked for could not be.
    pub fn pay(self: *Admission, pool: u16) void {
        self.owed[pool % pools] -|= 1;
    }

    /// Nothing is stored any more, or pools are others.
    pub fn forgive(self: *Admission) void {
        self.owed = @splat(0);
    }
};

const testing = @import("std").testing;

test "all is asked for at first, then what comes again, and a hit pays for one" {
    var admission: Admission = .{};
    for (0..allowance) |number| try testing.expect(admission.asks(0, number));
    const hash: u64 = 0xABCD_0000_0000_0007;
    try testing.expect(!admission.asks(0, hash));
    try testing.expect(admission.asks(0, hash));
    admission.pay(0);
    try testing.expect(admission.asks(0, 0x1234_0000_0000_0009));
    try testing.expect(!admission.asks(0, 0x1234_0000_0000_0009));
}

test "a key takes the place of one before" {
    var admission: Admission = .{ .owed = @splat(allowance) };
    const one: u64 = 0x0003_0000_0000_0005;
    const other: u64 = 0x0007_0000_0000_0005;
    try testing.expect(!admission.asks(0, one));
    try testing.expect(!admission.asks(0, other));
    try testing.expect(!admission.asks(0, one));
    try testing.expect(admission.asks(0, one));
}

test "hits pay for no more than was asked for" {
    var admission: Admission = .{};
    for (0..10) |_| admission.pay(0);
    for (0..allowance) |number| try testing.expect(admission.asks(0, number));
    try testing.expect(!admission.asks(0, 1 << 60));
}

test "each pool pays for itself, the common one too" {
    var admission: Admission = .{};
    for (0..allowance) |number| try testing.expect(admission.asks(1, number));
    try testing.expect(!admission.asks(1, 1 << 60));
    try testing.expect(admission.asks(2, 1 << 61));
    try testing.expect(admission.asks(0xFFFF, 1 << 62));
    admission.pay(2);
    try testing.expect(!admission.asks(1, 1 << 59));
    admission.forgive();
    try testing.expect(admission.asks(1, 1 << 58));
}
