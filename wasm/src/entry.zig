//! How a stored answer lies in its blocks.
//!
//! The first block begins with an `Entry`. Behind it, through all blocks of the chain: the slots of the labels (two
//! bytes each, in the first block always), the key's material, what was varied on (`u8` length of the name, name,
//! `u32` length of the value or 0xFFFFFFFF for an absent field, value), the sizes of the fields as a proxy-wasm map has them
//! (two `u32` each), their text (name, 0, value, 0), the body.

const blocks = @import("blocks.zig");
const memory_file = @import("memory.zig");

const Memory = memory_file.Memory;
const Ref = memory_file.Ref;

/// Labels of an answer; one with more is not kept.
pub const max_labels = 32;
/// Names that an answer varies on.
pub const max_vary = 8;
/// Bytes of a name that is varied on.
pub const max_vary_name = 64;
/// Bytes of all that is varied on, names and values.
pub const max_vary_bytes = 4096;
/// Bytes of a key's material.
pub const max_material = 16 * 1024;
/// Bytes of an answer's fields.
pub const max_fields_bytes = 64 * 1024;
pub const max_fields = 256;

/// A value's length that means: the request had no such field.
pub const absent: u32 = 0xFFFF_FFFF;

/// Which queue of its pool an entry stands in.
pub const Place = enum(u8) { filling, small, main };

/// Milliseconds since 1970. An answer's age at `t` is `t - birth`.
pub const Times = extern struct {
    birth: i64,
    fresh_until: i64,
    stale_until: i64,
    /// From then on it may not be used for anything.
    drop_at: i64,
    /// From then on it is to be refreshed ahead; 0 for never.
    renew_at: i64,
};

pub const Entry = extern struct {
    /// The next block of the chain.
    next: Ref,
    /// The last block of the chain.
    last: Ref,
    /// Blocks of the chain.
    blocks: u32,
    /// The next entry of the same bucket.
    link: Ref,
    hash: u64,
    /// Neighbours in the queue.
    older: Ref,
    newer: Ref,
    times: Times,
    /// The clock of drops when the request began (`slots.Born`).
    born: u64,
    /// When a request was last handed on for its sake, milliseconds since 1970.
    handed_on: i64,
    /// Which stream has asked for it.
    stream: u32,
    /// Answers that it has given, up to the largest number.
    uses: u32,
    material: u32,
    vary: u16,
    vary_count: u8,
    labels: u8,
    fields: u16,
    status: u16,
    /// Bytes of the fields' text.
    text: u32,
    /// Where the value of `etag` begins in the fields' text, and its length; 0 and 0 when there is none.
    etag_at: u32,
    etag_length: u32,
    body: u32,
    /// Bits of the keep mark.
    flags: u16,
    pool: u16,
    place: Place,
    /// 0 to 3, how often it was used lately (S3-FIFO).
    frequency: u8,

    pub fn get(memory: *const Memory, ref: Ref) *Entry {
        return memory.at(Entry, ref);
    }

    /// The slots of its labels.
    pub fn slots(self: *Entry) []u16 {
        const from: [*]u16 = @ptrCast(@alignCast(@as([*]u8, @ptrCast(self)) + @sizeOf(Entry)));
        return from[0..self.labels];
    }

    /// A reader that stands before the material.
    pub fn reader(self: *const Entry, memory: *const Memory, ref: Ref) blocks.Reader {
        return .{ .memory = memory, .block = ref, .at = @sizeOf(Entry) + 2 * @as(usize, self.labels) };
    }
};

comptime {
    if (@sizeOf(Entry) + 2 * max_labels > blocks.block_size) @compileError("labels have to fit into the first block");
}
