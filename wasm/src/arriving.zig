//! What an answer has to be like so that it is taken in, and how its entry begins.

const blocks = @import("blocks.zig");
const entry_file = @import("entry.zig");
const equal = @import("equal.zig").equal;
const memory_file = @import("memory.zig");
const slots = @import("slots.zig");
const store = @import("store.zig");
const variant = @import("variant.zig");

const Answer = store.Answer;
const Entry = entry_file.Entry;
const Memory = memory_file.Memory;
const Ref = memory_file.Ref;

/// Bytes of the parts of an answer, its body left out.
pub const Shape = struct {
    vary: usize,
    text: usize,
    etag_at: usize,
    etag_length: usize,
    /// All that lies between the entry and the body.
    head: usize,
};

pub fn measure(answer: *const Answer) store.Refusal!Shape {
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
pub fn start(entry: *Entry, answer: *const Answer, shape: *const Shape, pool: u16) void {
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
pub fn same(memory: *const Memory, ref: Ref, answer: *const Answer) bool {
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
