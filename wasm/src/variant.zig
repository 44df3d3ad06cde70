//! Entries of one key that differ in the fields on which the origin's answer varies (RFC 9111, section 4.1), by raw values:
//! what is written differently is taken for different.

const std = @import("std");
const blocks = @import("blocks.zig");
const entry_file = @import("entry.zig");
const equal = @import("equal.zig").equal;
const memory_file = @import("memory.zig");

const Entry = entry_file.Entry;
const Memory = memory_file.Memory;
const Reader = blocks.Reader;
const Ref = memory_file.Ref;

pub const Head = struct { name: []const u8, length: u32 };

/// Reads the next name, into `buffer` where it lies in two blocks, and the length of the value behind it.
pub fn next(reader: *Reader, buffer: *[entry_file.max_vary_name]u8) Head {
    const length = reader.piece(1)[0];
    const name = reader.whole(length, buffer);
    var size: u32 = undefined;
    reader.copy(std.mem.asBytes(&size));
    return .{ .name = name, .length = size };
}

/// Reads the value behind a name, at least as far as it is equal to `value`.
pub fn valueEquals(reader: *Reader, length: u32, value: ?[]const u8) bool {
    const wanted = value orelse return length == entry_file.absent;
    return length == wanted.len and reader.equals(wanted);
}

/// Whether the entry answers a request with the values that `context.vary(name)` gives. The reader stands behind the
/// material, and afterwards, when it does, before the fields.
pub fn answers(entry: *const Entry, reader: *Reader, context: anytype) bool {
    for (0..entry.vary_count) |_| {
        var buffer: [entry_file.max_vary_name]u8 = undefined;
        const head = next(reader, &buffer);
        if (!valueEquals(reader, head.length, context.vary(head.name))) return false;
    }
    return true;
}

pub const Comparison = enum { same, other_values, other_names };

/// Compares what two entries of one key vary on.
pub fn compare(memory: *const Memory, first: Ref, second: Ref) Comparison {
    const a = Entry.get(memory, first);
    const b = Entry.get(memory, second);
    if (a.vary_count != b.vary_count) return .other_names;
    var left = a.reader(memory, first);
    var right = b.reader(memory, second);
    left.skip(a.material);
    right.skip(b.material);
    var found: Comparison = .same;
    for (0..a.vary_count) |_| {
        var left_buffer: [entry_file.max_vary_name]u8 = undefined;
        var right_buffer: [entry_file.max_vary_name]u8 = undefined;
        const left_head = next(&left, &left_buffer);
        const right_head = next(&right, &right_buffer);
        if (!equal(left_head.name, right_head.name)) return .other_names;
        if (left_head.length != right_head.length) {
            found = .other_values;
            left.skip(present(left_head.length));
            right.skip(present(right_head.length));
        } else if (!sameBytes(&left, &right, present(left_head.length))) {
            found = .other_values;
        }
    }
    return found;
}

/// Whether two entries have the same key.
pub fn sameMaterial(memory: *const Memory, first: Ref, second: Ref) bool {
    const a = Entry.get(memory, first);
    const b = Entry.get(memory, second);
    if (a.material != b.material) return false;
    var left = a.reader(memory, first);
    var right = b.reader(memory, second);
    return sameBytes(&left, &right, a.material);
}

fn present(length: u32) usize {
    return if (length == entry_file.absent) 0 else length;
}

/// Reads the same number of bytes from both and compares them.
fn sameBytes(left: *Reader, right: *Reader, length: usize) bool {
    var all = true;
    var rest = length;
    while (rest > 0) {
        const part = left.piece(rest);
        var done: usize = 0;
        while (done < part.len) {
            const other = right.piece(part.len - done);
            all = all and equal(part[done..][0..other.len], other);
            done += other.len;
        }
        rest -= part.len;
    }
    return all;
}
