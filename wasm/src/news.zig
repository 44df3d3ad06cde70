//! What the feed answers to a poll; its form stands in `meshcache.wasm.feed`.

const std = @import("std");
const equal = @import("equal.zig").equal;
const little = @import("little.zig");

const head_bytes = 4 + 2 + 8 + 4;
const everything: u32 = 0xFFFF_FFFF;
pub const max_labels = 4096;

pub const News = struct {
    /// How far the sidecar's log of drops has come with this.
    generation: u64,
    /// Null for everything.
    labels: ?[]const u8,
    /// Empty when the one in force stays.
    plan: []const u8,

    pub fn count(self: *const News) usize {
        return if (self.labels) |bytes| bytes.len / 8 else 0;
    }

    pub fn label(self: *const News, number: usize) u64 {
        return little.read(u64, self.labels.?[8 * number ..][0..8]);
    }
};

/// Null for what is no answer in this format.
pub fn parse(bytes: []const u8) ?News {
    if (bytes.len < head_bytes + 4) return null;
    if (!equal(bytes[0..4], "MCF1") or little.read(u16, bytes[4..6]) != 1) return null;
    const count = little.read(u32, bytes[14..18]);
    var at: usize = head_bytes;
    var labels: ?[]const u8 = null;
    if (count != everything) {
        if (count > max_labels or bytes.len - at < 8 * @as(usize, count) + 4) return null;
        labels = bytes[at..][0 .. 8 * @as(usize, count)];
        at += 8 * @as(usize, count);
    }
    const length = little.read(u32, bytes[at..][0..4]);
    const plan = bytes[at + 4 ..];
    if (plan.len != length) return null;
    return .{ .generation = little.read(u64, bytes[6..14]), .labels = labels, .plan = plan };
}

test "news are read whole or not at all" {
    const testing = std.testing;
    const listed = "MCF1\x01\x00" ++ "\x05\x00\x00\x00\x00\x00\x00\x80" ++ "\x02\x00\x00\x00" ++
        "\x01\x00\x00\x00\x00\x00\x00\x00" ++ "\xff\x00\x00\x00\x00\x00\x00\x00" ++ "\x04\x00\x00\x00plan";
    const news = parse(listed).?;
    try testing.expectEqual(0x8000_0000_0000_0005, news.generation);
    try testing.expectEqual(2, news.count());
    try testing.expectEqual(0xff, news.label(1));
    try testing.expectEqualStrings("plan", news.plan);
    for (0..listed.len) |length| try testing.expectEqual(null, parse(listed[0..length]));
    try testing.expectEqual(null, parse(listed ++ "x"));

    const all = "MCF1\x01\x00" ++ "\x05\x00\x00\x00\x00\x00\x00\x00" ++ "\xff\xff\xff\xff" ++ "\x00\x00\x00\x00";
    try testing.expectEqual(null, parse(all).?.labels);
    try testing.expectEqualStrings("", parse(all).?.plan);
    // Of another format, or with more labels than there are.
    try testing.expectEqual(null, parse("MCF1\x02" ++ all[5..].*));
    try testing.expectEqual(null, parse("MCF2" ++ all[4..].*));
    try testing.expectEqual(null, parse(all[0..14].* ++ "\x00\x00\x00\x01" ++ all[18..].*));
}
