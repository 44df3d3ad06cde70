//! The header fields of one message over the one buffer in which the host gives them all: nothing is copied.
//!
//! proxy-wasm's serialised form, little endian: u32 count, then for each field u32 length of its name and u32 length of
//! its value, then for each field its name, a zero byte, its value, a zero byte.

const std = @import("std");
const little = @import("little.zig");
const mem = @import("bytes.zig");

/// More fields than this are not looked at: Envoy refuses more than 100 unless it is told otherwise.
pub const most = 128;

/// A request with more of those that may retarget it is handed on.
pub const most_retargeting = 8;

pub const Malformed = error{Malformed};

/// What it means that a field of some name is there.
pub const Kind = enum {
    /// Nothing.
    other,
    /// The request is none that is looked up as it is (engine/admission.py): it is handed on.
    special,
    /// It asks for more than a stored answer is judged by here: it is handed on where it would be looked up.
    judged,
    /// `RETARGETING` in engine/key.py: it is part of every key.
    retargeting,
    content_type,
    cookie,
    accept_encoding,
    if_none_match,
    /// Means nothing beside `if-none-match` (RFC 9110 section 13.1.3), and is `judged` without that.
    if_modified_since,
    /// `x-meshcache-*`.
    internal,
};

pub const Field = struct { name: []const u8, value: []const u8 };

pub const View = struct {
    fields: [most]Field = undefined,
    /// Of each name: its length, its first and its last byte, so that most others are told apart at once.
    tags: [most]u32 = undefined,
    len: usize = 0,
    has: std.EnumSet(Kind) = .{},
    method: ?[]const u8 = null,
    path: ?[]const u8 = null,
    authority: ?[]const u8 = null,
    scheme: ?[]const u8 = null,
    /// The places of those that may retarget the request.
    retargeting: [most_retargeting]u8 = undefined,
    retargeting_len: usize = 0,
    status: ?[]const u8 = null,

    /// Reads `bytes`, which must outlive the view. Names are taken to be in lower case, as Envoy has them.
    pub fn parse(self: *View, bytes: []const u8) Malformed!void {
        self.method = null;
        self.path = null;
        self.authority = null;
        self.scheme = null;
        self.status = null;
        self.has = .{};
        self.len = 0;
        self.retargeting_len = 0;
        if (bytes.len < 4) return error.Malformed;
        const count = little.read(u32, bytes[0..4]);
        if (count > most or bytes.len < 4 + 8 * @as(usize, count)) return error.Malformed;
        var at: usize = 4 + 8 * @as(usize, count);
        var len: usize = 0;
        for (0..count) |place| {
            const lengths = bytes[4 + 8 * place ..][0..8];
            const name_length: usize = little.read(u32, lengths[0..4]);
            const value_length: usize = little.read(u32, lengths[4..8]);
            // Each with the zero byte behind it.
            const left = bytes.len - at;
            if (name_length == 0 or name_length >= left or value_length >= left - name_length - 1) return error.Malformed;
            const name = bytes[at..][0..name_length];
            const value = bytes[at + name_length + 1 ..][0..value_length];
            at += name_length + value_length + 2;
            if (name[0] == ':') {
                self.pseudo(name, value);
                continue;
            }
            const tag = tagOf(name);
            self.fields[len] = .{ .name = name, .value = value };
            self.tags[len] = tag;
            len += 1;
            const kind = kinds.of(tag, name);
            if (kind != .other) self.note(kind, len - 1);
        }
        if (at != bytes.len) return error.Malformed;
        self.len = len;
    }

    /// The value of the first line of `name`.
    pub fn first(self: *const View, name: []const u8) ?[]const u8 {
        const place = self.next(name, 0) orelse return null;
        return self.fields[place].value;
    }

    /// The place of the first line of `name` at `from` or behind it.
    pub fn next(self: *const View, name: []const u8, from: usize) ?usize {
        if (name.len == 0) return null;
        const tag = tagOf(name);
        var place = from;
        while (place < self.len) : (place += 1) {
            if (self.tags[place] == tag and mem.equal(self.fields[place].name, name)) return place;
        }
        return null;
    }

    /// All values of `name` joined by a comma and a blank, as `Headers.get` joins them; those of several lines are
    /// written to `into`.
    pub fn joined(self: *const View, name: []const u8, into: *Writer) error{NoRoom}!?[]const u8 {
        var place = self.next(name, 0) orelse return null;
        var second = self.next(name, place + 1) orelse return self.fields[place].value;
        const start = into.len;
        try into.put(self.fields[place].value);
        while (true) {
            try into.put(", ");
            try into.put(self.fields[second].value);
            place = second;
            second = self.next(name, place + 1) orelse return into.bytes[start..into.len];
        }
    }

    /// Whether a stored answer can be judged by what is known here: where no field is `special` either, engine/judge.py has
    /// nothing more to say of the fields. Says nothing of method and path.
    pub fn plain(self: *const View) bool {
        if (self.has.contains(.judged)) return false;
        return !self.has.contains(.if_modified_since) or self.has.contains(.if_none_match);
    }

    /// What it means that the field at `place` is there.
    fn note(self: *View, kind: Kind, place: usize) void {
        switch (kind) {
            .retargeting => {
                if (self.retargeting_len == most_retargeting) return self.has.insert(.judged);
                self.retargeting[self.retargeting_len] = @intCast(place);
                self.retargeting_len += 1;
            },
            .content_type => {
                // gRPC, or what may be taken for it.
                if (hasGrpc(self.fields[place].value)) self.has.insert(.special);
            },
            else => {},
        }
        self.has.insert(kind);
    }

    fn pseudo(self: *View, name: []const u8, value: []const u8) void {
        if (mem.equal(name, ":path")) {
            self.path = value;
        } else if (mem.equal(name, ":method")) {
            self.method = value;
        } else if (mem.equal(name, ":authority")) {
            self.authority = value;
        } else if (mem.equal(name, ":scheme")) {
            self.scheme = value;
        } else if (mem.equal(name, ":status")) {
            self.status = value;
        }
    }
};

/// Text that is put together in memory of a fixed size.
pub const Writer = struct {
    bytes: []u8,
    len: usize = 0,

    pub fn put(self: *Writer, text: []const u8) error{NoRoom}!void {
        if (text.len > self.bytes.len - self.len) return error.NoRoom;
        mem.copy(self.bytes[self.len..][0..text.len], text);
        self.len += text.len;
    }

    pub fn byte(self: *Writer, one: u8) error{NoRoom}!void {
        if (self.len == self.bytes.len) return error.NoRoom;
        self.bytes[self.len] = one;
        self.len += 1;
    }

    /// Two lower-case hexadecimal digits for each of `raw`.
    pub noinline fn hexadecimal(self: *Writer, raw: []const u8) error{NoRoom}!void {
        const digits = "0123456789abcdef";
        for (raw) |one| {
            try self.byte(digits[one >> 4]);
            try self.byte(digits[one & 15]);
        }
    }

    pub noinline fn decimal(self: *Writer, value: u64) error{NoRoom}!void {
        var digits: [20]u8 = undefined;
        var at: usize = digits.len;
        var rest = value;
        while (true) {
            at -= 1;
            digits[at] = '0' + @as(u8, @intCast(rest % 10));
            rest /= 10;
            if (rest == 0) break;
        }
        try self.put(digits[at..]);
    }
};

fn hasGrpc(value: []const u8) bool {
    const media = "application/grpc";
    var at: usize = 0;
    while (at + media.len <= value.len) : (at += 1) {
        if (mem.equalIgnoringCase(value[at..][0..media.len], media)) return true;
    }
    return false;
}

pub fn kindOf(name: []const u8) Kind {
    return if (name.len == 0) .other else kinds.of(tagOf(name), name);
}

/// No name that is `special` is longer.
pub const longest_known = 32;

/// What `name` may be taken for (`rfc.spelling`); null for what is too long to matter.
pub noinline fn meant(name: []const u8, memory: *[longest_known]u8) ?[]const u8 {
    if (name.len > memory.len) return null;
    const made = memory[0..name.len];
    for (name, made) |byte, *each| each.* = if (byte == '_') '-' else byte;
    return made;
}

fn tagOf(name: []const u8) u32 {
    const length: u32 = @intCast(@min(name.len, 0xFFFF));
    return length << 16 | @as(u32, name[0]) << 8 | name[name.len - 1];
}

const Name = struct { []const u8, Kind };

const special = [_][]const u8{
    "expect", "upgrade", "x-http-method", "x-http-method-override", "x-method-override",
};

const judged = [_][]const u8{
    "authorization",       "cache-control", "forwarded",      "if-match", "if-range", "if-unmodified-since", "pragma",
    "proxy-authorization", "range",         "x-cache-status",
};

const retargeting = [_][]const u8{
    "cf-visitor",            "cloudfront-forwarded-proto", "fastly-host",            "fastly-ssl",
    "x-forwarded-proto",     "front-end-https",            "script-name",            "x-accel-mapping",
    "x-arr-ssl",             "x-backend-host",             "x-base-url",             "x-envoy-original-host",
    "x-envoy-original-path", "x-forwarded-host",           "x-forwarded-path",       "x-forwarded-port",
    "x-forwarded-prefix",    "x-forwarded-protocol",       "x-forwarded-scheme",     "x-forwarded-server",
    "x-forwarded-ssl",       "x-forwarded-uri",            "x-forwarded-url",        "x-host",
    "x-http-destinationurl", "x-http-host-override",       "x-invoke-path",          "x-invoke-query",
    "x-invoke-status",       "x-matched-path",             "x-middleware-prefetch",  "x-middleware-subrequest",
    "x-nextjs-data",         "x-now-route-matches",        "x-original-host",        "x-original-path",
    "x-original-uri",        "x-original-url",             "x-replaced-path",        "x-rewrite-url",
    "x-scheme",              "x-script-name",              "x-sendfile-type",        "x-url-scheme",
    "rsc",                   "hx-boosted",                 "hx-request",             "hx-target",
    "turbo-frame",           "x-inertia",                  "x-inertia-partial-data", "x-pjax",
    "x-requested-with",
};

/// Names by their tag, in a table that is made at compile time.
const kinds = struct {
    const slots = 256;

    const names: []const Name = blk: {
        var list: []const Name = &.{
            .{ "content-type", .content_type },
            .{ "cookie", .cookie },
            .{ "accept-encoding", .accept_encoding },
            .{ "if-none-match", .if_none_match },
            .{ "if-modified-since", .if_modified_since },
        };
        for (special) |name| list = list ++ &[_]Name{.{ name, .special }};
        for (judged) |name| list = list ++ &[_]Name{.{ name, .judged }};
        for (retargeting) |name| list = list ++ &[_]Name{.{ name, .retargeting }};
        break :blk list;
    };

    // One text and where each name begins in it: a pointer and a length of each would be as many bytes again.
    const text: [starts[names.len]]u8 = blk: {
        var made: []const u8 = "";
        for (names) |entry| made = made ++ entry[0];
        break :blk made[0..].*;
    };
    const starts: [names.len + 1]u16 = blk: {
        var made: [names.len + 1]u16 = undefined;
        var at: u16 = 0;
        for (names, 0..) |entry, number| {
            made[number] = at;
            at += entry[0].len;
        }
        made[names.len] = at;
        break :blk made;
    };
    const meanings: [names.len]Kind = blk: {
        var made: [names.len]Kind = undefined;
        for (names, &made) |entry, *meaning| meaning.* = entry[1];
        break :blk made;
    };

    const table: [slots]u8 = blk: {
        @setEvalBranchQuota(20_000);
        var made: [slots]u8 = @splat(0);
        for (names, 1..) |entry, number| {
            var slot = slotOf(tagOf(entry[0]));
            while (made[slot] != 0) slot = (slot + 1) % slots;
            made[slot] = number;
        }
        break :blk made;
    };

    fn slotOf(tag: u32) usize {
        return (tag *% 0x9E3779B1) >> 24;
    }

    fn of(tag: u32, name: []const u8) Kind {
        var slot = slotOf(tag);
        while (table[slot] != 0) : (slot = (slot + 1) % slots) {
            const number = table[slot] - 1;
            if (mem.equal(text[starts[number]..starts[number + 1]], name)) return meanings[number];
        }
        const internal = tag >> 8 & 0xFF == 'x' and name.len > 12 and name[2] == 'm' and mem.equal(name[0..12], "x-meshcache-");
        if (internal) return .internal;
        return if (mem.find(name, '_', 0) == null) .other else spelled(name);
    }

    /// An origin may take it for the field that has `-` for each `_` (rfc/spelling.py): what that means, the sidecar knows.
    noinline fn spelled(name: []const u8) Kind {
        var memory: [longest_known]u8 = undefined;
        const known = meant(name, &memory) orelse return .judged;
        return if (of(tagOf(known), known) == .special) .special else .judged;
    }
};

test "fields are read in place, repeats are joined" {
    const bytes = "\x04\x00\x00\x00" ++ "\x05\x00\x00\x00\x02\x00\x00\x00" ++ "\x01\x00\x00\x00\x01\x00\x00\x00" ++
        "\x01\x00\x00\x00\x00\x00\x00\x00" ++ "\x05\x00\x00\x00\x01\x00\x00\x00" ++
        ":path\x00/x\x00" ++ "a\x001\x00" ++ "a\x00\x00" ++ "range\x00b\x00";
    var view: View = .{};
    try view.parse(bytes);
    try std.testing.expectEqualStrings("/x", view.path.?);
    try std.testing.expectEqual(null, view.method);
    var memory: [8]u8 = undefined;
    var writer: Writer = .{ .bytes = &memory };
    try std.testing.expectEqualStrings("1, ", (try view.joined("a", &writer)).?);
    try std.testing.expectEqual(null, try view.joined("b", &writer));
    try std.testing.expect(!view.plain());
    for (0..bytes.len) |length| try std.testing.expectError(error.Malformed, view.parse(bytes[0..length]));
}
