//! The store against a model of what was put in, over random histories: it may forget, and never tells anything else.

const std = @import("std");
const check = @import("store_check.zig").check;
const slots_file = @import("slots.zig");
const store_file = @import("store.zig");

const Slots = slots_file.Slots;
const Store = store_file.Store;
const testing = std.testing;

const key_count = 120;
const names = [_][]const []const u8{ &.{}, &.{"accept"}, &.{ "accept", "x-a-rather-long-name-of-a-field-that-nearly-fills-what-is-allowed" } };
const values = [_]?[]const u8{ null, "", "text/html", "text/plain;q=0.5" };
/// Longer than any piece of a body.
const pattern = blk: {
    @setEvalBranchQuota(100_000);
    var bytes: [period + 4096]u8 = undefined;
    for (&bytes, 0..) |*byte, at| byte.* = @truncate(at % period *% 31 +% (at % period >> 3));
    break :blk bytes;
};
const period = 2039;

/// Bytes of the body of this version from `at` on, the more the better.
fn content(version: u32, at: usize) []const u8 {
    return pattern[(version *% 97 + at) % period ..];
}

/// What a request has in its fields.
const Request = struct {
    value: u8,

    pub fn vary(self: Request, name: []const u8) ?[]const u8 {
        if (name.len > 6) return "one";
        return values[self.value];
    }
};

/// What was last kept for a request.
const Kept = struct { version: u32, length: usize, named: usize, born: slots_file.Born, label: u64, drop_at: i64 };

const Arriving = struct { handle: store_file.Handle, key: usize, value: u8, kept: Kept, sent: usize };

const History = struct {
    store: *Store,
    drops: *Slots,
    random: std.Random,
    /// By key and the value of `accept`; null when there is none, or another one answers these requests.
    model: *[key_count][values.len]?Kept,
    arriving: std.ArrayList(Arriving) = .empty,
    version: u32 = 0,
    now: i64 = 1_000_000,
    hits: usize = 0,
    budget: usize = 0,
    highest: usize = 0,
    largest: usize = 1,

    fn key(self: *History, number: usize, buffer: *[900]u8) []const u8 {
        _ = self;
        // Some keys reach over several blocks.
        const length = 8 + number * 7 % 40 + if (number % 10 == 0) @as(usize, 800) else 0;
        for (buffer[0..length], 0..) |*byte, at| byte.* = 'a' + @as(u8, @intCast((number + at) % 23));
        std.mem.writeInt(u32, buffer[length - 4 ..][0..4], @intCast(number), .little);
        return buffer[0..length];
    }

    fn find(self: *History) !void {
        const number = self.random.uintLessThan(usize, key_count);
        const request: Request = .{ .value = self.random.uintLessThan(u8, values.len) };
        var buffer: [900]u8 = undefined;
        const material = self.key(number, &buffer);
        const hit = self.store.find(self.store.hash(material), material, request, self.now, self.drops) orelse return;
        const kept = self.model[number][request.value] orelse return error.FoundWhatIsNotThere;
        try testing.expectEqual(kept.version, @as(u32, @intCast(hit.entry.times.birth)));
        try testing.expect(kept.drop_at > self.now);
        try testing.expect(self.drops.alive(kept.born, &.{slots_file.slotOf(kept.label)}));
        const body = hit.body();
        try testing.expectEqual(kept.length, body.len);
        var at: usize = 0;
        while (at < body.len) {
            const part = content(kept.version, at);
            const count = @min(body.len - at, part.len);
            try testing.expectEqualStrings(part[0..count], body[at..][0..count]);
            at += count;
        }
        var sizes: [16]u8 = undefined;
        var text: [1024]u8 = undefined;
        hit.copyFields(&sizes, &text);
        try testing.expectEqual(4, std.mem.readInt(u32, sizes[0..4], .little));
        try testing.expectEqualStrings("\"t\"", hit.etag(&text).?);
        self.hits += 1;
    }

    fn begin(self: *History) !void {
        const number = self.random.uintLessThan(usize, key_count);
        const value = self.random.uintLessThan(u8, values.len);
        const named = if (self.random.uintLessThan(u8, 50) == 0) self.random.uintLessThan(usize, names.len) else 1 + number % 2;
        const length = switch (self.random.uintLessThan(u8, 8)) {
            0 => 0,
            1 => self.random.uintLessThan(usize, 2 * self.largest),
            2 => 508 * self.random.uintLessThan(usize, 4) + self.random.uintLessThan(usize, 3),
            else => self.random.uintLessThan(usize, 4000),
        };
        self.version += 1;
        const label = 1 + self.random.uintLessThan(u64, 1000);
        var buffer: [900]u8 = undefined;
        const material = self.key(number, &buffer);
        var vary: [2]store_file.Varied = undefined;
        const request: Request = .{ .value = value };
        for (names[named], 0..) |name, at| vary[at] = .{ .name = name, .value = request.vary(name) };
        const drop_at = self.now + self.random.uintLessThan(u16, 20_000);
        const handle = self.store.begin(&.{
            .hash = self.store.hash(material),
            .material = material,
            .pool = if (self.random.uintLessThan(u8, 20) == 0) store_file.common else @intCast(number % 5),
            .born = self.drops.now(),
            .stream = self.version,
            .times = .{ .birth = self.version, .fresh_until = 0, .stale_until = 0, .drop_at = drop_at, .renew_at = 0 },
            .status = 200,
            .flags = 0,
            .fields = &.{ .{ .name = "etag", .value = "\"t\"" }, .{ .name = "x-long", .value = pattern[0 .. number % 700] } },
            .etag = 0,
            .vary = vary[0..names[named].len],
            .labels = &.{label},
            .length = if (self.random.boolean()) length else null,
        }, self.now) catch return;
        try self.arriving.append(testing.allocator, .{ .handle = handle, .key = number, .value = value, .sent = 0, .kept = .{
            .version = self.version,
            .length = length,
            .named = named,
            .born = self.drops.now(),
            .label = label,
            .drop_at = drop_at,
        } });
    }

    fn go(self: *History) !void {
        if (self.arriving.items.len == 0) return;
        const at = self.random.uintLessThan(usize, self.arriving.items.len);
        const fill = &self.arriving.items[at];
        const left = fill.kept.length - fill.sent;
        if (left > 0) {
            const part = content(fill.kept.version, fill.sent);
            const count = @min(left, 1 + self.random.uintLessThan(usize, part.len));
            if (self.store.append(fill.handle, part[0..count])) {
                fill.sent += count;
                return;
            }
        } else if (self.random.uintLessThan(u8, 10) > 0) {
            const newer = self.isHeldNewer(fill);
            if (self.store.commit(fill.handle, self.drops)) {
                try testing.expect(!newer);
                self.keep(fill);
            }
        } else self.store.abort(fill.handle);
        _ = self.arriving.swapRemove(at);
    }

    /// Whether what answers the request of `fill` was asked for after it.
    fn isHeldNewer(self: *History, fill: *const Arriving) bool {
        var buffer: [900]u8 = undefined;
        const material = self.key(fill.key, &buffer);
        const request: Request = .{ .value = fill.value };
        const hit = self.store.find(self.store.hash(material), material, request, self.now, self.drops) orelse return false;
        return hit.entry.times.birth > fill.kept.version;
    }

    fn keep(self: *History, fill: *const Arriving) void {
        const all = &self.model[fill.key];
        for (all) |*other| {
            if (other.* != null and other.*.?.named != fill.kept.named) other.* = null;
        }
        if (fill.kept.named == 0) all.* = @splat(fill.kept) else all[fill.value] = fill.kept;
    }

    fn configure(self: *History) void {
        self.budget = switch (self.random.uintLessThan(u8, 6)) {
            0 => 1 << 20,
            1 => if (self.random.boolean()) 0 else 64 << 20,
            2 => 300 << 10,
            else => self.random.uintLessThan(usize, 8 << 20),
        };
        self.highest = @max(self.highest, self.budget);
        var shares: [6]store_file.Share = undefined;
        const count = self.random.uintLessThan(usize, shares.len + 1);
        for (shares[0..count], 0..) |*share, number| share.* = .{
            .id = if (number == 0) 0 else self.random.uintLessThan(u64, 9),
            .bytes = self.random.uintLessThan(u64, self.budget / 3 + 1),
        };
        self.largest = 1 + self.random.uintLessThan(usize, 200_000);
        self.store.configure(self.budget, self.largest, shares[0..count]);
    }

    fn run(self: *History, steps: usize) !void {
        for (0..steps) |number| {
            switch (self.random.uintLessThan(u16, 1000)) {
                0...299 => try self.find(),
                300...449 => try self.begin(),
                450...984 => try self.go(),
                985...994 => self.drops.drop(1 + self.random.uintLessThan(u64, 1000)),
                995 => if (self.random.uintLessThan(u8, 20) == 0) self.drops.dropAll(),
                996 => self.store.tend(self.now, 20),
                997...998 => self.now += self.random.uintLessThan(u16, 100),
                else => if (self.random.uintLessThan(u8, 10) == 0) {
                    // Also backwards.
                    self.now -= self.random.uintLessThan(u16, 500);
                } else if (self.random.uintLessThan(u8, 10) == 0) self.configure(),
            }
            if (number % 500 == 0) {
                try check(self.store);
                try testing.expect(self.store.memory.size() <= self.highest);
            }
        }
        try check(self.store);
        for (0..1000) |_| self.store.tend(self.now, 100);
        try check(self.store);
        for (&self.store.pools) |*pool| try testing.expect(pool.used - pool.filling <= pool.limit);
    }
};

/// One history; the same for the same seed.
pub fn history(seed: u64, steps: usize) !usize {
    var prng: std.Random.DefaultPrng = .init(seed);
    var memory = try store_file.Memory.init(128 << 20);
    defer memory.deinit();
    const allocator = testing.allocator;
    const store = try allocator.create(Store);
    defer allocator.destroy(store);
    const drops = try allocator.create(Slots);
    defer allocator.destroy(drops);
    drops.* = .{};
    const model = try allocator.create([key_count][values.len]?Kept);
    defer allocator.destroy(model);
    model.* = @splat(@splat(null));
    store.init(&memory, seed);
    var one: History = .{
        .store = store,
        .drops = drops,
        .random = prng.random(),
        .model = model,
    };
    defer one.arriving.deinit(allocator);
    one.configure();
    errdefer std.debug.print("seed {d}\n", .{seed});
    try one.run(steps);
    return one.hits;
}

test "random histories" {
    var hits: usize = 0;
    for (0..60) |seed| hits += try history(seed, 5_000);

    try testing.expect(hits > 1000);
}
