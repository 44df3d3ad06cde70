//! How stored answers go out, beside what the sidecar would have said: `engine.report`, `rfc.validation`.

const std = @import("std");
const answer = @import("answer.zig");
const fields = @import("fields.zig");
const little = @import("little.zig");
const slots = @import("slots.zig");
const store_file = @import("store.zig");

const testing = std.testing;
const Pair = store_file.Pair;

var room: answer.Room = .{};

/// A store with one answer, born at 1,000,000 ms and fresh for a minute.
const Fixture = struct {
    memory: store_file.Memory,
    store: store_file.Store,
    drops: slots.Slots = .{},

    const born = 1_000_000;

    fn make(stored: []const Pair, etag: ?usize, flags: u16, body: []const u8, status: u16) !*Fixture {
        const self = try testing.allocator.create(Fixture);
        self.* = .{ .memory = try .init(64 << 20), .store = undefined };
        self.store.init(&self.memory, 1);
        self.store.configure(16 << 20, 1 << 20, &.{});
        const handle = try self.store.begin(&.{
            .hash = self.store.hash("key"),
            .material = "key",
            .pool = store_file.common,
            .born = self.drops.now(),
            .stream = 0,
            .times = .{ .birth = born, .fresh_until = born + 60_000, .stale_until = born + 90_000, .drop_at = born + 99_000, .renew_at = 0 },
            .status = status,
            .flags = flags,
            .fields = stored,
            .etag = etag,
        }, born);
        try testing.expect(self.store.append(handle, body));
        try testing.expect(self.store.commit(handle, &self.drops));
        return self;
    }

    fn done(self: *Fixture) void {
        self.memory.deinit();
        testing.allocator.destroy(self);
    }

    fn compose(self: *Fixture, request: *const fields.View, told: answer.Told, after_ms: i64) !answer.Reply {
        const Any = struct {
            pub fn vary(_: @This(), _: []const u8) ?[]const u8 {
                return null;
            }
        };
        const hit = self.store.find(self.store.hash("key"), "key", Any{}, born + after_ms, &self.drops).?;
        return answer.compose(&hit, request, &told, born + after_ms, &room) orelse error.NotGiven;
    }
};

fn expectPairs(expected: []const [2][]const u8, serialised: []const u8) !void {
    try testing.expectEqual(expected.len, little.read(u32, serialised[0..4]));
    var at: usize = 4 + 8 * expected.len;
    for (expected, 0..) |pair, place| {
        const sizes = serialised[4 + 8 * place ..][0..8];
        for (pair, [_]u32{ little.read(u32, sizes[0..4]), little.read(u32, sizes[4..8]) }) |wanted, size| {
            try testing.expectEqualStrings(wanted, serialised[at..][0..size]);
            try testing.expectEqual(0, serialised[at + size]);
            at += size + 1;
        }
    }
    try testing.expectEqual(serialised.len, at);
}

fn asking(view: *fields.View, memory: []u8, value: ?[]const u8) !void {
    var out: fields.Writer = .{ .bytes = memory };
    const name = "if-none-match";
    const sent = value orelse "";
    var size: [4]u8 = undefined;
    for ([_]usize{ if (value == null) 0 else 1, name.len, sent.len }) |number| {
        if (value == null and number != 0) break;
        little.write(u32, &size, @intCast(number));
        try out.put(&size);
    }
    if (value != null) {
        try out.put(name);
        try out.byte(0);
        try out.put(sent);
        try out.byte(0);
    }
    try view.parse(memory[0..out.len]);
}

const plain: []const Pair = &.{
    .{ .name = "content-type", .value = "text/plain" }, .{ .name = "etag", .value = "\"a\"" },
    .{ .name = "last-modified", .value = "then" },      .{ .name = "x-own", .value = "1" },
};

test "what a caller sees of cache-status, by how much he may" {
    const fixture = try Fixture.make(plain, 1, 0, "body", 200);
    defer fixture.done();
    var memory: [256]u8 = undefined;
    var view: fields.View = .{};
    try asking(&view, &memory, null);
    const Case = struct { told: answer.Told, after: i64, age: []const u8, said: ?[]const u8 };
    for ([_]Case{
        .{ .told = .{ .shown = .full, .stale = false, .arm = "", .policy = "p" }, .after = 12_345, .age = "12", .said = "meshcache; hit; ttl=47; detail=\"tier=wasm policy=p\"" },
        .{ .told = .{ .shown = .full, .stale = true, .arm = "b", .policy = "p" }, .after = 60_001, .age = "60", .said = "meshcache; hit; ttl=-1; detail=\"stale-swr tier=wasm arm=b policy=p\"" },
        .{ .told = .{ .shown = .full, .stale = false, .arm = "", .policy = "p" }, .after = -5000, .age = "0", .said = "meshcache; hit; ttl=65; detail=\"tier=wasm policy=p\"" },
        .{ .told = .{ .shown = .standard, .stale = false, .arm = "b", .policy = "p" }, .after = 0, .age = "0", .said = "meshcache; hit; ttl=60" },
        .{ .told = .{ .shown = .minimal, .stale = true, .arm = "b", .policy = "p" }, .after = 70_000, .age = "70", .said = "meshcache; hit" },
        .{ .told = .{ .shown = .off, .stale = false, .arm = "b", .policy = "p" }, .after = 0, .age = "0", .said = null },
    }) |case| {
        const reply = try fixture.compose(&view, case.told, case.after);
        try testing.expectEqual(200, reply.status);
        try testing.expectEqualStrings("body", reply.body);
        var expected: [6][2][]const u8 = undefined;
        for (plain, expected[0..4]) |pair, *each| each.* = .{ pair.name, pair.value };
        expected[4] = .{ "age", case.age };
        if (case.said) |said| expected[5] = .{ "cache-status", said };
        try expectPairs(expected[0..if (case.said == null) 5 else 6], reply.pairs);
    }
}

test "a copy that is current gets 304, with what a 304 has" {
    const fixture = try Fixture.make(plain, 1, 0, "body", 200);
    defer fixture.done();
    var memory: [256]u8 = undefined;
    var view: fields.View = .{};
    const told: answer.Told = .{ .shown = .minimal, .stale = false, .arm = "", .policy = "p" };
    try asking(&view, &memory, "\"b\", W/\"a\"");
    const reply = try fixture.compose(&view, told, 1000);
    try testing.expectEqual(304, reply.status);
    try testing.expectEqualStrings("", reply.body);
    try expectPairs(&.{ .{ "etag", "\"a\"" }, .{ "x-own", "1" }, .{ "age", "1" }, .{ "cache-status", "meshcache; hit" } }, reply.pairs);
    try asking(&view, &memory, "\"b\"");
    try testing.expectEqual(200, (try fixture.compose(&view, told, 1000)).status);
}

test "without a tag a 304 keeps the date, and an error is no 304" {
    const dated = [_]Pair{plain[2]};
    const told: answer.Told = .{ .shown = .off, .stale = false, .arm = "", .policy = "p" };
    var memory: [256]u8 = undefined;
    var view: fields.View = .{};
    try asking(&view, &memory, "*");
    const fixture = try Fixture.make(&dated, null, answer.untyped, "body", 200);
    defer fixture.done();
    try expectPairs(&.{ .{ "last-modified", "then" }, .{ "age", "0" } }, (try fixture.compose(&view, told, 0)).pairs);
    const gone = try Fixture.make(&dated, null, 0, "body", 404);
    defer gone.done();
    try testing.expectEqual(404, (try gone.compose(&view, told, 0)).status);
}

test "an answer without a type has an empty one, lest it become text" {
    const told: answer.Told = .{ .shown = .off, .stale = false, .arm = "", .policy = "p" };
    var memory: [256]u8 = undefined;
    var view: fields.View = .{};
    try asking(&view, &memory, null);
    const typed = try Fixture.make(&.{}, null, answer.untyped, "body", 200);
    defer typed.done();
    try expectPairs(&.{ .{ "age", "0" }, .{ "content-type", "" } }, (try typed.compose(&view, told, 0)).pairs);
    const empty = try Fixture.make(&.{}, null, answer.untyped, "", 204);
    defer empty.done();
    try expectPairs(&.{.{ "age", "0" }}, (try empty.compose(&view, told, 0)).pairs);
}

test "what has no body is not given where Envoy would take its type or its length" {
    const told: answer.Told = .{ .shown = .off, .stale = false, .arm = "", .policy = "p" };
    const typed = [_]Pair{.{ .name = "content-type", .value = "text/javascript" }};
    const Case = struct { fields: []const Pair, flags: u16 = 0, body: []const u8 = "", status: u16 = 200, head: bool = false, given: bool };
    for ([_]Case{
        .{ .fields = &typed, .given = false },
        .{ .fields = &typed, .status = 301, .given = false },
        .{ .fields = &typed, .body = "body", .given = true },
        .{ .fields = &typed, .body = "body", .head = true, .given = true },
        .{ .fields = &typed, .status = 204, .given = true },
        .{ .fields = &.{}, .flags = answer.untyped, .given = true },
        .{ .fields = &.{}, .flags = answer.untyped, .head = true, .given = false },
        .{ .fields = &.{}, .flags = answer.untyped, .status = 204, .head = true, .given = true },
    }) |case| {
        var memory: [256]u8 = undefined;
        var view: fields.View = .{};
        try asking(&view, &memory, null);
        view.method = if (case.head) "HEAD" else "GET";
        const fixture = try Fixture.make(case.fields, null, case.flags, case.body, case.status);
        defer fixture.done();
        const reply = fixture.compose(&view, told, 0);
        if (case.given) _ = try reply else try testing.expectError(error.NotGiven, reply);
    }
}
