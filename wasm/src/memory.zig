//! Memory that grows in pages of 64 KiB and never moves: WebAssembly's own, or natively a reserved stretch of addresses,
//! so that everything above this file runs unchanged under `zig test`.
//!
//! What lies in it is named by a `Ref`, its distance from the beginning: four bytes on either side.

const std = @import("std");
const builtin = @import("builtin");

const in_wasm = builtin.cpu.arch.isWasm();

/// Bytes by which memory grows (WebAssembly core specification, 4.2.8).
pub const page: usize = 64 * 1024;

/// Distance in bytes from the beginning of memory; 0 names nothing.
pub const Ref = u32;

pub const Memory = struct {
    base: if (in_wasm) void else []align(page) u8,
    /// Pages in use natively, of which the first one is never given out.
    pages: if (in_wasm) void else usize,

    /// The memory of the module; natively `limit` bytes of addresses, which cost nothing until they are touched.
    pub fn init(limit: usize) error{OutOfMemory}!Memory {
        if (in_wasm) return .{ .base = {}, .pages = {} };
        const base = try std.heap.page_allocator.alignedAlloc(u8, .fromByteUnits(page), limit + page);
        return .{ .base = base, .pages = 1 };
    }

    /// Gives the addresses back; natively only, for tests.
    pub fn deinit(self: *Memory) void {
        if (!in_wasm) std.heap.page_allocator.free(self.base);
    }

    /// Bytes that are in use by whomever: in WebAssembly the whole memory of the module.
    pub fn size(self: *const Memory) usize {
        return if (in_wasm) @wasmMemorySize(0) * page else (self.pages - 1) * page;
    }

    /// `count` more pages, zeroed and in one piece; null when there are none.
    pub fn grow(self: *Memory, count: usize) ?Ref {
        if (in_wasm) {
            const before = @wasmMemoryGrow(0, count);
            if (before < 0) return null;
            return @intCast(@as(usize, @intCast(before)) * page);
        }
        const before = self.pages;
        if ((before + count) * page > self.base.len) return null;
        self.pages += count;
        @memset(self.base[before * page ..][0 .. count * page], 0);
        return @intCast(before * page);
    }

    /// The bytes from `ref` on.
    pub inline fn bytes(self: *const Memory, ref: Ref) [*]u8 {
        return if (in_wasm) @ptrFromInt(ref) else self.base.ptr + ref;
    }

    /// What lies at `ref`, as a `T`.
    pub inline fn at(self: *const Memory, comptime T: type, ref: Ref) *T {
        return @ptrCast(@alignCast(self.bytes(ref)));
    }

    /// The table that begins at `ref`.
    pub inline fn table(self: *const Memory, comptime T: type, ref: Ref) [*]T {
        return @ptrCast(@alignCast(self.bytes(ref)));
    }
};
