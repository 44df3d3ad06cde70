//! Values out of bytes that may be anything: little endian, everything with its length in front.

const std = @import("std");
const little = @import("little.zig");

pub const Refused = error{Refused};

pub const Reader = struct {
    bytes: []const u8,
    at: usize = 0,

    pub fn raw(self: *Reader, length: usize) Refused![]const u8 {
        if (length > self.bytes.len - self.at) return error.Refused;
        defer self.at += length;
        return self.bytes[self.at..][0..length];
    }

    pub fn int(self: *Reader, comptime T: type) Refused!T {
        const size = @divExact(@bitSizeOf(T), 8);
        return little.read(T, (try self.raw(size))[0..size]);
    }

    /// A number that is less than `bound`.
    pub fn below(self: *Reader, comptime T: type, bound: usize) Refused!T {
        const found = try self.int(T);
        return if (found < bound) found else error.Refused;
    }

    pub fn float(self: *Reader) Refused!f64 {
        const found: f64 = @bitCast(try self.int(u64));
        return if (std.math.isFinite(found)) found else error.Refused;
    }

    pub fn text(self: *Reader) Refused![]const u8 {
        return self.raw(try self.int(u16));
    }

    /// Text that is not empty.
    pub fn name(self: *Reader) Refused![]const u8 {
        const found = try self.text();
        return if (found.len > 0) found else error.Refused;
    }
};
