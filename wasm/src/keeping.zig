//! What of a response is kept (`rfc.storing.storable_fields`, `rfc.hop_by_hop`): which fields, which body length is
//! announced, and what the request said that the answer varies on.

const std = @import("std");
const mem = @import("bytes.zig");
const equal = @import("equal.zig").equal;
const little = @import("little.zig");
const answer = @import("answer.zig");
const fields = @import("fields.zig");
const store = @import("store.zig");

const View = fields.View;

/// Memory for what is kept of one response at a time.
pub const Kept = struct {
    pairs: [fields.most + 1]store.Pair = undefined,
    count: usize = 0,
    etag: ?usize = null,
    status: u16 = 0,
    /// As announced by `content-length`.
    length: ?u64 = null,
    flags: u16 = 0,
    date: [29]u8 = undefined,

    /// Takes over what `response`, which arrived at `now_ms`, has to keep; false for what is not to be kept at all, whatever
    /// its mark says: parts, answers to conditions, a length that is none.
    pub fn take(self: *Kept, response: *const View, now_ms: i64) bool {
        self.* = .{};
        self.status = statusOf(response) orelse return false;
        if (self.status < 200 or self.status == 206 or self.status == 304) return false;
        var dated = false;
        var typed = false;
        var tags: usize = 0;
        for (response.fields[0..response.len]) |field| {
            const name = field.name;
            if (equal(name, "content-length")) {
                if (self.length != null) return false;
                self.length = number(field.value) orelse return false;
                continue;
            }
            if (isLeftOut(name) or isNominated(response, name)) continue;
            if (equal(name, "etag")) {
                tags += 1;
                self.etag = self.count;
            }
            dated = dated or equal(name, "date");
            typed = typed or equal(name, "content-type");
            self.pairs[self.count] = .{ .name = name, .value = field.value };
            self.count += 1;
        }
        // Several tags are none.
        if (tags > 1) self.etag = null;
        if (!typed) self.flags |= answer.untyped;
        if (!dated) {
            self.pairs[self.count] = .{ .name = "date", .value = formatDate(&self.date, now_ms) };
            self.count += 1;
        }
        return true;
    }
};

/// The status as a number; null for what is none.
fn statusOf(response: *const View) ?u16 {
    const text = response.status orelse return null;
    return parseStatus(text);
}

pub fn parseStatus(text: []const u8) ?u16 {
    if (text.len != 3) return null;
    var status: u16 = 0;
    for (text) |digit| {
        if (digit < '0' or digit > '9') return null;
        status = status * 10 + (digit - '0');
    }
    return status;
}

fn isLeftOut(name: []const u8) bool {
    return mem.among(name, &not_kept) or mem.startsWith(name, "x-meshcache-") or mem.startsWith(name, "x-envoy-");
}

const not_kept = [_][]const u8{
    "age", "cache-status", "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "proxy-connection", "set-cookie", "set-cookie2", "te", "trailer", "transfer-encoding", "upgrade",
};

/// Meant for every recipient, so that naming one in `connection` is an error of the sender.
const end_to_end = [_][]const u8{
    "age", "cache-control", "content-encoding", "content-length", "content-range", "content-type", "date", "etag", "expires", "last-modified", "location", "vary",
};

/// Whether a `connection` field takes `name` for this hop alone.
fn isNominated(response: *const View, name: []const u8) bool {
    var place = response.next("connection", 0) orelse return false;
    if (mem.among(name, &end_to_end)) return false;
    while (true) {
        var members = mem.split(response.fields[place].value, ',');
        while (members.next()) |member| {
            if (mem.equalIgnoringCase(mem.trim(member), name)) return true;
        }
        place = response.next("connection", place + 1) orelse return false;
    }
}

fn number(text: []const u8) ?u64 {
    if (text.len == 0 or text.len > 18) return null;
    var value: u64 = 0;
    for (text) |digit| {
        if (digit < '0' or digit > '9') return null;
        value = value * 10 + (digit - '0');
    }
    return value;
}

/// An IMF-fixdate (RFC 9110 section 5.6.7).
fn formatDate(into: *[29]u8, now_ms: i64) []const u8 {
    const seconds: u64 = @intCast(@max(0, @divFloor(now_ms, 1000)));
    const days = seconds / 86_400;
    // After Howard Hinnant's `civil_from_days`: years begin with March, so that a leap day is the last of its year.
    const shifted = days + 719_468;
    const era = shifted / 146_097;
    const day_of_era = shifted % 146_097;
    const year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    const day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const month = (5 * day_of_year + 2) / 153;
    const day = day_of_year - (153 * month + 2) / 5 + 1;
    const year = year_of_era + 400 * era + @intFromBool(month >= 10);
    const weekdays = "ThuFriSatSunMonTueWed";
    const months = "MarAprMayJunJulAugSepOctNovDecJanFeb";
    var out: fields.Writer = .{ .bytes = into };
    write(&out, weekdays[3 * @as(usize, @intCast(days % 7)) ..][0..3], ", ");
    digits(&out, day);
    write(&out, " ", months[3 * @as(usize, @intCast(month)) ..][0..3]);
    write(&out, " ", "");
    digits(&out, year / 100);
    digits(&out, year % 100);
    write(&out, " ", "");
    digits(&out, seconds / 3600 % 24);
    write(&out, ":", "");
    digits(&out, seconds / 60 % 60);
    write(&out, ":", "");
    digits(&out, seconds % 60);
    write(&out, " GMT", "");
    return into;
}

fn write(out: *fields.Writer, first: []const u8, second: []const u8) void {
    // 29 bytes are what such a date has.
    out.put(first) catch unreachable;
    out.put(second) catch unreachable;
}

/// Two of them.
fn digits(out: *fields.Writer, value: u64) void {
    out.byte('0' + @as(u8, @intCast(value / 10 % 10))) catch unreachable;
    out.byte('0' + @as(u8, @intCast(value % 10))) catch unreachable;
}

/// The values that the answer varies on, out of the request's fields: raw, of one line each. False where a field comes in
/// several lines, or cannot be told from what the origin got.
pub fn varied(request: *const View, names: []const []const u8, into: []store.Varied) bool {
    for (names, into[0..names.len]) |name, *each| {
        const place = request.next(name, 0);
        if (place) |found| if (request.next(name, found + 1) != null) return false;
        each.* = .{ .name = name, .value = if (place) |found| request.fields[found].value else null };
    }
    return true;
}

/// What `Store.find` asks about a request.
pub const Context = struct {
    request: *const View,
    memory: *[4096]u8,

    pub fn vary(self: Context, name: []const u8) ?[]const u8 {
        var writer: fields.Writer = .{ .bytes = self.memory };
        // What is too long is equal to nothing: no value has a zero byte.
        return self.request.joined(name, &writer) catch "\x00";
    }
};

const testing = std.testing;

fn serialise(into: []u8, comptime pairs: []const [2][]const u8) []const u8 {
    little.write(u32, into[0..4], pairs.len);
    var at: usize = 4 + 8 * pairs.len;
    inline for (pairs, 0..) |pair, place| {
        inline for (pair, 0..) |text, half| {
            little.write(u32, into[4 + 8 * place + 4 * half ..][0..4], text.len);
            @memcpy(into[at..][0..text.len], text);
            into[at + text.len] = 0;
            at += text.len + 1;
        }
    }
    return into[0..at];
}

test "what is of this hop, or of one client, is not kept" {
    var memory: [1024]u8 = undefined;
    var view: View = .{};
    try view.parse(serialise(&memory, &.{
        .{ ":status", "200" },               .{ "connection", "x-hop, ETag ,close" }, .{ "x-hop", "1" },      .{ "etag", "\"a\"" },
        .{ "set-cookie", "a=b" },            .{ "age", "3" },                         .{ "x-own", "2" },      .{ "cache-status", "x" },
        .{ "x-meshcache-keep", "v1" },       .{ "x-envoy-upstream", "3" },            .{ "keep-alive", "5" }, .{ "content-length", "12" },
        .{ "transfer-encoding", "chunked" }, .{ "x-own", "3" },
    }));
    var kept: Kept = .{};
    try testing.expect(kept.take(&view, 784111777_000));
    try testing.expectEqual(200, kept.status);
    try testing.expectEqual(12, kept.length.?);
    try testing.expectEqual(0, kept.etag.?);
    try testing.expectEqual(answer.untyped, kept.flags);
    const expected = [_][2][]const u8{
        .{ "etag", "\"a\"" }, .{ "x-own", "2" }, .{ "x-own", "3" }, .{ "date", "Sun, 06 Nov 1994 08:49:37 GMT" },
    };
    try testing.expectEqual(expected.len, kept.count);
    for (expected, kept.pairs[0..kept.count]) |wanted, pair| {
        try testing.expectEqualStrings(wanted[0], pair.name);
        try testing.expectEqualStrings(wanted[1], pair.value);
    }
}

test "dates" {
    var memory: [29]u8 = undefined;
    inline for (.{ 0, 951_782_399, 951_782_400, 1_709_164_800, 4_102_444_799, 1_796_000_461 }, .{
        "Thu, 01 Jan 1970 00:00:00 GMT", "Mon, 28 Feb 2000 23:59:59 GMT", "Tue, 29 Feb 2000 00:00:00 GMT",
        "Thu, 29 Feb 2024 00:00:00 GMT", "Thu, 31 Dec 2099 23:59:59 GMT", "Mon, 30 Nov 2026 01:01:01 GMT",
    }) |seconds, expected| try testing.expectEqualStrings(expected, formatDate(&memory, seconds * 1000 + 999));
}

test "parts, answers to conditions and odd lengths are refused" {
    var memory: [256]u8 = undefined;
    var view: View = .{};
    var kept: Kept = .{};
    inline for (.{ "206", "304", "101", "20", "2xx", "" }) |status| {
        try view.parse(serialise(&memory, &.{.{ ":status", status }}));
        try testing.expect(!kept.take(&view, 0));
    }
    inline for (.{ "", "-1", "1,1", "0x1", "1234567890123456789" }) |length| {
        try view.parse(serialise(&memory, &.{ .{ ":status", "200" }, .{ "content-length", length } }));
        try testing.expect(!kept.take(&view, 0));
    }
    try view.parse(serialise(&memory, &.{ .{ ":status", "200" }, .{ "content-length", "1" }, .{ "content-length", "1" } }));
    try testing.expect(!kept.take(&view, 0));
}
