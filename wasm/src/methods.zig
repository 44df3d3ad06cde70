//! What a request may do by its method (`rfc.invalidation`, `engine.admission.effective_method`).

const std = @import("std");
const mem = @import("bytes.zig");
const equal = @import("equal.zig").equal;
const fields = @import("fields.zig");

/// Fields by which many frameworks let a request have another method, in the order in which they are looked at.
pub const overrides = [_][]const u8{ "x-http-method-override", "x-http-method", "x-method-override" };

/// Whether a request may change what is stored: by a method that is not known to be safe, or one that it names besides.
pub fn isUnsafe(request: *const fields.View) bool {
    const method = request.method orelse return true;
    if (!isSafe(method)) return true;
    if (!request.has.contains(.special) or !(equal(method, "GET") or equal(method, "HEAD"))) return false;
    for (overrides) |name| {
        var memory: [64]u8 = undefined;
        var writer: fields.Writer = .{ .bytes = &memory };
        // What is longer is no safe method.
        const named = (request.joined(name, &writer) catch return true) orelse continue;
        if (named.len == 0) continue;
        const trimmed = mem.trim(named);
        return !isSafeIgnoringCase(trimmed);
    }
    return false;
}

/// RFC 9110 section 9.2.1.
pub fn isSafe(method: []const u8) bool {
    return mem.among(method, &safe);
}

fn isSafeIgnoringCase(method: []const u8) bool {
    for (safe) |each| if (mem.equalIgnoringCase(each, method)) return true;
    return false;
}

const safe = [_][]const u8{ "GET", "HEAD", "OPTIONS", "TRACE" };
