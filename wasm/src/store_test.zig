//! The store, rule by rule; store_random_test.zig tries them together.

const std = @import("std");
const check = @import("store_check.zig").check;
const entry_file = @import("entry.zig");
const fills = @import("fills.zig");
const slots = @import("slots.zig");
const store_file = @import("store.zig");

const Store = store_file.Store;
const Varied = store_file.Varied;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;
const expectError = std.testing.expectError;

const mib = 1 << 20;
const text: [256 * 1024]u8 = @splat('x');

const Request = struct {
    accept: ?[]const u8 = null,

    pub fn vary(self: Request, name: []const u8) ?[]const u8 {
        return if (std.mem.eql(u8, name, "accept")) self.accept else null;
    }
};

const Given = struct {
    key: []const u8,
    hash: ?u64 = null,
    body: []const u8 = "body",
    length: ?u64 = null,
    pool: u16 = store_file.common,
    vary: []const Varied = &.{},
    labels: []const u64 = &.{},
    drop_at: i64 = 1_000_000,
    stream: u32 = 0,
    birth: i64 = 0,
};

/// A store, its memory, and a clock to set.
const Fixture = struct {
    memory: store_file.Memory,
    store: Store,
    drops: slots.Slots = .{},
    now: i64 = 1000,

    fn make(budget: u64, shares: []const store_file.Share) !*Fixture {
        const fixture = try std.testing.allocator.create(Fixture);
        fixture.* = .{ .memory = try .init(256 * mib), .store = undefined };
        fixture.store.init(&fixture.memory, 1);
        fixture.store.configure(budget, mib, shares);
        return fixture;
    }

    fn done(self: *Fixture) void {
        check(&self.store) catch @panic("the store is broken");
        self.memory.deinit();
        std.testing.allocator.destroy(self);
    }

    fn begin(self: *Fixture, given: Given) !store_file.Handle {
        return self.store.begin(&.{
            .hash = given.hash orelse self.store.hash(given.key),
            .material = given.key,
            .pool = given.pool,
            .born = self.drops.now(),
            .stream = given.stream,
            .times = .{ .birth = given.birth, .fresh_until = 0, .stale_until = 0, .drop_at = given.drop_at, .renew_at = 0 },
            .status = 200,
            .flags = 0,
            .fields = &.{ .{ .name = "x-empty", .value = "" }, .{ .name = "etag", .value = "\"a\"" } },
            .etag = 1,
            .vary = given.vary,
            .labels = given.labels,
            .length = given.length,
        }, self.now);
    }

    fn put(self: *Fixture, given: Given) !void {
        const handle = try self.begin(given);
        try expect(self.store.append(handle, given.body));
        try expect(self.store.commit(handle, &self.drops));
    }

    fn find(self: *Fixture, key: []const u8) ?store_file.Hit {
        return self.store.find(self.store.hash(key), key, Request{}, self.now, &self.drops);
    }
};

fn numbered(buffer: *[16]u8, number: usize) []const u8 {
    return std.fmt.bufPrint(buffer, "key {d}", .{number}) catch unreachable;
}

test "an answer comes back as it was" {
    const fixture = try Fixture.make(4 * mib, &.{});
    defer fixture.done();
    const handle = try fixture.begin(.{ .key = "key" });
    try expect(fixture.store.append(handle, "hello "));
    try expect(fixture.store.append(handle, ""));
    try expect(fixture.store.append(handle, text[0..3000]));
    try expect(fixture.find("key") == null);
    try expect(fixture.store.commit(handle, &fixture.drops));

    const hit = fixture.find("key").?;
    try expectEqual(200, hit.entry.status);
    try expectEqual(2, hit.entry.fields);
    var sizes: [16]u8 = undefined;
    var fields: [64]u8 = undefined;
    hit.copyFields(&sizes, &fields);
    try std.testing.expectEqualSlices(u8, &.{ 7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0 }, &sizes);
    try std.testing.expectEqualStrings("x-empty\x00\x00etag\x00\"a\"\x00", fields[0..hit.textLength()]);
    try std.testing.expectEqualStrings("\"a\"", hit.etag(&fields).?);
    try std.testing.expectEqualStrings("hello ", hit.body()[0..6]);
    try std.testing.expectEqualStrings(text[0..3000], hit.body()[6..]);
    try expectEqual(1, hit.entry.uses);
    try expect(fixture.find("keY") == null);
    try expect(fixture.find("ke") == null);
    // What is over is over.
    try expect(!fixture.store.append(handle, "more"));
    try expect(!fixture.store.commit(handle, &fixture.drops));
    fixture.store.abort(handle);
}

test "every length at the borders of blocks" {
    const fixture = try Fixture.make(4 * mib, &.{});
    defer fixture.done();
    for (0..1600) |length| {
        try fixture.put(.{ .key = text[0 .. 1 + length % 700], .body = text[0..length], .length = length });
        const hit = fixture.find(text[0 .. 1 + length % 700]).?;
        try std.testing.expectEqualStrings(text[0..length], hit.body());
    }
}

test "what has been dropped or is past its time is not found" {
    const fixture = try Fixture.make(4 * mib, &.{});
    defer fixture.done();
    try fixture.put(.{ .key = "a", .labels = &.{ 7, 8 } });
    try fixture.put(.{ .key = "b", .labels = &.{9} });
    const before = try fixture.begin(.{ .key = "c", .labels = &.{7} });
    fixture.drops.drop(7);
    try expect(fixture.find("a") == null);
    try expect(fixture.find("b") != null);
    // A fill whose request began before the drop is not kept, one that began after it is.
    try expect(!fixture.store.commit(before, &fixture.drops));
    try fixture.put(.{ .key = "c", .labels = &.{7}, .drop_at = 2000 });
    fixture.now = 1999;
    try expect(fixture.find("c") != null);
    fixture.now = 2000;
    try expect(fixture.find("c") == null);
    fixture.drops.dropAll();
    try expect(fixture.find("b") == null);
    try expectEqual(0, fixture.store.stats().entries);
    try expectEqual(0, fixture.store.stats().bytes);
}

test "a body that is not what was announced is not kept" {
    const fixture = try Fixture.make(4 * mib, &.{});
    defer fixture.done();
    const short = try fixture.begin(.{ .key = "a", .length = 5 });
    try expect(fixture.store.append(short, "1234"));
    try expect(!fixture.store.commit(short, &fixture.drops));
    const long = try fixture.begin(.{ .key = "a", .length = 5 });
    try expect(!fixture.store.append(long, "123456"));
    try expect(!fixture.store.commit(long, &fixture.drops));
    try expect(fixture.find("a") == null);
}

test "what is too large or too much is refused" {
    const fixture = try Fixture.make(4 * mib, &.{.{ .id = 5, .bytes = 100 << 10 }});
    defer fixture.done();
    fixture.store.configure(4 * mib, 128 << 10, &.{.{ .id = 5, .bytes = 100 << 10 }});
    try expectError(error.TooLarge, fixture.begin(.{ .key = "a", .length = (128 << 10) + 1 }));
    try expectError(error.TooLarge, fixture.begin(.{ .key = "a", .length = std.math.maxInt(u64) }));
    try expectError(error.TooLarge, fixture.begin(.{ .key = "a", .pool = 0, .length = 100 << 10 }));
    try expectError(error.TooLarge, fixture.begin(.{ .key = "a", .pool = 1 }));
    try expectError(error.TooLarge, fixture.begin(.{ .key = text[0 .. entry_file.max_material + 1] }));
    try expectError(error.TooMuch, fixture.begin(.{ .key = "a", .labels = &@as([33]u64, @splat(1)) }));
    const eight: [8]Varied = @splat(.{ .name = "accept", .value = text[0..8192] });
    try expectError(error.TooLarge, fixture.begin(.{ .key = "a", .vary = &eight }));
    try expectError(error.TooLarge, fixture.begin(.{ .key = "a", .vary = &.{.{ .name = text[0..65], .value = null }} }));
    const nine: [9]Varied = @splat(.{ .name = "accept", .value = null });
    try expectError(error.TooMuch, fixture.begin(.{ .key = "a", .vary = &nine }));
    // A length that was not announced is found out as it comes.
    const handle = try fixture.begin(.{ .key = "a", .pool = 0 });
    try expect(!fixture.store.append(handle, text[0 .. 120 << 10]));
    try expectEqual(0, fixture.store.stats().bytes);
    try fixture.put(.{ .key = "a", .pool = 0, .body = text[0 .. 90 << 10] });
    try fixture.put(.{ .key = "b", .body = text[0 .. 128 << 10], .labels = &@as([32]u64, @splat(1)) });
    try expectEqual(128 << 10, fixture.find("b").?.body().len);
}

test "one fill for a key, unless nothing comes any more" {
    const fixture = try Fixture.make(4 * mib, &.{});
    defer fixture.done();
    const vary: []const Varied = &.{.{ .name = "accept", .value = "a" }};
    const first = try fixture.begin(.{ .key = "a", .vary = vary });
    try expectError(error.Same, fixture.begin(.{ .key = "a", .vary = vary }));
    const other = try fixture.begin(.{ .key = "a", .vary = &.{.{ .name = "accept", .value = "b" }} });
    fixture.now += fills.idle_ms;
    const second = try fixture.begin(.{ .key = "a", .vary = vary });
    try expect(!fixture.store.append(first, "late"));
    try expect(!fixture.store.commit(first, &fixture.drops));
    try expect(fixture.store.commit(second, &fixture.drops));
    fixture.store.abort(other);
    try expectEqual(1, fixture.store.stats().entries);
}

test "of two answers the newer one stays, whichever ends first" {
    const fixture = try Fixture.make(4 * mib, &.{});
    defer fixture.done();
    const last = std.math.maxInt(u32);
    const vary: []const Varied = &.{.{ .name = "accept", .value = null }};
    const Case = struct { older: Given, newer: Given, stays: bool = true };
    for ([_]Case{
        .{ .older = .{ .key = "a", .stream = 1 }, .newer = .{ .key = "a", .stream = 2, .birth = 5 } },
        .{ .older = .{ .key = "b", .stream = last }, .newer = .{ .key = "b", .stream = 0 } },
        .{ .older = .{ .key = "c", .stream = 1, .vary = vary }, .newer = .{ .key = "c", .stream = 2 } },
        .{ .older = .{ .key = "d", .stream = 1, .vary = vary }, .newer = .{ .key = "d", .stream = 2, .vary = vary } },
        // By its birth it is the newer one.
        .{ .older = .{ .key = "e", .stream = 1, .birth = 6 }, .newer = .{ .key = "e", .stream = 2, .birth = 5 }, .stays = false },
        // For other requests.
        .{ .older = .{ .key = "f", .stream = 1 }, .newer = .{ .key = "f2", .hash = 7, .stream = 2 }, .stays = false },
    }) |case| {
        const late = try fixture.begin(case.older);
        // The one that came first gives way to one with the same key, and is kept where that is for other requests.
        if (fixture.begin(case.newer)) |handle| {
            try expect(fixture.store.append(handle, "newer"));
            try expect(fixture.store.commit(handle, &fixture.drops));
        } else |refusal| try expectEqual(error.Same, refusal);
        const kept = fixture.store.append(late, "older") and fixture.store.commit(late, &fixture.drops);
        try expectEqual(!case.stays, kept);
        const found = fixture.find(case.older.key).?;
        try std.testing.expectEqualStrings(if (case.stays) "newer" else "older", found.body());
    }
    // It had come whole before the head of the older one.
    try fixture.put(.{ .key = "g", .stream = 2 });
    const late = try fixture.begin(.{ .key = "g", .stream = 1 });
    try expect(!fixture.store.commit(late, &fixture.drops));
    try fixture.put(.{ .key = "g", .stream = 3 });
}

test "so many fills at once, and so much of a pool" {
    const fixture = try Fixture.make(4 * mib, &.{.{ .id = 1, .bytes = 256 << 10 }});
    defer fixture.done();
    var buffer: [16]u8 = undefined;
    for (0..fills.max_fills) |number| _ = try fixture.begin(.{ .key = numbered(&buffer, number) });
    try expectError(error.Busy, fixture.begin(.{ .key = "one more" }));
    // The clock goes back: what is touched in the future must not hold its place for ever.
    fixture.now -= 1;
    for (0..fills.max_fills) |number| {
        const handle = try fixture.begin(.{ .key = numbered(&buffer, fills.max_fills + number) });
        fixture.store.abort(handle);
    }
    // Half of a pool is for fills, unless there is only one.
    const large = try fixture.begin(.{ .key = "large", .pool = 0, .length = 200 << 10 });
    try expect(fixture.store.append(large, text[0 .. 200 << 10]));
    try expectError(error.Busy, fixture.begin(.{ .key = "small", .pool = 0 }));
    try expect(fixture.store.commit(large, &fixture.drops));
    const one = try fixture.begin(.{ .key = "one", .pool = 0 });
    const two = try fixture.begin(.{ .key = "two", .pool = 0 });
    try expect(fixture.store.append(one, text[0 .. 100 << 10]));
    try expect(!fixture.store.append(two, text[0 .. 100 << 10]));
    try expect(fixture.store.commit(one, &fixture.drops));
}

test "no pool pushes out what is another's" {
    const shares: []const store_file.Share = &.{ .{ .id = 11, .bytes = mib }, .{ .id = 12, .bytes = mib } };
    const fixture = try Fixture.make(4 * mib, shares);
    defer fixture.done();
    var buffer: [16]u8 = undefined;
    for (0..300) |number| try fixture.put(.{ .key = numbered(&buffer, number), .pool = 1, .body = text[0..1000] });
    for (300..20_000) |number| {
        try fixture.put(.{ .key = numbered(&buffer, number), .pool = if (number % 2 == 0) 0 else store_file.common, .body = text[0..1000] });
    }
    for (0..300) |number| try expect(fixture.find(numbered(&buffer, number)) != null);
    try expect(fixture.store.stats().evictions > 10_000);
    try expect(fixture.memory.size() <= 4 * mib);
    // A pool that is not named any more is given up, whatever number another one has now.
    fixture.store.configure(4 * mib, mib, shares[0..1]);
    try expect(fixture.find(numbered(&buffer, 5)) == null);
    try expectError(error.TooLarge, fixture.begin(.{ .key = "a", .pool = 1 }));
    fixture.store.tend(fixture.now, 10_000);
    for (0..300) |number| try expect(fixture.find(numbered(&buffer, number)) == null);
    try expect(fixture.find(numbered(&buffer, 19_998)) != null);
}

test "a budget that gets smaller while something arrives" {
    const fixture = try Fixture.make(8 * mib, &.{.{ .id = 9, .bytes = mib }});
    defer fixture.done();
    var buffer: [16]u8 = undefined;
    for (0..5000) |number| try fixture.put(.{ .key = numbered(&buffer, number), .body = text[0..1000] });
    const arriving = try fixture.begin(.{ .key = "a" });
    const given_up = try fixture.begin(.{ .key = "b", .pool = 0 });
    try expect(fixture.store.append(arriving, text[0 .. 10 << 10]));
    fixture.store.configure(mib, mib, &.{});
    try expect(!fixture.store.commit(given_up, &fixture.drops));
    // In steps: not all that is too much goes for one answer.
    try expect(!fixture.store.commit(arriving, &fixture.drops));
    for (0..1000) |_| fixture.store.tend(fixture.now, 100);
    try expect(fixture.store.stats().bytes <= mib);
    try expect(fixture.store.stats().entries > 300);
    try fixture.put(.{ .key = "a" });
    fixture.store.configure(0, 0, &.{});
    try expectError(error.Disabled, fixture.begin(.{ .key = "c" }));
    fixture.store.configure(8 * mib, mib, &.{});
    for (0..5000) |number| try fixture.put(.{ .key = numbered(&buffer, number), .body = text[0..1000] });
    try expect(fixture.store.stats().entries > 4000);
    try expect(fixture.memory.size() <= 8 * mib);
}

test "a budget that gets larger loses nothing, in however small steps buckets move" {
    const fixture = try Fixture.make(8 * mib, &.{});
    defer fixture.done();
    var buffer: [16]u8 = undefined;
    for (0..4000) |number| try fixture.put(.{ .key = numbered(&buffer, number) });
    fixture.store.configure(128 * mib, mib, &.{});
    try expect(fixture.store.index.moving());
    for (0..4000) |number| {
        try expect(fixture.find(numbered(&buffer, number)) != null);
        try fixture.put(.{ .key = numbered(&buffer, 4000 + number) });
    }
    while (fixture.store.index.moving()) fixture.store.tend(fixture.now, 7);
    for (0..8000) |number| try expect(fixture.find(numbered(&buffer, number)) != null);
}

test "keys that collide are told apart, and do not make a look-up long" {
    const fixture = try Fixture.make(8 * mib, &.{});
    defer fixture.done();
    var buffer: [16]u8 = undefined;
    for (0..2000) |number| try fixture.put(.{ .key = numbered(&buffer, number), .hash = 77, .body = numbered(&buffer, number) });
    var found: usize = 0;
    for (0..2000) |number| {
        const key = numbered(&buffer, number);
        const hit = fixture.store.find(77, key, Request{}, fixture.now, &fixture.drops) orelse continue;
        try std.testing.expectEqualStrings(key, hit.body());
        found += 1;
    }
    try expectEqual(found, fixture.store.stats().entries);
    try expect(found > 10 and found <= 64);
}

test "four variants of a key, the newest of each" {
    const fixture = try Fixture.make(4 * mib, &.{});
    defer fixture.done();
    const hash = fixture.store.hash("a");
    for ([_][]const u8{ "1", "2", "3", "4", "5" }) |value| {
        try fixture.put(.{ .key = "a", .vary = &.{.{ .name = "accept", .value = value }}, .body = value });
    }
    try expectEqual(4, fixture.store.stats().entries);
    try expect(fixture.store.find(hash, "a", Request{ .accept = "1" }, 0, &fixture.drops) == null);
    try expect(fixture.store.find(hash, "a", Request{}, 0, &fixture.drops) == null);
    try fixture.put(.{ .key = "a", .vary = &.{.{ .name = "accept", .value = "2" }}, .body = "again" });
    try expectEqual(4, fixture.store.stats().entries);
    const hit = fixture.store.find(hash, "a", Request{ .accept = "2" }, 0, &fixture.drops).?;
    try std.testing.expectEqualStrings("again", hit.body());
    // An absent field is not an empty one.
    try fixture.put(.{ .key = "a", .vary = &.{.{ .name = "accept", .value = null }}, .body = "absent" });
    try expect(fixture.find("a") != null);
    try expect(fixture.store.find(hash, "a", Request{ .accept = "" }, 0, &fixture.drops) == null);
    // The origin varies on something else from now on.
    try fixture.put(.{ .key = "a", .body = "for all" });
    try expectEqual(1, fixture.store.stats().entries);
    try std.testing.expectEqualStrings("for all", fixture.store.find(hash, "a", Request{ .accept = "2" }, 0, &fixture.drops).?.body());
}

test "a scan leaves what is used where it is" {
    const fixture = try Fixture.make(2 * mib, &.{});
    defer fixture.done();
    var buffer: [16]u8 = undefined;
    for (0..500) |number| try fixture.put(.{ .key = numbered(&buffer, number), .body = text[0..500] });
    for (0..3) |_| {
        for (0..500) |number| try expect(fixture.find(numbered(&buffer, number)) != null);
    }
    for (1000..50_000) |number| try fixture.put(.{ .key = numbered(&buffer, number), .body = text[0..500] });
    var left: usize = 0;
    for (0..500) |number| left += @intFromBool(fixture.find(numbered(&buffer, number)) != null);
    try expect(left > 450);
}

test "one request a second is handed on" {
    const fixture = try Fixture.make(2 * mib, &.{});
    defer fixture.done();
    try fixture.put(.{ .key = "a" });
    const hit = fixture.find("a").?;
    try expect(hit.handOn(5000));
    try expect(!hit.handOn(5000));
    try expect(!hit.handOn(5999));
    try expect(hit.handOn(6000));
    // A clock that goes back does not stop it until it is there again.
    try expect(hit.handOn(100));
    try expect(!hit.handOn(200));
    try expect(hit.handOn(7000));
    fixture.store.handOnAgain(fixture.store.hash("b"));
    try expect(!hit.handOn(7001));
    fixture.store.handOnAgain(fixture.store.hash("a"));
    try expect(hit.handOn(7002));
    try expect(!hit.handOn(7003));
}

test "as small and as large as a budget can be" {
    for ([_]u64{ 0, 1, 1 << 16, 1 << 18, 300 << 10, mib, 1 << 30, 1 << 40, std.math.maxInt(u64) }) |budget| {
        const fixture = try Fixture.make(budget, &.{.{ .id = 3, .bytes = std.math.maxInt(u64) }});
        defer fixture.done();
        var buffer: [16]u8 = undefined;
        for (0..3000) |number| {
            fixture.put(.{ .key = numbered(&buffer, number), .pool = 0, .body = text[0..1000] }) catch |refusal| {
                try expectEqual(error.Disabled, refusal);
            };
        }
        try expect(fixture.memory.size() <= budget);
        if (budget >= mib) try expect(fixture.store.stats().entries > 300);
    }
}
