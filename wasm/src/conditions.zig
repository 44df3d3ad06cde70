//! Whether the client's copy is current (RFC 9110, sections 8.8.3 and 13.1.2), as `rfc.validation` and `rfc.entity_tag`
//! have it.

const std = @import("std");
const mem = @import("bytes.zig");
const equal = @import("equal.zig").equal;

/// Whether a request with this `if-none-match` gets 304 for what is stored under `etag` with this status. Only successful
/// responses have preconditions; tags are compared weakly.
pub fn notModified(if_none_match: []const u8, status: u16, etag: ?[]const u8) bool {
    if (status < 200 or status > 299) return false;
    if (equal(if_none_match, "*")) return true;
    const stored = Tag.parse(etag orelse return false) orelse return false;
    var members: Members = .init(if_none_match);
    while (members.next()) |member| {
        const tag = Tag.parse(member) orelse continue;
        if (equal(tag.opaque_part, stored.opaque_part)) return true;
    }
    return false;
}

const Tag = struct {
    /// Without its quotes.
    opaque_part: []const u8,

    /// Some senders leave out the quotes, and some write the mark of a weak tag as `w/`, `W\` or `W`.
    fn parse(text: []const u8) ?Tag {
        if (text.len == 0 or equal(text, "*")) return null;
        var rest = text;
        if (rest[0] == 'W' or rest[0] == 'w') {
            rest = rest[1..];
            if (rest.len > 0 and (rest[0] == '/' or rest[0] == '\\')) rest = rest[1..];
        }
        if (rest.len >= 2 and rest[0] == '"' and rest[rest.len - 1] == '"') {
            const inner = rest[1 .. rest.len - 1];
            for (inner) |character| if (!isTagCharacter(character)) return null;
            return .{ .opaque_part = inner };
        }
        for (text) |character| if (!isTagCharacter(character) or character == ',') return null;
        return .{ .opaque_part = text };
    }
};

/// `etagc`: anything visible but a double quote, and all above ASCII.
fn isTagCharacter(character: u8) bool {
    return character == '!' or (character >= '#' and character <= '~') or character >= 0x80;
}

/// The members of a list of tags that are not empty: split at the commas outside of quotes, where a backslash is an
/// ordinary character and a quote that is never closed quotes nothing.
const Members = struct {
    text: []const u8,
    at: usize = 0,
    /// Where the quote stands that is never closed.
    unclosed: usize,

    fn init(text: []const u8) Members {
        var odd = false;
        for (text) |character| odd = odd != (character == '"');
        return .{ .text = text, .unclosed = if (odd) mem.findLast(text, '"') orelse text.len else text.len };
    }

    fn next(self: *Members) ?[]const u8 {
        while (self.at <= self.text.len) {
            const start = self.at;
            var quoted = false;
            var end = start;
            while (end < self.text.len) : (end += 1) {
                const character = self.text[end];
                if (character == '"' and end != self.unclosed) quoted = !quoted;
                if (character == ',' and !quoted) break;
            }
            self.at = end + 1;
            const member = mem.trim(self.text[start..end]);
            if (member.len > 0) return member;
        }
        return null;
    }
};

test "tags are compared weakly, in any of the forms that are sent" {
    const expect = std.testing.expect;
    for ([_][]const u8{ "\"a\"", "W/\"a\"", "w/\"a\"", "W\\\"a\"", "W\"a\"", "a", "\"b\", \"a\"", ",, \"a\" ,", "*" }) |sent| {
        try expect(notModified(sent, 200, "\"a\""));
        try expect(notModified(sent, 204, "W/\"a\""));
        try expect(!notModified(sent, 404, "\"a\""));
    }
    for ([_][]const u8{ "", "\"b\"", "\"a", "a\"", "\"a\"\"a\"", "W/a", "\"b, a\"", "** ", "\"a b\"", "A" }) |sent| {
        try expect(!notModified(sent, 200, "\"a\""));
    }
    try expect(notModified("*", 200, null));
    try expect(!notModified("\"a\"", 200, null));
    try expect(!notModified("\"a b\"", 200, "\"a b\""));
    // A quote that is never closed hides nothing behind it.
    try expect(notModified("\"b, \"a\"", 200, "\"a\"") == false);
    try expect(notModified("\"b\", \"x, a", 200, "a"));
}
