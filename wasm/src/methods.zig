//! What a request may do by its method (`rfc.invalidation`, `engine.admission.effective_method`).

const std = @import("std");
const mem = @import("bytes.zig");
const equal = @import("equal.zig").equal;
const fields = @import("fields.zig");

/// Fields by which many frameworks let a request have another method.
const overrides = [_][]const u8{ "x-http-method-override", "x-http-method", "x-method-override" };

/// Their names in all the ways in which an origin may take a field for one of them (`rfc.spelling`).
pub const overriding = blk: {
    var names: []const []const u8 = &.{};
    for (overrides) |name| {
        const marks = std.mem.countScalar(u8, name, '-');
        for (0..1 << marks) |spelling| {
            var spelled: [name.len]u8 = name[0..].*;
            var mark = 0;
            for (&spelled) |*byte| {
                if (byte.* != '-') continue;
                if (spelling >> mark & 1 != 0) byte.* = '_';
                mark += 1;
            }
            const made = spelled;
            names = names ++ &[_][]const u8{&made};
        }
    }
    break :blk names;
};

/// Whether a request may change what is stored: by a method that is not known to be safe, or one that it names besides. Of
/// several that it names the origin may mind any.
pub fn isUnsafe(request: *const fields.View) bool {
    const method = request.method orelse return true;
    if (!isSafe(method)) return true;
    if (!request.has.contains(.special) or !(equal(method, "GET") or equal(method, "HEAD"))) return false;
    for (request.fields[0..request.len], 0..) |field, place| {
        if (!mem.among(field.name, overriding)) continue;
        // Sent twice it reads as a list, which is no method that is known to be safe.
        if (request.next(field.name, place + 1) != null) return true;
        if (field.value.len > 0 and !isSafeIgnoringCase(mem.trim(field.value))) return true;
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
