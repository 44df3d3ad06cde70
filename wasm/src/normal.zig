//! Request fields in the form in which they enter a key (`rfc.vary.normalise`, `rfc.negotiation.canonical`).

const std = @import("std");
const mem = @import("bytes.zig");
const Writer = @import("fields.zig").Writer;

pub const Error = error{NoRoom};

/// More members than this keep their order, as in `canonical`.
const most_members = 64;

/// Whether the order of a field's members says nothing (`NEGOTIATED`).
fn negotiated(name: []const u8) bool {
    for ([_][]const u8{ "accept", "accept-charset", "accept-encoding", "accept-language" }) |one| {
        if (mem.equal(one, name)) return true;
    }
    return false;
}

/// Writes `value`, of the field `name`, in that form.
pub fn write(name: []const u8, value: []const u8, out: *Writer) Error!void {
    if (negotiated(name)) return canonical(name, value, out);
    if (mem.find(value, ',', 0) == null or mem.equal(name, "cookie")) return out.put(blankless(value));
    var members: Members = .{ .text = value };
    var separator: []const u8 = "";
    while (members.next()) |member| {
        try out.put(separator);
        try out.put(member);
        separator = ",";
    }
}

/// What stands between the commas outside of quoted strings, without the blanks around it (`split_commas`). A quote
/// that is never closed quotes nothing.
const Members = struct {
    text: []const u8,
    at: usize = 0,
    /// Whether there is a quote that is never closed, behind which all are ordinary.
    open: bool = false,

    fn next(self: *Members) ?[]const u8 {
        if (self.at > self.text.len) return null;
        const start = self.at;
        var end = start;
        while (end < self.text.len and self.text[end] != ',') : (end += 1) {
            if (self.text[end] != '"' or self.open) continue;
            if (self.closing(end)) |quote| end = quote else self.open = true;
        }
        self.at = end + 1;
        return blankless(self.text[start..end]);
    }

    fn closing(self: *const Members, opening: usize) ?usize {
        var at = opening + 1;
        while (at < self.text.len) : (at += 1) {
            if (self.text[at] == '"') return at;
            if (self.text[at] == '\\') at += 1;
        }
        return null;
    }
};

fn canonical(name: []const u8, value: []const u8, out: *Writer) Error!void {
    const start = out.len;
    if (try sorted(name, value, out)) return;
    out.len = start;
    // The members in order, without empty ones.
    var members: Members = .{ .text = value };
    var separator: []const u8 = "";
    while (members.next()) |member| {
        if (member.len == 0) continue;
        try out.put(separator);
        try out.put(member);
        separator = ",";
    }
}

/// One member as it is written: what is preferred, then its weight.
const Member = struct {
    text: []const u8,
    /// So much of it is what is preferred.
    preferred: usize,

    fn before(_: void, one: Member, other: Member) bool {
        return std.mem.order(u8, one.text, other.text) == .lt;
    }
};

/// Writes the members sorted; false, with anything written, for what keeps its order.
fn sorted(name: []const u8, value: []const u8, out: *Writer) Error!bool {
    var found: [most_members]Member = undefined;
    var count: usize = 0;
    var seen: usize = 0;
    const start = out.len;
    var members: Members = .{ .text = value };
    next: while (members.next()) |member| {
        if (member.len == 0) continue;
        seen += 1;
        if (seen > most_members) return false;
        const made = try weighted(name, member, out) orelse return false;
        for (found[0..count]) |other| {
            if (!mem.equal(other.text[0..other.preferred], made.text[0..made.preferred])) continue;
            if (!mem.equal(other.text, made.text)) return false;
            continue :next;
        }
        found[count] = made;
        count += 1;
    }
    std.sort.insertion(Member, found[0..count], {}, Member.before);
    // They lie in the memory that they are written to: behind them first, and from there to their place.
    const behind = out.len;
    for (found[0..count], 0..) |member, place| {
        if (place > 0) try out.byte(',');
        try out.put(member.text);
    }
    const size = out.len - behind;
    std.mem.copyForwards(u8, out.bytes[start..][0..size], out.bytes[behind..][0..size]);
    out.len = start + size;
    return true;
}

/// Writes one member; null when it is malformed.
fn weighted(name: []const u8, member: []const u8, out: *Writer) Error!?Member {
    const start = out.len;
    var parts = mem.split(member, ';');
    const range = blankless(parts.next() orelse "");
    if (!isToken(range, true)) return null;
    try lower(range, out);
    var weight: ?[]const u8 = null;
    while (parts.next()) |whole| {
        // Extensions behind the weight mean nothing that is known.
        if (weight != null) return null;
        const part = blankless(whole);
        const equals = mem.find(part, '=', 0) orelse return null;
        const parameter = part[0..equals];
        const argument = part[equals + 1 ..];
        if (!isToken(parameter, false) or !isToken(argument, false)) return null;
        if (mem.equalIgnoringCase(parameter, "q")) {
            weight = shortest(argument) orelse return null;
        } else {
            try out.byte(';');
            try lower(parameter, out);
            try out.byte('=');
            try out.put(argument);
        }
    }
    if (mem.equal(name, "accept-encoding")) alias(out, start);
    const preferred = out.len - start;
    if (weight) |text| {
        if (!mem.equal(text, "1")) {
            try out.put(";q=");
            try out.put(text);
        }
    }
    return .{ .text = out.bytes[start..out.len], .preferred = preferred };
}

fn alias(out: *Writer, start: usize) void {
    const written = out.bytes[start..out.len];
    for ([_][]const u8{ "x-gzip", "x-compress" }) |old| {
        if (!mem.equal(written, old)) continue;
        std.mem.copyForwards(u8, written[0 .. old.len - 2], written[2..]);
        out.len -= 2;
        return;
    }
}

/// A weight without zeros at its end; null for what is none.
fn shortest(text: []const u8) ?[]const u8 {
    if (text.len == 0 or text.len > 5 or (text[0] != '0' and text[0] != '1')) return null;
    if (text.len == 1) return text;
    if (text[1] != '.') return null;
    for (text[2..]) |digit| {
        if (!std.ascii.isDigit(digit) or (text[0] == '1' and digit != '0')) return null;
    }
    // The point is in front of the last that is looked at.
    var end = text.len;
    while (text[end - 1] == '0') end -= 1;
    return text[0 .. end - @intFromBool(text[end - 1] == '.')];
}

/// Whether `text` is a token, in which slashes may stand as well.
noinline fn isToken(text: []const u8, slashes: bool) bool {
    for (text) |byte| {
        const known = byte < 128 and token[byte / 64] >> @intCast(byte % 64) & 1 != 0;
        if (!known and !(slashes and byte == '/')) return false;
    }
    return text.len > 0;
}

/// A bit for each character of ASCII.
const token: [2]u64 = blk: {
    var made: u128 = 0;
    for ("!#$%&'*+-.^_`|~") |byte| made |= 1 << byte;
    for (0..128) |byte| {
        if (std.ascii.isAlphanumeric(byte)) made |= 1 << byte;
    }
    break :blk .{ @truncate(made), @truncate(made >> 64) };
};

fn lower(text: []const u8, out: *Writer) Error!void {
    const start = out.len;
    try out.put(text);
    for (out.bytes[start..out.len]) |*byte| byte.* = std.ascii.toLower(byte.*);
}

fn blankless(text: []const u8) []const u8 {
    return mem.trim(text);
}

test "forms of the same meaning are one" {
    const Case = struct { []const u8, []const u8, []const u8 };
    for ([_]Case{
        .{ "accept-encoding", "gzip, br;q=1.0", "br,gzip" },
        .{ "accept-encoding", "x-gzip;q=0.500, BR", "br,gzip;q=0.5" },
        .{ "accept", "text/HTML;Level=1;q=0.0, */*", "*/*,text/html;level=1;q=0" },
        .{ "accept", "b, a;;", "b,a;;" },
        .{ "accept", "b;q=0.5, a, b", "b;q=0.5,a,b" },
        .{ "accept", "b, a, b,,", "a,b" },
        .{ "accept", "b;q=0.5;x=1, a", "b;q=0.5;x=1,a" },
        .{ "accept", "b ; q=0.5 ,a", "a,b;q=0.5" },
        .{ "x-any", " b , a,,", "b,a,," },
        .{ "x-any", " b ", "b" },
        .{ "cookie", " b=1 , 2 ", "b=1 , 2" },
        .{ "x-any", "\"a , b\" , c", "\"a , b\",c" },
        .{ "x-any", "\"a \\\" , b\" , \" , c", "\"a \\\" , b\",\",c" },
    }) |case| {
        var memory: [200]u8 = undefined;
        var out: Writer = .{ .bytes = &memory };
        try write(case[0], case[1], &out);
        try std.testing.expectEqualStrings(case[2], memory[0..out.len]);
    }
}
