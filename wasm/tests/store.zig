//! The store as a module of its own, which drives itself: for runs of millions of operations under WebAssembly, with its
//! memory, and for hit ratios over traces.

const std = @import("std");
const store_file = @import("store");

const Store = store_file.Store;

/// Bytes of the largest body.
const largest = 256 * 1024;
const period = 251;

var memory: store_file.Memory = undefined;
var store: Store = undefined;
var drops: store_file.Slots = .{};
var prng: std.Random.DefaultPrng = undefined;
var now: i64 = 1_000_000;
var hits: u64 = 0;
/// What bodies are made of: the byte at `n` is that of `n` modulo `period`.
var pattern: [largest + period]u8 = undefined;
/// Fills that are not over.
var open: [160]?Open = @splat(null);

const Open = struct { handle: store_file.Handle, key: u32, length: u32, sent: u32 };

const Request = struct {
    pub fn vary(_: Request, _: []const u8) ?[]const u8 {
        return "gzip";
    }
};

/// Begins with an empty store.
export fn start(budget: u64, seed: u64) void {
    for (&pattern, 0..) |*byte, at| byte.* = @truncate(at % period);
    prng = .init(seed);
    memory = store_file.Memory.init(0) catch unreachable;
    store.init(&memory, seed);
    configure(budget, 0);
}

/// A new plan: `pools` pools have a tenth of the budget each, those with the numbers from `first` on.
export fn configure(budget: u64, pools: u32) void {
    var shares: [9]store_file.Share = undefined;
    const count = @min(pools, shares.len);
    for (shares[0..count], 0..) |*share, number| share.* = .{
        .id = 1 + prng.random().uintLessThan(u64, 5) * shares.len + number,
        .bytes = budget / 10,
    };
    store.configure(budget, largest, shares[0..count]);
    share_count = count;
}

var share_count: u32 = 0;

/// Bytes that entries may take.
export fn capacity() u64 {
    return @as(u64, store.blocks.limit) * 256;
}

export fn entries() u64 {
    return store.stats().entries;
}

export fn evictions() u64 {
    return store.stats().evictions;
}

export fn found() u64 {
    return hits;
}

/// One request of a trace, for an object of so many bytes, which is kept when it was not there. 1 for a hit.
export fn request(object: u32, length: u32) u32 {
    var buffer: [8]u8 = undefined;
    const key = text(object, 0, &buffer);
    const hash = store.hash(key);
    if (store.find(hash, key, Request{}, now, &drops) != null) return 1;
    const handle = begin(hash, key, store_file.common, 0, length) catch return 0;
    if (store.append(handle, pattern[0..@min(length, largest)])) _ = store.commit(handle, &drops);
    return 0;
}

/// So many random operations: look-ups of `keys` objects, fills of all sizes in pieces, some of which are thrown away,
/// drops, time, which also goes back. Gives the number of answers that were not what had been put in; `entries` and
/// `evictions` say that something was done.
export fn churn(operations: u32, keys: u32) u32 {
    const random = prng.random();
    var wrong: u32 = 0;
    for (0..operations) |_| {
        switch (random.uintLessThan(u16, 1000)) {
            0...499 => wrong += @intFromBool(!look(random, keys)),
            500...979 => {
                const place = &open[random.uintLessThan(usize, open.len)];
                if (place.*) |*fill| {
                    if (!proceed(random, fill)) place.* = null;
                } else place.* = fresh(random, keys);
            },
            980...989 => drops.drop(1 + random.uintLessThan(u64, 1_000_000)),
            990...991 => store.tend(now, 10),
            992 => now -= random.uintLessThan(u8, 200),
            else => now += random.uintLessThan(u8, 50),
        }
    }
    return wrong;
}

fn look(random: std.Random, keys: u32) bool {
    // Some objects are asked for more than others.
    const object = random.uintLessThan(u32, 1 + random.uintLessThan(u32, keys));
    var buffer: [1200]u8 = undefined;
    const key = text(object, object % 1000, &buffer);
    const hit = store.find(store.hash(key), key, Request{}, now, &drops) orelse return true;
    hits += 1;
    const body = hit.body();
    const length: u32 = @intCast(hit.entry.times.birth);
    if (body.len != length) return false;
    for ([_]usize{ 0, length / 3, length / 2, length -| 1 }) |at| {
        if (at < length and body[at] != pattern[(object + at) % period]) return false;
    }
    return true;
}

fn fresh(random: std.Random, keys: u32) ?Open {
    const object = random.uintLessThan(u32, 1 + random.uintLessThan(u32, keys));
    const length: u32 = switch (random.uintLessThan(u8, 100)) {
        0 => 0,
        1 => random.uintLessThan(u32, 2 * largest),
        2...20 => random.uintLessThan(u32, 20_000),
        else => random.uintLessThan(u32, 3_000),
    };
    var buffer: [1200]u8 = undefined;
    const key = text(object, object % 1000, &buffer);
    const pool: u16 = if (share_count == 0 or object % 2 == 0) store_file.common else @intCast(object % share_count);
    const handle = begin(store.hash(key), key, pool, length, if (random.boolean()) length else null) catch return null;
    return .{ .handle = handle, .key = object, .length = length, .sent = 0 };
}

/// False when the fill is over.
fn proceed(random: std.Random, fill: *Open) bool {
    const left = fill.length - fill.sent;
    if (random.uintLessThan(u16, 200) == 0) {
        store.abort(fill.handle);
        return false;
    }
    if (left == 0) {
        _ = store.commit(fill.handle, &drops);
        return false;
    }
    const count = if (random.boolean()) @min(left, largest) else 1 + random.uintLessThan(u32, @min(left, largest));
    const at = (fill.key + fill.sent) % period;
    fill.sent += count;
    return store.append(fill.handle, pattern[at..][0..count]);
}

fn begin(hash: u64, key: []const u8, pool: u16, length: u32, announced: ?u64) !store_file.Handle {
    return store.begin(&.{
        .hash = hash,
        .material = key,
        .pool = pool,
        .born = drops.now(),
        .stream = 0,
        .times = .{ .birth = length, .fresh_until = 0, .stale_until = 0, .drop_at = now + 3_600_000, .renew_at = 0 },
        .status = 200,
        .flags = 0,
        .fields = &.{
            .{ .name = "content-type", .value = "text/plain" },
            .{ .name = "x-of-some-length", .value = key },
        },
        .vary = if (length % 3 == 0) &.{.{ .name = "accept-encoding", .value = "gzip" }} else &.{},
        .labels = &.{ 1 + hash % 1_000_000, 2_000_000 },
        .length = announced,
    }, now);
}

/// A key for an object, with so many bytes more.
fn text(object: u32, more: usize, buffer: []u8) []const u8 {
    const whole = buffer[0 .. 8 + more];
    @memset(whole, '/');
    std.mem.writeInt(u64, whole[0..8], object, .little);
    return whole;
}
