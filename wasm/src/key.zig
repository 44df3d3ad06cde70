//! The material of the cache key, byte for byte as `engine.key.cache_key` makes it.

const std = @import("std");
const mem = @import("bytes.zig");
const fields = @import("fields.zig");
const normal = @import("normal.zig");
const plans = @import("plan.zig");
const Asked = @import("asked.zig").Asked;
const Source = plans.Source;
const Writer = fields.Writer;

pub const Error = error{
    NoRoom,
    /// It is not made here.
    Unknown,
};

/// A longer query enters as it is.
const query_longest = 8192;
/// Queries of more parameters are not sorted here.
const most_sorted = 64;

/// What of a request makes up the key (`policy.compiled.KeySpec`).
pub const Spec = struct {
    host: bool,
    /// Whether all parameters of the query enter.
    everything: bool,
    sorted: bool,
    include: []const []const u8,
    exclude: []const []const u8,
    /// Headers that enter as they are.
    exact_headers: []const []const u8,
    headers: []const []const u8,
    cookies: []const []const u8,
    /// Headers that the origin does not get.
    strip: []const []const u8,

    pub fn read(from: *Source, plan: *const plans.Plan) Spec {
        const bits = from.reader.below(u8, 8);
        return .{
            .host = bits & 1 != 0,
            .everything = bits & 2 != 0,
            .sorted = bits & 4 != 0,
            .include = from.texts(plan),
            .exclude = from.texts(plan),
            .exact_headers = from.texts(plan),
            .headers = from.texts(plan),
            .cookies = from.texts(plan),
            .strip = from.texts(plan),
        };
    }

    /// Writes all of the material behind namespace and arm; `text` is memory for what is put together on the way.
    pub fn write(
        self: *const Spec,
        revision: []const u8,
        asked: *const Asked,
        request: *const fields.View,
        out: *Writer,
        text: *Writer,
    ) Error!void {
        try part(out, revision);
        if (self.host) try origin(out, asked) else try part(out, "");
        // An empty query is another URI than none.
        try part(out, if (asked.query.len > 0) asked.path else asked.target);
        try self.query(asked.query, out, text);
        for (self.exact_headers) |name| {
            const value = try request.joined(name, text) orelse {
                try part(out, "-");
                continue;
            };
            try number(out, value.len + 1);
            try out.put(":+");
            try out.put(value);
        }
        for (self.headers) |name| try header(name, request, out, text);
        for (self.cookies) |name| try cookie(name, request, out, text);
        try self.retargeted(asked.scheme, request, out, text);
        // Links in an answer may repeat how the host was written.
        if (self.host and asked.absolute) try part(out, ".");
    }

    fn query(self: *const Spec, whole: []const u8, out: *Writer, text: *Writer) Error!void {
        if (whole.len == 0 or (self.everything and !self.sorted) or whole.len > query_longest) return part(out, whole);
        // Some origins take it for a separator.
        if (mem.find(whole, ';', 0) != null) return part(out, whole);
        var pairs: [most_sorted][]const u8 = undefined;
        var count: usize = 0;
        const start = text.len;
        var parameters = mem.split(whole, '&');
        while (parameters.next()) |pair| {
            if (!self.everything and !try self.keyed(nameOf(pair))) continue;
            if (!self.sorted) {
                try append(text, pair);
                continue;
            }
            if (count == most_sorted) return error.Unknown;
            for (pairs[0..count]) |other| if (alike(nameOf(pair), nameOf(other))) return error.Unknown;
            pairs[count] = pair;
            count += 1;
        }
        if (self.sorted) {
            // By name alone, and stable.
            std.sort.insertion([]const u8, pairs[0..count], {}, nameBefore);
            for (pairs[0..count]) |pair| try append(text, pair);
        }
        // Each pair has one more byte than it needs, behind it.
        const end = if (text.len > start) text.len - 1 else start;
        try part(out, text.bytes[start..end]);
    }

    /// What the request says of its target beside its URI (`engine.key.retargeting`).
    fn retargeted(self: *const Spec, scheme: []const u8, request: *const fields.View, out: *Writer, text: *Writer) Error!void {
        var names: [fields.most_retargeting][]const u8 = undefined;
        var count: usize = 0;
        for (request.retargeting[0..request.retargeting_len]) |place| {
            const field = request.fields[place];
            if (mem.among(field.name, self.strip)) continue;
            if (request.next(field.name, place + 1) != null) return error.Unknown;
            if (field.value.len == 0) continue;
            if (mem.equal(field.name, "x-forwarded-proto") and mem.equal(field.value, scheme)) continue;
            names[count] = field.name;
            count += 1;
        }
        if (count == 0) return;
        std.sort.insertion([]const u8, names[0..count], {}, nameBefore);
        const start = text.len;
        for (names[0..count]) |name| {
            try part(text, name);
            try part(text, request.first(name) orelse "");
        }
        try part(out, text.bytes[start..text.len]);
    }

    fn keyed(self: *const Spec, name: []const u8) Error!bool {
        if (mem.find(name, '%', 0) != null or mem.find(name, '+', 0) != null) return true;
        if (fits(name, self.exclude)) return false;
        if (fits(name, self.include)) return true;
        for (self.include) |pattern| if (alike(name, pattern)) return error.Unknown;
        return false;
    }
};

/// Whether an origin may take two names that differ for one another (`rfc.spelling.parameter`), or for names that a
/// pattern stands for. More than it may, for what is written plainly is told apart.
noinline fn alike(name: []const u8, pattern: []const u8) bool {
    const one = plainly(name);
    const other = plainly(pattern);
    if (one.len < other.len and one.len == name.len) return false;
    if (other.len < one.len and other.len == pattern.len) return false;
    const size = @min(one.len, other.len);
    if (!mem.equalIgnoringCase(one[0..size], other[0..size])) return false;
    return one.len < name.len or !mem.equal(name, pattern);
}

/// The beginning of a name that nobody reads in two ways.
noinline fn plainly(name: []const u8) []const u8 {
    for (name, 0..) |byte, end| {
        if (!std.ascii.isAlphanumeric(byte) and byte != '_' and byte != '-') return name[0..end];
    }
    return name;
}

fn append(text: *Writer, pair: []const u8) Error!void {
    try text.put(pair);
    try text.byte('&');
}

fn fits(name: []const u8, patterns: []const []const u8) bool {
    for (patterns) |pattern| {
        if (mem.equal(pattern, name)) return true;
        if (pattern.len > 0 and pattern[pattern.len - 1] == '*' and mem.startsWith(name, pattern[0 .. pattern.len - 1])) return true;
    }
    return false;
}

fn nameOf(pair: []const u8) []const u8 {
    return pair[0 .. mem.find(pair, '=', 0) orelse pair.len];
}

fn nameBefore(_: void, one: []const u8, other: []const u8) bool {
    return std.mem.order(u8, nameOf(one), nameOf(other)) == .lt;
}

fn origin(out: *Writer, asked: *const Asked) Error!void {
    const port = if (asked.usual_port) "" else asked.port;
    const colon: usize = @intFromBool(port.len > 0);
    try number(out, asked.scheme.len + "://".len + asked.host.len + colon + port.len);
    try out.byte(':');
    try out.put(asked.scheme);
    try out.put("://");
    try out.put(asked.host);
    if (port.len > 0) try out.byte(':');
    try out.put(port);
}

fn header(name: []const u8, request: *const fields.View, out: *Writer, text: *Writer) Error!void {
    const value = try request.joined(name, text) orelse return part(out, "-");
    const start = text.len;
    try text.byte('+');
    try normal.write(name, value, text);
    try part(out, text.bytes[start..text.len]);
}

/// All values of one cookie, in order, each with its length.
fn cookie(name: []const u8, request: *const fields.View, out: *Writer, text: *Writer) Error!void {
    const start = text.len;
    var place = request.next("cookie", 0);
    while (place) |found| : (place = request.next("cookie", found + 1)) {
        var pieces = mem.split(request.fields[found].value, ';');
        while (pieces.next()) |whole| {
            const piece = mem.trimStart(whole);
            // Some origins see other cookies in it.
            for (piece) |byte| if (byte <= ' ' or byte == '"' or byte == ',') return error.Unknown;
            const called = nameOf(piece);
            if (!mem.equal(called, name)) {
                if (alike(called, name)) return error.Unknown;
                continue;
            }
            try part(text, if (called.len < piece.len) piece[called.len + 1 ..] else "");
        }
    }
    try part(out, text.bytes[start..text.len]);
}

/// One part of a key, its length in front.
fn part(out: *Writer, bytes: []const u8) Error!void {
    try number(out, bytes.len);
    try out.byte(':');
    try out.put(bytes);
}

fn number(out: *Writer, value: usize) Error!void {
    if (value < 10) return out.byte('0' + @as(u8, @intCast(value)));
    if (value < 100) return out.put(&.{ '0' + @as(u8, @intCast(value / 10)), '0' + @as(u8, @intCast(value % 10)) });
    var digits: [20]u8 = undefined;
    var at: usize = digits.len;
    var left = value;
    while (true) {
        at -= 1;
        digits[at] = '0' + @as(u8, @intCast(left % 10));
        left /= 10;
        if (left == 0) break;
    }
    try out.put(digits[at..]);
}
