//! The hashes by which units are assigned: BLAKE2b with a key, and XXH3 of what that gives.

const std = @import("std");
const Blake2b128 = std.crypto.hash.blake2.Blake2b128;

/// BLAKE2b of 16 bytes with a key of 32 bytes, whose block has been taken in already.
pub const Keyed = struct {
    begun: Blake2b128,

    pub fn init(key: *const [32]u8) Keyed {
        var begun: Blake2b128 = .init(.{ .key = key });
        // The block of the key is taken in once more bytes come, which here are none.
        begun.update(&.{0});
        begun.buf_len = 0;
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
    const low = std.mem.readInt(u64, input[0..8], .little) ^ (flip_low +% seed);
    const high = std.mem.readInt(u64, input[8..16], .little) ^ (flip_high -% seed);
    var mixed = @as(u64, 16) +% @byteSwap(low) +% high +% fold(low, high);
    mixed ^= mixed >> 37;
    mixed *%= 0x165667919E3779F9;
    return mixed ^ mixed >> 32;
}

/// Both halves of a product, laid on one another.
fn fold(one: u64, other: u64) u64 {
    const product = @as(u128, one) * other;
    return @as(u64, @truncate(product)) ^ @as(u64, @truncate(product >> 64));
}

test "as the standard library has it" {
    const input = "0123456789abcdef";
    for ([_]u64{ 0, 1, 0x9E3779B97F4A7C15, std.math.maxInt(u64) }) |seed| {
        try std.testing.expectEqual(std.hash.XxHash3.hash(seed, input), xxh3(input, seed));
    }
    const key: [32]u8 = @splat(7);
    var expected: [16]u8 = undefined;
    Blake2b128.hash("unit", &expected, .{ .key = &key });
    const keyed: Keyed = .init(&key);
    try std.testing.expectEqual(expected, keyed.digest(&.{ "un", "it" }));
}
