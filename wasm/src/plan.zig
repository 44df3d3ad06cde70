//! The plan: what the policies in force say, as the sidecar has written it (`meshcache.wasm.plan`).

const std = @import("std");
const Shown = @import("decide.zig").Shown;

pub const Refused = error{Refused};

/// One share of the memory.
pub const Pool = struct {
    /// As in the sidecar's storage keys; 0 is the common one, which is the first of a plan's.
    id: u64,
    /// Of `Plan.budget`, between 0 and 1.
    fraction: f64,
};

pub const Plan = struct {
    /// Digest of all but itself and the secret.
    id: [8]u8,
    /// Proves the marks.
    secret: [32]u8,
    /// How long a worker may serve without hearing from the sidecar.
    lease_ms: u32,
    /// Memory for entries of this worker, in bytes.
    budget: u64,
    /// Bytes of the largest body that is kept.
    largest: u32,
    pools: []const Pool,
    /// What strangers see of `cache-status`.
    shown: Shown,
};

/// Memory that `decode` needs at most for a plan of so many bytes.
pub fn room(length: usize) usize {
    return 16 * length + 4096;
}

/// Reads `bytes` into `arena`, of at least `room(bytes.len)` bytes, to which the plan and all it holds belong.
/// `bytes` are not needed afterwards.
pub fn decode(bytes: []const u8, arena: []u8) Refused!*const Plan {
    _ = bytes;
    _ = arena;
    return error.Refused;
}
