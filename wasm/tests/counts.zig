//! The filter's counts for tests: hits are handed in, batches come out. `tests/wasm/filter_counts.py` is its other side.

const filter = @import("filter");

var numbers: filter.numbers.Numbers = undefined;
var bins: filter.bins.Bins = undefined;
var input: [1 << 16]u8 = undefined;

export fn counts_begin(worker: u64, seed: u64) [*]u8 {
    numbers.init(worker, seed);
    bins.init();
    return &input;
}

export fn counts_bin(latency_us: u64) u32 {
    return bins.of(latency_us);
}

/// A new plan is in force, whose id is the first 8 bytes of the input.
export fn counts_plan() void {
    numbers.table.newPlan(input[0..8].*);
}

/// The input holds a plain tag at `at`, of `length` bytes. Gives 0 when the request is handed on.
export fn counts_passed(at: usize, length: usize) u32 {
    numbers.table.countPassed(numbers.table.plain(input[at..][0..length]) orelse return 0);
    return 1;
}

/// A hit with the plain tag at `at`, and one of an experiment behind it, unless that is empty; the unit is the first 16
/// bytes of the input. Gives 0 when the request is handed on, and then nothing of it is counted.
export fn counts_hit(
    at: usize,
    length: usize,
    counted: usize,
    arm: u32,
    stale: u32,
    not_modified: u32,
    size: u64,
    latency_us: u64,
    age_ms: u64,
) u32 {
    const table = &numbers.table;
    const place = table.plain(input[at..][0..length]) orelse return 0;
    if (counted != 0) {
        const tag = input[at + length ..][0..counted];
        const exposed = table.exposed(tag, @intCast(arm), input[0..16]) orelse return 0;
        table.countExposed(exposed, stale != 0, latency_us, age_ms);
    }
    table.countPlain(place, .{ .stale = stale != 0, .not_modified = not_modified != 0, .bytes = size, .age_ms = age_ms });
    return 1;
}

/// Hits of so many units, each of one of three arms, until one is handed on; gives how many were counted.
export fn counts_fill(at: usize, length: usize, counted: usize, units: u32) u32 {
    for (0..units) |unit| {
        @memset(input[0..16], 0);
        @memcpy(input[12..16], @as(*const [4]u8, @ptrCast(&@as(u32, @intCast(unit)))));
        const stale = @intFromBool(unit % 7 == 0);
        if (counts_hit(at, length, counted, @intCast(unit % 3), stale, 0, 500, unit, 10) == 0) return @intCast(unit);
    }
    return units;
}

/// The length of the batch to send at `now_ms`, 0 for none; it begins at `batch`.
export fn counts_tick(now_ms: u64) usize {
    const found = numbers.tick(now_ms) orelse return 0;
    return found.len;
}

export fn counts_batch() [*]const u8 {
    return &numbers.batch;
}

export fn counts_taken(sequence: u64) void {
    numbers.onTaken(sequence);
}

export fn counts_failed(now_ms: u64) void {
    numbers.onFailed(now_ms);
}
