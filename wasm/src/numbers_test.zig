const std = @import("std");
const module = @import("numbers.zig");
const max_rows = @import("table.zig").max_rows;
const bins_module = @import("bins.zig");
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;

var numbers: module.Numbers = undefined;
var bins: bins_module.Bins = undefined;

const fresh: module.Hit = .{ .stale = false, .not_modified = false, .bytes = 500, .age_ms = 1500 };

fn unit(number: u64) [16]u8 {
    var made: [16]u8 = @splat(0);
    std.mem.writeInt(u64, made[0..8], number, .big);
    std.mem.writeInt(u64, made[8..16], number *% 0x9e3779b97f4a7c15, .little);
    return made;
}

fn hit(number: u64, latency_us: u64) !void {
    const who = unit(number);
    const place = numbers.table.exposed("experiment", 0, &who) orelse return error.Full;
    numbers.table.countExposed(place, false, latency_us, 10);
}

fn u32At(batch: []const u8, at: usize) u32 {
    return std.mem.readInt(u32, batch[at..][0..4], .little);
}

fn u64At(batch: []const u8, at: usize) u64 {
    return std.mem.readInt(u64, batch[at..][0..8], .little);
}

test "nothing counted is no batch" {
    numbers.init(7, 1);
    try expectEqual(null, numbers.tick(0));
    try expectEqual(null, numbers.tick(10_000));
    // A place that was found and not used is nothing either.
    _ = numbers.table.plain("tag");
    try expectEqual(null, numbers.tick(20_000));
}

test "a plain batch, byte by byte" {
    numbers.init(7, 1);
    numbers.table.newPlan(.{ 1, 2, 3, 4, 5, 6, 7, 8 });
    numbers.table.countPlain(numbers.table.plain("tag").?, fresh);
    numbers.table.countPassed(numbers.table.plain("tag").?);
    numbers.table.countPlain(numbers.table.plain("tag").?, .{ .stale = true, .not_modified = true, .bytes = 0, .age_ms = 2 });
    const batch = numbers.tick(1000).?;
    try expectEqual(34 + 51 + 3, batch.len);
    try expect(std.mem.eql(u8, batch[0..4], "MCN1"));
    try expectEqual(7, u64At(batch, 6));
    try expectEqual(1, u64At(batch, 14));
    try expect(std.mem.eql(u8, batch[22..30], &.{ 1, 2, 3, 4, 5, 6, 7, 8 }));
    try expectEqual(1, u32At(batch, 30));
    try expect(std.mem.eql(u8, batch[34..40], &.{ 1, 3, 0, 't', 'a', 'g' }));
    for ([_]u64{ 1, 1, 1, 500, 1502, 1 }, 0..) |count, place| try expectEqual(count, u64At(batch, 40 + 8 * place));
}

test "a batch is sent again unchanged until it is taken, and what comes meanwhile is in the next" {
    numbers.init(7, 1);
    numbers.table.countPlain(numbers.table.plain("a").?, fresh);
    var first: [128]u8 = undefined;
    const sent = numbers.tick(1000).?;
    const length = sent.len;
    @memcpy(first[0..length], sent);
    numbers.table.countPlain(numbers.table.plain("a").?, fresh);
    numbers.table.countPlain(numbers.table.plain("a").?, fresh);
    try expectEqual(null, numbers.tick(1600));
    numbers.onFailed(1700);
    try expectEqual(null, numbers.tick(1800));
    try expect(std.mem.eql(u8, first[0..length], numbers.tick(2200).?));
    // Nothing was heard of it at all.
    try expect(std.mem.eql(u8, first[0..length], numbers.tick(20_000).?));
    numbers.onTaken(0);
    try expectEqual(null, numbers.tick(20_001));
    numbers.onTaken(1);
    const second = numbers.tick(20_002).?;
    try expectEqual(2, u64At(second, 14));
    try expectEqual(2, u64At(second, 34 + 4));
    numbers.onTaken(2);
    try expectEqual(null, numbers.tick(30_000));
}

test "batches are an interval apart, unless much is waiting" {
    numbers.init(7, 1);
    try hit(1, 50);
    _ = numbers.tick(1000).?;
    numbers.onTaken(1);
    try hit(1, 50);
    try expectEqual(null, numbers.tick(1499));
    for (0..max_rows / 4) |number| try hit(number, 50);
    try expect(numbers.tick(1499) != null);
}

test "a full table hands on, and loses nothing that was counted" {
    numbers.init(7, 1);
    var counted: u64 = 0;
    while (true) : (counted += 1) {
        hit(counted, 50 + counted % 5000) catch break;
    }
    try expect(counted > max_rows / 2);
    // Who is in it is still counted.
    try hit(0, 50);
    const batch = numbers.tick(1000).?;
    try expect(batch.len <= module.max_batch);
    var at: usize = 34 + 1 + 2 + "experiment".len + 2;
    const used = u32At(batch, at);
    at += 4;
    var in_bins: u64 = 0;
    for (0..used) |place| in_bins += u32At(batch, at + 6 * place + 2);
    try expectEqual(counted + 1, in_bins);
    at += 6 * used;
    try expectEqual(counted, u32At(batch, at));
    at += 4;
    var requests: u64 = 0;
    for (0..counted) |place| requests += u32At(batch, at + 52 * place + 16);
    try expectEqual(counted + 1, requests);
    try expectEqual(at + 52 * counted, batch.len);
    numbers.onTaken(1);
    try hit(counted, 50);
}

test "tags and groups that do not fit are handed on" {
    numbers.init(7, 1);
    const names: [150_000]u8 = @splat('x');
    try expectEqual(null, numbers.table.plain(names[0..65536]));
    try expect(numbers.table.plain(names[0..60_000]) != null);
    try expect(numbers.table.plain(names[1..60_001]) != null);
    try expectEqual(null, numbers.table.plain(names[2..60_002]));
    try expectEqual(0, numbers.table.plain(names[0..60_000]).?);
    try expectEqual(2, numbers.table.plain(names[2..10]).?);
    const who = unit(1);
    var arm: u16 = 0;
    while (numbers.table.exposed("e", arm, &who)) |place| : (arm += 1) numbers.table.countExposed(place, false, 50, 0);
    try expectEqual(128, arm);
}

test "all plain places are used, and no more" {
    numbers.init(7, 1);
    const names: [4096]u8 = @splat('x');
    for (0..1024) |at| try expectEqual(at, numbers.table.plain(names[at..][0..1]).?);
    try expectEqual(null, numbers.table.plain(names[1024..1025]));
    for (0..1024) |at| try expectEqual(at, numbers.table.plain(names[at..][0..1]).?);
}

test "where a tag of another plan lies is another tag" {
    numbers.init(7, 1);
    const who = unit(1);
    var plan: [4]u8 = "ax..".*;
    numbers.table.countPlain(numbers.table.plain(plan[0..1]).?, fresh);
    numbers.table.countExposed(numbers.table.exposed(plan[1..2], 0, &who).?, false, 1, 1);
    plan = "by..".*;
    numbers.table.newPlan(@splat(9));
    numbers.table.countPlain(numbers.table.plain(plan[0..1]).?, fresh);
    numbers.table.countExposed(numbers.table.exposed(plan[1..2], 0, &who).?, false, 1, 1);
    const batch = numbers.tick(1000).?;
    try expectEqual(4, u32At(batch, 30));
    for ([_][]const u8{ "\x01\x00a", "\x01\x00b", "\x01\x00x", "\x01\x00y" }) |tag| {
        try expect(std.mem.indexOf(u8, batch, tag) != null);
    }
}

test "the bins' edges" {
    bins.init();
    try expectEqual(0, bins.of(0));
    try expectEqual(0, bins.of(100));
    try expectEqual(1, bins.of(101));
    try expectEqual(bins_module.count - 1, bins.of(1_000_000_000));
    try expectEqual(bins_module.count - 1, bins.of(std.math.maxInt(u64)));
    var before: u16 = 0;
    var latency: u64 = 1;
    while (latency < 2_000_000_000) : (latency += 1 + latency / 300) {
        const bin = bins.of(latency);
        try expect(bin == before or bin == before + 1);
        before = bin;
    }
}

test "the sampled latency is any of the row's, each with the same chance" {
    numbers.init(7, 99);
    var firsts: u32 = 0;
    for (0..3000) |_| {
        for ([_]u64{ 10, 20, 30 }) |latency| try hit(1, latency);
        numbers.made_at = 0;
        const batch = numbers.tick(1000).?;
        firsts += @intFromBool(u32At(batch, batch.len - 12) == 10);
        numbers.onTaken(numbers.sequence);
    }
    try expect(firsts > 900 and firsts < 1100);
}

test "long latencies and their squares" {
    numbers.init(7, 1);
    try hit(1, 2_000_000_000);
    try hit(1, 40_000);
    const batch = numbers.tick(1000).?;
    try expectEqual(1_000_040_000, u64At(batch, batch.len - 28));
    try expectEqual(1_000_000_000_000 + 1600, u64At(batch, batch.len - 20));
}

test "a table that is full in every respect fits into a batch" {
    numbers.init(7, 1);
    const names: [131_072]u8 = @splat('x');
    // As many plain tags as there are places, and groups whose tags fill the rest of the room for tags.
    for (0..1024) |at| numbers.table.countPlain(numbers.table.plain(names[at..][0..64]).?, fresh);
    var number: u64 = 0;
    var place: ?u16 = null;
    while (true) : (number += 1) {
        const who = unit(number);
        const arm: u16 = @intCast(number % 128);
        const found = numbers.table.exposed(names[arm..][0..512], arm, &who) orelse break;
        numbers.table.countExposed(found, true, number, 10);
        place = found;
    }
    try expectEqual(max_rows, number);
    // Who is in it goes on to be counted, in bins that there was nothing in so far.
    for (0..128) |arm| {
        const who = unit(arm);
        const found = numbers.table.exposed(names[arm..][0..512], @intCast(arm), &who).?;
        for (0..bins_module.count) |bin| numbers.table.countExposed(found, false, @intFromFloat(@min(1e9, 99 * std.math.pow(f64, 1.0202, @floatFromInt(bin)))), 1);
    }
    const batch = numbers.tick(1000).?;
    try expectEqual(34 + 1024 * (51 + 64) + 128 * (13 + 512) + max_rows * 52, batch.len - 6 * usedBins(batch));
    try expect(batch.len > module.max_batch - 10_000);
}

/// All bins that a batch with plain groups of 115 bytes each has.
fn usedBins(batch: []const u8) usize {
    var at: usize = 34 + 1024 * 115;
    var sum: usize = 0;
    for (0..128) |_| {
        at += 1 + 2 + 512 + 2;
        const used = u32At(batch, at);
        sum += used;
        at += 4 + 6 * used;
        at += 4 + 52 * @as(usize, u32At(batch, at));
    }
    std.debug.assert(at == batch.len);
    return sum;
}
