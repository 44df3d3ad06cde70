//! A stored answer that was found, and how an answer is made of it without memory of its own.

const std = @import("std");
const blocks = @import("blocks.zig");
const entry_file = @import("entry.zig");
const memory_file = @import("memory.zig");

const Entry = entry_file.Entry;

/// Time between two requests that are handed on for the sake of one entry, milliseconds.
const hand_on_interval = 1000;

/// Valid until the next call of its store.
pub const Hit = struct {
    memory: *const memory_file.Memory,
    /// Status, times, flags, uses (this one is counted), lengths.
    entry: *Entry,
    /// Stands before the sizes of the fields.
    fields: blocks.Reader,
    /// Where a body is put together that lies in several blocks; `body` bytes at least.
    scratch: [*]u8,

    /// Bytes of the fields' sizes: two `u32` for each field, lengths of name and value without the zero behind them.
    pub inline fn sizesLength(self: *const Hit) usize {
        return @as(usize, self.entry.fields) * 8;
    }

    /// Bytes of the fields' text.
    pub inline fn textLength(self: *const Hit) usize {
        return self.entry.text;
    }

    /// Writes the two parts that a proxy-wasm map has behind its number of fields, each as it is there, so that the
    /// caller can write more fields behind each. `sizes` and `text` are as long as the above say.
    pub fn copyFields(self: *const Hit, sizes: []u8, text: []u8) void {
        var reader = self.fields;
        reader.copy(sizes[0..self.sizesLength()]);
        reader.copy(text[0..self.textLength()]);
    }

    /// The value of `etag` within text that `copyFields` wrote; null when there is none.
    pub fn etag(self: *const Hit, text: []const u8) ?[]const u8 {
        if (self.entry.etag_length == 0) return null;
        return text[self.entry.etag_at..][0..self.entry.etag_length];
    }

    /// The body in one piece.
    pub fn body(self: *const Hit) []const u8 {
        const length = self.entry.body;
        if (length == 0) return &.{};
        var reader = self.fields;
        reader.skip(self.sizesLength() + self.textLength());
        return reader.whole(length, self.scratch[0..length]);
    }

    /// Whether this request is to be handed on for the entry's sake (it is stale, or to be refreshed ahead): one a second
    /// is. What is told so is noted.
    pub fn handOn(self: *const Hit, now_ms: i64) bool {
        const since = now_ms -| self.entry.handed_on;
        // A clock that has gone back must not keep an entry from being refreshed until it is where it was.
        if (since >= 0 and since < hand_on_interval) return false;
        self.entry.handed_on = now_ms;
        return true;
    }
};
