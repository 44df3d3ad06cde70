//! What of a request is looked at for its route and its key, as far as it is certain.

const std = @import("std");
const mem = @import("bytes.zig");
const fields = @import("fields.zig");

const get = 1;
const head = 2;

/// `LONGEST_AUTHORITY`.
const authority_longest = 253 + 1 + ":65535".len;

/// What of a request is looked at for its route and its key.
pub const Asked = struct {
    /// `get` or `head`.
    method: u8,
    scheme: []const u8,
    /// In lower case, without the dot of a fully qualified name.
    host: []const u8,
    /// Empty when there is none.
    port: []const u8,
    /// Whether the port is the one that the scheme has anyway.
    usual_port: bool,
    /// Whether the host is written with the dot of a fully qualified name.
    absolute: bool,
    /// Path with query.
    target: []const u8,
    path: []const u8,
    query: []const u8,

    /// Null for what is not certain: other methods, odd hosts, paths that may mean another one to an origin.
    /// `memory` is for the host.
    pub fn of(request: *const fields.View, memory: *[authority_longest]u8) ?Asked {
        const method = request.method orelse return null;
        const authority = request.authority orelse return null;
        const target = request.path orelse return null;
        const scheme = request.scheme orelse return null;
        var made: Asked = undefined;
        made.method = if (mem.equal(method, "GET")) get else if (mem.equal(method, "HEAD")) head else return null;
        made.scheme = scheme;
        if (!made.readHost(authority, memory)) return null;
        made.target = target;
        const mark = mem.find(target, '?', 0) orelse target.len;
        made.path = target[0..mark];
        made.query = if (mark < target.len) target[mark + 1 ..] else "";
        return if (plain(made.path)) made else null;
    }

    fn readHost(self: *Asked, authority: []const u8, memory: *[authority_longest]u8) bool {
        if (authority.len == 0 or authority.len > authority_longest) return false;
        for (authority, memory[0..authority.len]) |byte, *lower| {
            if (byte >= 0x80) return false;
            lower.* = std.ascii.toLower(byte);
        }
        const whole = memory[0..authority.len];
        var host: []const u8 = whole;
        self.port = "";
        if (whole[0] == '[') {
            const end = mem.find(whole, ']', 0) orelse return false;
            host = whole[0 .. end + 1];
            const behind = whole[end + 1 ..];
            if (behind.len > 0 and behind[0] != ':') return false;
            if (behind.len > 0) self.port = behind[1..];
            // What the key marks as absolute here is no address.
            const colon = mem.find(whole, ':', 0) orelse 0;
            if (colon > 0 and whole[colon - 1] == '.') return false;
        } else if (mem.find(whole, ':', 0)) |colon| {
            host = whole[0..colon];
            self.port = whole[colon + 1 ..];
        }
        self.absolute = host.len > 0 and host[host.len - 1] == '.';
        self.host = if (self.absolute) host[0 .. host.len - 1] else host;
        const usual: []const u8 = if (mem.equal(self.scheme, "https")) "443" else if (mem.equal(self.scheme, "http")) "80" else "";
        self.usual_port = mem.equal(self.port, usual);
        return true;
    }
};

/// Whether no origin can take `path` for another one: then it is not `ambiguous` (engine/paths.py), which knows more
/// that are not.
pub fn plain(path: []const u8) bool {
    if (path.len == 0 or path[0] != '/') return false;
    var begins = true;
    var at: usize = 0;
    while (at < path.len) : (at += 1) {
        switch (classes[path[at]]) {
            .data => begins = false,
            .separator => begins = true,
            .dot => if (begins) return false,
            .escape => {
                if (at + 2 >= path.len) return false;
                const high = mem.digitOf(path[at + 1]) orelse return false;
                const low = mem.digitOf(path[at + 2]) orelse return false;
                // What it stands for is data: it neither ends nor begins a segment, nor another escape.
                const byte = high << 4 | low;
                if (classes[byte] != .data or byte == ';') return false;
                at += 2;
                begins = false;
            },
            .odd => return false,
        }
    }
    return true;
}

/// What a byte can do to a path.
const Class = enum(u8) { data, separator, dot, escape, odd };

const classes: [256]Class = blk: {
    var made: [256]Class = @splat(.data);
    for (0..0x20) |control| made[control] = .odd;
    // Begins what lenient decoders take for a dot or a slash.
    for ([_]u8{ 0x7F, 0xC0 }) |byte| made[byte] = .odd;
    for ("/\\") |byte| made[byte] = .separator;
    made['.'] = .dot;
    made['%'] = .escape;
    break :blk made;
};

test "plain paths" {
    for ([_][]const u8{ "/", "//", "/a/b.c", "/a%20b/%C3%A9", "/a;b=c/d..", "/a\xC3\xA9" }) |path| {
        try std.testing.expect(plain(path));
    }
    for ([_][]const u8{ "", "a", "/.", "/a/../b", "/a/.b", "/%2e", "/a%2fb", "/a%", "/a%1", "/a%zz", "/a\x7F", "/a\\..", "/a%00" }) |path| {
        try std.testing.expect(!plain(path));
    }
}
