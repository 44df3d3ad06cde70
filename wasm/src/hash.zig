//! The hashes by which units are assigned: BLAKE2b with a key, and XXH3 of what that gives.

const std = @import("std");
const little = @import("little.zig");
const Blake2b = @import("blake2b.zig").Blake2b;

/// BLAKE2b of 16 bytes with a key of 32 bytes, whose block has been taken in already.
pub const Keyed = struct {
    begun: Blake2b,

    pub fn init(key: *const [32]u8) Keyed {
        var begun: Blake2b = .init(16, key);
        // The block of the key is taken in once more bytes come, which here are none.
        begun.update(&.{0});
        begun.waiting = 0;
        return .{ .begun = begun };
    }

    /// Of the parts one behind the other, which are not all empty.
    pub fn digest(self: *const Keyed, parts: []const []const u8) [16]u8 {
        var state = self.begun;
        for (parts) |part| state.update(part);
        var out: [16]u8 = undefined;
        state.final(&out);
        return out;
    }
};

/// XXH3 (64 bits) of 16 bytes.
pub fn xxh3(input: *const [16]u8, seed: u64) u64 {
    // Words 3 to 6 of the algorithm's secret.
    const flip_low: u64 = 0x1f67b3b7a4a44072 ^ 0x78e5c0cc4ee679cb;
    const flip_high: u64 = 0x2172ffcc7dd05a82 ^ 0x8e2443f7744608b8;
    const low = little.read(u64, input[0..8]) ^ (flip_low +% seed);
    const high = little.read(u64, input[8..16]) ^ (flip_high -% seed);
    var mixed = @as(u64, 16) +% @byteSwap(low) +% high +% fold(low, high);
    mixed ^= mixed >> 37;
    mixed *%= 0x165667919E3779F9;
    return mixed ^ mixed >> 32;
}

/// A hash of 64 bits with a seed that nobody knows, of texts that somebody else may choose: as XXH64 takes in what is left
/// over of its long strides. A collision costs a comparison, and there are bounds to how many.
pub fn seeded(seed: u64, bytes: []const u8) u64 {
    var state = seed;
    var left = bytes;
    while (left.len >= 8) : (left = left[8..]) state = taken(state, little.read(u64, left[0..8]));
    var last: u64 = 0;
    for (left) |byte| last = last << 8 | byte;
    state = taken(taken(state, last), bytes.len);
    state = (state ^ state >> 33) *% prime_2;
    state = (state ^ state >> 29) *% 0x165667B19E3779F9;
    return state ^ state >> 32;
}

const prime_1: u64 = 0x9E3779B185EBCA87;
const prime_2: u64 = 0xC2B2AE3D27D4EB4F;

inline fn taken(state: u64, word: u64) u64 {
    const mixed = std.math.rotl(u64, word *% prime_2, 31) *% prime_1;
    return std.math.rotl(u64, state ^ mixed, 27) *% prime_1 +% 0x85EBCA77C2B2AE63;
}

/// Both halves of a product, laid on one another.
fn fold(one: u64, other: u64) u64 {
    const product = @as(u128, one) * other;
    return @as(u64, @truncate(product)) ^ @as(u64, @truncate(product >> 64));
}

test "seeded hashes tell apart what differs in a bit, a length or the seed" {
    const text: [40]u8 = @splat(0);
    var seen: std.AutoHashMapUnmanaged(u64, void) = .empty;
    defer seen.deinit(std.testing.allocator);
    for (0..text.len) |length| {
        for (0..3) |seed| try seen.putNoClobber(std.testing.allocator, seeded(seed, text[0..length]), {});
        for (0..8 * length) |bit| {
            var other = text;
            other[bit / 8] ^= @as(u8, 1) << @intCast(bit % 8);
            try seen.putNoClobber(std.testing.allocator, seeded(0, other[0..length]), {});
        }
    }
}

test "as the standard library has it" {
    const input = "0123456789abcdef";
    for ([_]u64{ 0, 1, 0x9E3779B97F4A7C15, std.math.maxInt(u64) }) |seed| {
        try std.testing.expectEqual(std.hash.XxHash3.hash(seed, input), xxh3(input, seed));
    }
    const key: [32]u8 = @splat(7);
    var expected: [16]u8 = undefined;
    std.crypto.hash.blake2.Blake2b128.hash("unit", &expected, .{ .key = &key });
    const keyed: Keyed = .init(&key);
    try std.testing.expectEqual(expected, keyed.digest(&.{ "un", "it" }));
}
