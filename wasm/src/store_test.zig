const std = @import("std");
const store_file = @import("store.zig");
const slots_file = @import("slots.zig");
const Store = store_file.Store;

const long = blk: {
    var text: []const u8 = "";
    for (0..200) |_| text = text ++ "hello ";
    break :blk text;
};

test "an answer comes back as it was" {
    var memory = try store_file.Memory.init(8 << 20);
    defer memory.deinit();
    const store = try std.testing.allocator.create(Store);
    defer std.testing.allocator.destroy(store);
    var drops = try std.testing.allocator.create(slots_file.Slots);
    defer std.testing.allocator.destroy(drops);
    drops.* = .{};
    store.init(&memory, 1);
    store.configure(4 << 20, 64 << 10, &.{});
    const hash = store.hash("key");
    const handle = try store.begin(&.{
        .hash = hash,
        .material = "key",
        .pool = store_file.common,
        .born = drops.now(),
        .times = .{ .birth = 1, .fresh_until = 100, .stale_until = 200, .drop_at = 300, .renew_at = 0 },
        .status = 200,
        .flags = 0,
        .fields = &.{ .{ .name = "etag", .value = "\"a\"" }, .{ .name = "x", .value = "" } },
        .etag = 0,
        .vary = &.{.{ .name = "accept", .value = null }},
        .labels = &.{ 7, 8 },
    }, 5);
    try std.testing.expect(store.append(handle, long));
    try std.testing.expect(store.append(handle, "world"));
    try std.testing.expect(store.commit(handle, drops));
    const Request = struct {
        accept: ?[]const u8,
        pub fn vary(self: @This(), name: []const u8) ?[]const u8 {
            std.debug.assert(std.mem.eql(u8, name, "accept"));
            return self.accept;
        }
    };
    const hit = store.find(hash, "key", Request{ .accept = null }, 10, drops).?;
    try std.testing.expectEqualStrings(long ++ "world", hit.body());
    var sizes: [16]u8 = undefined;
    var text: [64]u8 = undefined;
    hit.copyFields(&sizes, &text);
    try std.testing.expectEqualStrings("etag\x00\"a\"\x00x\x00\x00", text[0..hit.textLength()]);
    try std.testing.expectEqualStrings("\"a\"", hit.etag(&text).?);
    try std.testing.expect(store.find(hash, "key", Request{ .accept = "x" }, 10, drops) == null);
    drops.drop(7);
    try std.testing.expect(store.find(hash, "key", Request{ .accept = null }, 10, drops) == null);
    try std.testing.expectEqual(0, store.stats().entries);
    try std.testing.expectEqual(0, store.stats().bytes);
}
