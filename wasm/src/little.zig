//! Numbers in memory, little endian, wherever they lie. `std.mem.readInt` says the same, but of it Zig 0.17 makes a loop over
//! the bytes for WebAssembly.

const std = @import("std");
const builtin = @import("builtin");

comptime {
    if (builtin.cpu.arch.endian() != .little) @compileError("numbers are read as they lie");
}

pub inline fn read(comptime T: type, bytes: *const [@sizeOf(T)]u8) T {
    return @as(*align(1) const T, @ptrCast(bytes)).*;
}

pub inline fn write(comptime T: type, bytes: *[@sizeOf(T)]u8, value: T) void {
    @as(*align(1) T, @ptrCast(bytes)).* = value;
}

test "what is written is read" {
    var bytes: [9]u8 = @splat(0);
    write(u64, bytes[1..9], 0x0102030405060708);
    try std.testing.expectEqualSlices(u8, &.{ 0, 8, 7, 6, 5, 4, 3, 2, 1 }, &bytes);
    try std.testing.expectEqual(0x0102030405060708, read(u64, bytes[1..9]));
    try std.testing.expectEqual(0x0708, read(u16, bytes[1..3]));
}
