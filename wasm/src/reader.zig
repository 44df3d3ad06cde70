//! Values out of bytes that may be anything: little endian, everything with its length in front.
//!
//! What cannot be read reads as zero or empty, and so does all behind it; whoever has read everything asks once whether it
//! was there (`failed`), and before that takes no number for a place.

const std = @import("std");
const little = @import("little.zig");

pub const Refused = error{Refused};

/// As many bytes as are ever read at once without a length in front of them.
const most_raw = 32;
const zeros: [most_raw]u8 = @splat(0);

pub const Reader = struct {
    bytes: []const u8,
    at: usize = 0,
    failed: bool = false,

    /// So many bytes as they are; where they are not, or are more than can be told, others or none.
    pub fn raw(self: *Reader, length: usize) []const u8 {
        if (length > self.bytes.len - self.at) {
            self.fail();
            return zeros[0..@min(length, most_raw)];
        }
        defer self.at += length;
        return self.bytes[self.at..][0..length];
    }

    pub fn int(self: *Reader, comptime T: type) T {
        return little.read(T, self.raw(@sizeOf(T))[0..@sizeOf(T)]);
    }

    /// A number that is less than `bound`.
    pub fn below(self: *Reader, comptime T: type, bound: usize) T {
        const found = self.int(T);
        self.check(found < bound);
        return if (found < bound) found else 0;
    }

    pub fn float(self: *Reader) f64 {
        const found: f64 = @bitCast(self.int(u64));
        self.check(std.math.isFinite(found));
        return found;
    }

    pub fn text(self: *Reader) []const u8 {
        const length = self.int(u16);
        const found = self.raw(length);
        return if (self.failed) "" else found;
    }

    /// Text that is not empty.
    pub fn name(self: *Reader) []const u8 {
        const found = self.text();
        self.check(found.len > 0);
        return found;
    }

    pub fn check(self: *Reader, sound: bool) void {
        if (!sound) self.fail();
    }

    fn fail(self: *Reader) void {
        self.failed = true;
        self.at = self.bytes.len;
    }
};
