//! What is done with texts for each request, most of them short. In WebAssembly the standard library's vectors for that
//! cost some hundred nanoseconds where these take a few: lanes are taken apart one by one.

const std = @import("std");
const little = @import("little.zig");
pub const equal = @import("equal.zig").equal;

fn word(text: []const u8, at: usize) u64 {
    return little.read(u64, text[at..][0..8]);
}

pub fn startsWith(text: []const u8, beginning: []const u8) bool {
    return text.len >= beginning.len and equal(text[0..beginning.len], beginning);
}

/// The first place of `byte` at `from` or behind it.
pub fn find(text: []const u8, byte: u8, from: usize) ?usize {
    const ones: u64 = 0x0101010101010101;
    const pattern = ones * byte;
    var at = from;
    while (at + 8 <= text.len) : (at += 8) {
        const differs = word(text, at) ^ pattern;
        // The lowest of these bits is that of the first byte which does not differ.
        const found = (differs -% ones) & ~differs & (ones << 7);
        if (found != 0) return at + @ctz(found) / 8;
    }
    while (at < text.len) : (at += 1) if (text[at] == byte) return at;
    return null;
}

/// The last place of `byte`.
pub noinline fn findLast(text: []const u8, byte: u8) ?usize {
    var at = text.len;
    while (at > 0) {
        at -= 1;
        if (text[at] == byte) return at;
    }
    return null;
}

/// Without the blanks and tabs around it.
pub noinline fn trim(text: []const u8) []const u8 {
    const rest = trimStart(text);
    var end = rest.len;
    while (end > 0 and isBlank(rest[end - 1])) end -= 1;
    return rest[0..end];
}

/// Without those before it.
pub noinline fn trimStart(text: []const u8) []const u8 {
    var start: usize = 0;
    while (start < text.len and isBlank(text[start])) start += 1;
    return text[start..];
}

fn isBlank(byte: u8) bool {
    return byte == ' ' or byte == '\t';
}

/// What a hexadecimal digit stands for; null for what is none.
pub noinline fn digitOf(byte: u8) ?u8 {
    const digit = byte -% '0';
    if (digit <= 9) return digit;
    const letter = (byte | 0x20) -% 'a';
    return if (letter < 6) letter + 10 else null;
}

pub noinline fn equalIgnoringCase(one: []const u8, other: []const u8) bool {
    if (one.len != other.len) return false;
    for (one, other) |a, b| if (std.ascii.toLower(a) != std.ascii.toLower(b)) return false;
    return true;
}

pub noinline fn among(text: []const u8, list: []const []const u8) bool {
    for (list) |each| if (equal(each, text)) return true;
    return false;
}

/// Copies `from` to `to`, which is as long and does not overlap it.
pub fn copy(to: []u8, from: []const u8) void {
    const size = from.len;
    if (size > 256) return @memcpy(to, from);
    if (size >= 8) {
        var at: usize = 0;
        while (at + 8 < size) : (at += 8) to[at..][0..8].* = from[at..][0..8].*;
        to[size - 8 ..][0..8].* = from[size - 8 ..][0..8].*;
    } else if (size >= 4) {
        to[0..4].* = from[0..4].*;
        to[size - 4 ..][0..4].* = from[size - 4 ..][0..4].*;
    } else if (size > 0) {
        to[0] = from[0];
        to[size / 2] = from[size / 2];
        to[size - 1] = from[size - 1];
    }
}

/// The pieces of `text` between the places of a byte.
pub fn split(text: []const u8, byte: u8) Pieces {
    return .{ .text = text, .byte = byte };
}

pub const Pieces = struct {
    text: []const u8,
    byte: u8,
    at: usize = 0,

    pub fn next(self: *Pieces) ?[]const u8 {
        if (self.at > self.text.len) return null;
        const start = self.at;
        const end = find(self.text, self.byte, start) orelse self.text.len;
        self.at = end + 1;
        return self.text[start..end];
    }
};

test "small things" {
    const testing = std.testing;
    for (0..256) |byte| {
        const expected: ?u8 = std.fmt.charToDigit(@intCast(byte), 16) catch null;
        try testing.expectEqual(expected, digitOf(@intCast(byte)));
    }
    try testing.expectEqual(3, findLast("a:b:c", ':').?);
    try testing.expectEqual(null, findLast("abc", ':'));
    for ([_][]const u8{ "", " ", "a", " a", "a \t", "\t a b " }) |text| {
        try testing.expectEqualStrings(std.mem.trim(u8, text, " \t"), trim(text));
        try testing.expectEqualStrings(std.mem.trimStart(u8, text, " \t"), trimStart(text));
    }
    try testing.expect(equalIgnoringCase("aB1", "Ab1") and !equalIgnoringCase("a", "b") and !equalIgnoringCase("a", "aa"));
    try testing.expect(among("b", &.{ "a", "b" }) and !among("c", &.{ "a", "b" }));
}

test "as the standard library has it" {
    var random: std.Random.DefaultPrng = .init(7);
    var one: [300]u8 = undefined;
    var other: [300]u8 = undefined;
    for (0..one.len) |size| {
        for (one[0..size]) |*byte| byte.* = random.random().uintLessThan(u8, 3) +% 0xFF;
        copy(other[0..size], one[0..size]);
        try std.testing.expectEqualSlices(u8, one[0..size], other[0..size]);
        for ([_]u8{ 0xFF, 0, 1, 0x80, 'x' }) |byte| {
            const from = if (size == 0) 0 else random.random().uintLessThan(usize, size);
            try std.testing.expectEqual(std.mem.findScalarPos(u8, one[0..size], from, byte), find(one[0..size], byte, from));
        }
        var pieces = split(one[0..size], 0);
        var expected = std.mem.splitScalar(u8, one[0..size], 0);
        while (expected.next()) |piece| try std.testing.expectEqualStrings(piece, pieces.next().?);
        try std.testing.expectEqual(null, pieces.next());
    }
}
