//! How an answer is taken in: what it has to be like, and how it is written into its blocks as it comes.

const std = @import("std");
const blocks = @import("blocks.zig");
const entry_file = @import("entry.zig");
const equal = @import("equal.zig").equal;
const fills = @import("fills.zig");
const memory_file = @import("memory.zig");
const s3fifo = @import("s3fifo.zig");
const shares_file = @import("shares.zig");
const slots = @import("slots.zig");
const store_file = @import("store.zig");
const succession = @import("succession.zig");
const variant = @import("variant.zig");

const Answer = store_file.Answer;
const Entry = entry_file.Entry;
const Memory = memory_file.Memory;
const Ref = memory_file.Ref;
const Refusal = store_file.Refusal;
const Store = store_file.Store;

/// Takes in the head of an answer, if it is such as is kept and there is room for it.
pub fn begin(store: *Store, answer: *const Answer) Refusal!fills.Handle {
    if (store.blocks.limit == 0) return error.Disabled;
    const shape = try measure(answer);
    const number = poolOf(store, answer.pool);
    if (number == shares_file.none) return error.TooLarge;
    const pool = &store.pools[number];
    const body = answer.length orelse 0;
    if (body > store.largest or shape.head > store.largest) return error.TooLarge;
    const count = blocks.needed(@sizeOf(Entry) + shape.head + @as(usize, @intCast(body)));
    if (count > pool.limit) return error.TooLarge;
    for (&store.fills.places) |*fill| {
        if (fill.entry == 0 or !same(store.memory, fill.entry, answer)) continue;
        const other = Entry.get(store.memory, fill.entry);
        // A newer answer need not wait for an older one, which would not be kept for long.
        if (!fill.idle(store.now) and !succession.isOlder(other.stream, other.times.birth, answer.stream, answer.times.birth)) return error.Same;
        store.giveUp(fill);
    }
    if (!spare(store, pool, count)) return error.Busy;
    const fill = store.fills.place(store.now) orelse return error.Busy;
    if (fill.entry != 0) store.giveUp(fill);

    const ref = store.takeBlock(pool) orelse return error.Busy;
    pool.fills += 1;
    pool.filling += 1;
    store.fills.open += 1;
    fill.* = .{
        .generation = fill.generation,
        .entry = ref,
        .last = ref,
        .at = @sizeOf(Entry) + 2 * answer.labels.len,
        .expected = answer.length,
        .began = store.now,
        .touched = store.now,
    };
    start(Entry.get(store.memory, ref), answer, &shape, number);
    if (!writeHead(store, fill, answer)) {
        store.giveUp(fill);
        return error.Busy;
    }
    return store.fills.handle(fill);
}

fn poolOf(store: *const Store, share: u16) u16 {
    if (share == store_file.common) return 0;
    return if (share < store.share_count) store.shares[share] else shares_file.none;
}

/// Whether the pool has so many blocks for one more fill: all fills together have half of it, a single one the whole.
/// Those to which nothing comes any more give way, and those that take too long.
fn spare(store: *Store, pool: *s3fifo.Pool, count: usize) bool {
    for (&store.fills.places) |*fill| {
        if (pool.fills == 0 or pool.filling + count <= pool.limit / 2) return true;
        if (fill.entry == 0 or !fill.yields(store.now)) continue;
        if (&store.pools[Entry.get(store.memory, fill.entry).pool] == pool) store.giveUp(fill);
    }
    return pool.fills == 0 or pool.filling + count <= pool.limit / 2;
}

/// What stands before the body, in the order of entry.zig.
fn writeHead(store: *Store, fill: *fills.Fill, answer: *const Answer) bool {
    if (!write(store, fill, answer.material)) return false;
    for (answer.vary) |varied| {
        const length: u32 = if (varied.value) |value| @intCast(value.len) else entry_file.absent;
        if (!write(store, fill, &.{@intCast(varied.name.len)}) or !write(store, fill, varied.name) or
            !write(store, fill, std.mem.asBytes(&length)) or !write(store, fill, varied.value orelse "")) return false;
    }
    for (answer.fields) |field| {
        const sizes = [2]u32{ @intCast(field.name.len), @intCast(field.value.len) };
        if (!write(store, fill, std.mem.asBytes(&sizes))) return false;
    }
    for (answer.fields) |field| {
        if (!write(store, fill, field.name) or !write(store, fill, "\x00") or
            !write(store, fill, field.value) or !write(store, fill, "\x00")) return false;
    }
    return true;
}

/// Writes behind what the fill has; false when there is no room.
pub fn write(store: *Store, fill: *fills.Fill, content: []const u8) bool {
    var done: usize = 0;
    while (done < content.len) {
        if (fill.at == blocks.block_size) {
            const entry = Entry.get(store.memory, fill.entry);
            const pool = &store.pools[entry.pool];
            if (pool.fills > 1 and pool.filling >= pool.limit / 2) return false;
            const ref = store.takeBlock(pool) orelse return false;
            store.blocks.next(fill.last).* = ref;
            fill.last = ref;
            fill.at = blocks.block_start;
            entry.blocks += 1;
            pool.filling += 1;
        }
        const count = @min(content.len - done, blocks.block_size - fill.at);
        @memcpy((store.memory.bytes(fill.last) + fill.at)[0..count], content[done..][0..count]);
        fill.at += count;
        done += count;
    }
    return true;
}

/// Bytes of the parts of an answer, its body left out.
const Shape = struct {
    vary: usize,
    text: usize,
    etag_at: usize,
    etag_length: usize,
    /// All that lies between the entry and the body.
    head: usize,
};

fn measure(answer: *const Answer) Refusal!Shape {
    if (answer.labels.len > entry_file.max_labels or answer.vary.len > entry_file.max_vary or
        answer.fields.len > entry_file.max_fields) return error.TooMuch;
    if (answer.material.len > entry_file.max_material) return error.TooLarge;
    var shape: Shape = .{ .vary = 0, .text = 0, .etag_at = 0, .etag_length = 0, .head = 0 };
    for (answer.vary) |varied| {
        if (varied.name.len > entry_file.max_vary_name) return error.TooLarge;
        shape.vary += 1 + varied.name.len + 4 + (if (varied.value) |value| value.len else 0);
    }
    if (shape.vary > entry_file.max_vary_bytes) return error.TooLarge;
    for (answer.fields, 0..) |field, number| {
        if (number == answer.etag) {
            shape.etag_at = shape.text + field.name.len + 1;
            shape.etag_length = field.value.len;
        }
        shape.text += field.name.len + field.value.len + 2;
    }
    if (shape.text > entry_file.max_fields_bytes) return error.TooLarge;
    shape.head = 2 * answer.labels.len + answer.material.len + shape.vary + 8 * answer.fields.len + shape.text;
    return shape;
}

/// Writes the entry at the beginning of its first block, and the slots of its labels.
fn start(entry: *Entry, answer: *const Answer, shape: *const Shape, pool: u16) void {
    entry.* = .{
        .next = 0,
        .last = 0,
        .blocks = 1,
        .link = 0,
        .hash = answer.hash,
        .older = 0,
        .newer = 0,
        .times = answer.times,
        .born = answer.born,
        .stream = answer.stream,
        .handed_on = 0,
        .uses = 0,
        .material = @intCast(answer.material.len),
        .vary = @intCast(shape.vary),
        .vary_count = @intCast(answer.vary.len),
        .labels = @intCast(answer.labels.len),
        .fields = @intCast(answer.fields.len),
        .status = answer.status,
        .text = @intCast(shape.text),
        .etag_at = @intCast(shape.etag_at),
        .etag_length = @intCast(shape.etag_length),
        .body = 0,
        .flags = answer.flags,
        .pool = pool,
        .place = .filling,
        .frequency = 0,
    };
    for (entry.slots(), answer.labels) |*slot, label| slot.* = slots.slotOf(label);
}

/// Whether the one that is arriving at `ref` has the key of `answer`, and varies alike.
fn same(memory: *const Memory, ref: Ref, answer: *const Answer) bool {
    const entry = Entry.get(memory, ref);
    if (entry.hash != answer.hash or entry.material != answer.material.len or entry.vary_count != answer.vary.len) return false;
    var reader = entry.reader(memory, ref);
    if (!reader.equals(answer.material)) return false;
    for (answer.vary) |varied| {
        var buffer: [entry_file.max_vary_name]u8 = undefined;
        const head = variant.next(&reader, &buffer);
        if (!equal(head.name, varied.name)) return false;
        if (!variant.valueEquals(&reader, head.length, varied.value)) return false;
    }
    return true;
}
