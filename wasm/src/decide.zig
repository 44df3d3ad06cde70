//! What is done with a request that is plain: its route, its arm, its key.

const std = @import("std");
const fields = @import("fields.zig");
const Plan = @import("plan.zig").Plan;

/// What is asked of the host only when it makes a difference. What they return must live until the next call of any.
pub const Properties = struct {
    /// `source.address`, with its port, as Envoy writes it; null when it is not known.
    address: *const fn () ?[]const u8,
    /// `connection.mtls`.
    mtls: *const fn () bool,
    /// `xds.cluster_name`; null when it is not known.
    cluster: *const fn () ?[]const u8,
    /// Whether Envoy has verified a token of the caller (dynamic metadata of `envoy.filters.http.jwt_authn`): then the
    /// request counts as one with `authorization`, however the token came.
    verified: *const fn () bool,
};

/// How much of `cache-status` the caller sees (`policy.compiled.CacheStatus`).
pub const Shown = enum(u8) { off, minimal, standard, full };

/// Memory for one decision at a time; what a decision refers to lies here, and ends with the next one.
pub const Scratch = struct {
    memory: [48 << 10]u8 = undefined,
};

pub const Decision = union(enum) {
    /// The sidecar decides: nothing is known here.
    hand_on,
    /// The request can never be answered from a cache, nor its answer be stored.
    skip: Skip,
    look_up: LookUp,
};

pub const Skip = struct {
    pub const Why = enum { no_route, route_not_cached };
    why: Why,
    /// What it is counted by.
    tag: []const u8,
};

pub const LookUp = struct {
    /// Byte for byte that of `engine.key.cache_key`, in the scratch.
    material: []const u8,
    /// A place in `Plan.pools`.
    pool: u16,
    /// What the request is counted by: route, arm and policy, opaque here.
    tag: []const u8,
    /// Names for `cache-status`; the arm is empty where the route has no experiment.
    arm: []const u8,
    policy: []const u8,
    /// Bodies up to so many bytes may be stored for it.
    largest: u32,
    exposure: ?Exposure,
};

/// That the request counts in an experiment.
pub const Exposure = struct {
    /// Experiment and epoch, opaque here.
    tag: []const u8,
    arm: u16,
    unit: [16]u8,
};

/// What is done with `request`, which is one of GET or HEAD without a body and `plain`. Never wrong: what is not
/// certain is handed on.
pub fn decide(plan: *const Plan, request: *const fields.View, scratch: *Scratch, properties: *const Properties) Decision {
    _ = plan;
    _ = request;
    _ = scratch;
    _ = properties;
    return .hand_on;
}

/// How much of `cache-status` the caller sees; to be asked only when an answer is made.
pub fn shownTo(plan: *const Plan, properties: *const Properties) Shown {
    _ = properties;
    return plan.shown;
}
