//! Comparing bytes. `std.mem.eql` compares vectors, of which Zig 0.17 makes a lane at a time for WebAssembly: 1.5 us for a
//! key of 113 bytes, against 10 ns.

const std = @import("std");
const little = @import("little.zig");

/// Whether both are the same, eight bytes at a time.
pub inline fn equal(a: []const u8, b: []const u8) bool {
    return a.len == b.len and same(a.ptr, b.ptr, a.len);
}

noinline fn same(a: [*]const u8, b: [*]const u8, length: usize) bool {
    if (length < 8) {
        for (a[0..length], b[0..length]) |left, right| {
            if (left != right) return false;
        }
        return true;
    }
    var at: usize = 0;
    while (at < length - 8) : (at += 8) {
        if (word(a + at) != word(b + at)) return false;
    }
    // The last eight, some of them a second time.
    return word(a + length - 8) == word(b + length - 8);
}

inline fn word(from: [*]const u8) u64 {
    return little.read(u64, from[0..8]);
}

test equal {
    var a: [100]u8 = undefined;
    for (&a, 0..) |*byte, at| byte.* = @truncate(at *% 7);
    for (0..a.len) |length| {
        var b = a;
        try std.testing.expect(equal(a[0..length], b[0..length]));
        for (0..length) |at| {
            b[at] +%= 1;
            try std.testing.expect(!equal(a[0..length], b[0..length]));
            b[at] -%= 1;
        }
        try std.testing.expect(!equal(a[0..length], &a));
    }
}
