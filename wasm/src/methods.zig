//! What a request may do by its method (`rfc.invalidation`, `engine.admission.effective_method`).

const std = @import("std");
const mem = @import("bytes.zig");
const equal = @import("equal.zig").equal;
const fields = @import("fields.zig");

/// Fields by which many frameworks let a request have another method.
const overrides = [_][]const u8{ "x-http-method-override", "x-http-method", "x-method-override" };

/// Whether a request may change what is stored: by a method that is not known to be safe, or one that it names besides. Of
/// several that it names the origin may mind any.
pub fn isUnsafe(request: *const fields.View) bool {
    const method = request.method orelse return true;
    if (!isSafe(method)) return true;
    if (!request.has.contains(.special) or !(equal(method, "GET") or equal(method, "HEAD"))) return false;
    for (request.fields[0..request.len], 0..) |field, place| {
        var memory: [fields.longest_known]u8 = undefined;
        if (!mem.among(fields.meant(field.name, &memory) orelse continue, &overrides)) continue;
        // Sent twice it reads as a list, which is no method that is known to be safe.
        if (request.next(field.name, place + 1) != null) return true;
        if (field.value.len > 0 and !isSafeIgnoringCase(mem.trim(field.value))) return true;
    }
    return false;
}

/// The names of fields that may be taken for one of those that override, one after the other.
pub const Spellings = struct {
    number: usize = 0,
    memory: [overrides[0].len]u8 = undefined,

    pub fn next(self: *Spellings) ?[]const u8 {
        // None of them has more than three marks.
        if (self.number == 8 * overrides.len) return null;
        const name = overrides[self.number / 8];
        const made = self.memory[0..name.len];
        var marks = self.number;
        self.number += 1;
        for (name, made) |byte, *spelled| {
            spelled.* = byte;
            if (byte != '-') continue;
            if (marks & 1 != 0) spelled.* = '_';
            marks >>= 1;
        }
        return made;
    }
};

/// As `rfc.invalidation.SAFE_METHODS`.
pub fn isSafe(method: []const u8) bool {
    return mem.among(method, &safe);
}

fn isSafeIgnoringCase(method: []const u8) bool {
    for (safe) |each| if (mem.equalIgnoringCase(each, method)) return true;
    return false;
}

const safe = [_][]const u8{ "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "REPORT", "SEARCH" };
