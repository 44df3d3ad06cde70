//! What is asked of Envoy about a request beside its fields, and only where it makes a difference.

const abi = @import("abi.zig");
const decide = @import("decide.zig");
const worker = @import("worker.zig");

pub const all: decide.Properties = .{
    .address = address,
    .mtls = mtls,
    .cluster = cluster,
    .verified = verified,
};

/// What was told last.
var told: [1024]u8 = undefined;

fn address() ?[]const u8 {
    return abi.property("source\x00address", &told);
}

fn mtls() bool {
    const value = abi.property("connection\x00mtls", &told) orelse return false;
    return value.len > 0 and value[0] != 0;
}

fn cluster() ?[]const u8 {
    return abi.property("xds\x00cluster_name", &told);
}

fn verified() bool {
    return worker.settings.tokens and abi.hasProperty("metadata\x00filter_metadata\x00envoy.filters.http.jwt_authn");
}

/// The request's method, also when its response comes.
pub fn method() ?[]const u8 {
    return abi.property("request\x00method", &told);
}
