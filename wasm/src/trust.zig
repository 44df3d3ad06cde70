//! Whose word counts: peers by their address, or because they have shown a certificate (`policy.trust`).

const std = @import("std");
const mem = @import("bytes.zig");
const Plan = @import("plan.zig").Plan;
const Properties = @import("decide.zig").Properties;
const Source = @import("plan.zig").Source;

pub const Answer = enum { yes, no, unknown };

pub const Network = struct {
    /// 4 or 16 bytes.
    bytes: []const u8,
    /// So many bits of them count.
    bits: u8,

    fn read(from: *Source, _: *const Plan) Network {
        const size = from.reader.int(u8);
        from.reader.check(size == 4 or size == 16);
        const bytes = from.reader.raw(size);
        return .{ .bytes = bytes, .bits = from.reader.below(u8, 8 * @as(usize, size) + 1) };
    }

    fn holds(self: Network, address: []const u8) bool {
        if (self.bytes.len != address.len) return false;
        const whole = self.bits / 8;
        if (!mem.equal(self.bytes[0..whole], address[0..whole])) return false;
        const left: u4 = @intCast(self.bits % 8);
        return left == 0 or (self.bytes[whole] ^ address[whole]) >> @intCast(8 - left) == 0;
    }
};

pub const Rule = struct {
    anyone: bool,
    mesh: bool,
    networks: []const Network,

    pub fn read(from: *Source, plan: *const Plan) Rule {
        const bits = from.reader.below(u8, 4);
        return .{
            .anyone = bits & 1 != 0,
            .mesh = bits & 2 != 0,
            .networks = from.list(Network, u16, plan, Network.read),
        };
    }

    /// Whether what the peer says counts. Unknown for an address that is not written as Envoy writes them.
    pub fn trusts(self: *const Rule, properties: *const Properties) Answer {
        if (self.anyone) return .yes;
        if (self.mesh and properties.mtls()) return .yes;
        if (self.networks.len == 0) return .no;
        const text = properties.address() orelse return .unknown;
        var memory: [16]u8 = undefined;
        const address = parse(text, &memory) orelse return .unknown;
        for (self.networks) |network| {
            if (network.holds(address)) return .yes;
        }
        return .no;
    }
};

/// The bytes of `10.0.0.1:80` or `[::1]:80`, 4 for what is an address of IPv4 in one of IPv6.
pub fn parse(text: []const u8, into: *[16]u8) ?[]const u8 {
    const colon = mem.findLast(text, ':') orelse return null;
    const port = text[colon + 1 ..];
    if (port.len == 0 or port.len > 5) return null;
    for (port) |digit| if (!std.ascii.isDigit(digit)) return null;
    const host = text[0..colon];
    if (host.len > 2 and host[0] == '[' and host[host.len - 1] == ']') return parse6(host[1 .. host.len - 1], into);
    return if (parse4(host, into[0..4])) into[0..4] else null;
}

fn parse4(text: []const u8, into: *[4]u8) bool {
    var at: usize = 0;
    for (into, 0..) |*byte, place| {
        if (place > 0) {
            if (at == text.len or text[at] != '.') return false;
            at += 1;
        }
        const from = at;
        var value: u32 = 0;
        while (at < text.len and at < from + 3) : (at += 1) {
            const digit = text[at] -% '0';
            if (digit > 9) break;
            value = 10 * value + digit;
        }
        if (at == from or value > 255 or (text[from] == '0' and at > from + 1)) return false;
        byte.* = @intCast(value);
    }
    return at == text.len;
}

fn parse6(whole: []const u8, into: *[16]u8) ?[]const u8 {
    // Where it holds, behind a percent sign, says nothing of who it is.
    const text = whole[0 .. mem.find(whole, '%', 0) orelse whole.len];
    var colon = mem.find(text, ':', 0);
    const gap = while (colon) |at| : (colon = mem.find(text, ':', at + 1)) {
        if (at + 1 < text.len and text[at + 1] == ':') break at;
    } else null;
    @memset(into, 0);
    if (gap) |at| {
        var tail: [16]u8 = undefined;
        const before = groups(text[0..at], into) orelse return null;
        const after = groups(text[at + 2 ..], &tail) orelse return null;
        if (before + after > 14) return null;
        @memset(into[before..], 0);
        @memcpy(into[16 - after ..], tail[0..after]);
    } else if (groups(text, into) != 16) return null;
    const mapped = [_]u8{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF };
    return if (mem.equal(into[0..12], &mapped)) into[12..16] else into;
}

/// The number of bytes that the groups of `text` make; null when it is malformed.
fn groups(text: []const u8, into: *[16]u8) ?usize {
    if (text.len == 0) return 0;
    var size: usize = 0;
    var parts = mem.split(text, ':');
    while (parts.next()) |part| {
        if (mem.find(part, '.', 0) != null) {
            if (parts.next() != null or size > 12 or !parse4(part, into[size..][0..4])) return null;
            return size + 4;
        }
        if (part.len == 0 or part.len > 4 or size > 14) return null;
        var value: u16 = 0;
        for (part) |digit| value = value << 4 | (mem.digitOf(digit) orelse return null);
        std.mem.writeInt(u16, into[size..][0..2], value, .big);
        size += 2;
    }
    return size;
}

test "addresses as Envoy writes them" {
    var memory: [16]u8 = undefined;
    try std.testing.expectEqualSlices(u8, &.{ 10, 0, 0, 1 }, parse("10.0.0.1:80", &memory).?);
    try std.testing.expectEqualSlices(u8, &.{ 10, 0, 0, 1 }, parse("[::ffff:10.0.0.1]:80", &memory).?);
    try std.testing.expectEqualSlices(u8, &.{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }, parse("[::1]:80", &memory).?);
    try std.testing.expectEqualSlices(u8, &.{ 0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9 }, parse("[fe80::9%2]:1", &memory).?);
    for ([_][]const u8{ "", "10.0.0.1", "10.0.0:1", "10.0.0.01:1", "10.0.0.256:1", "[::1]", "[1::2::3]:1", "[:1]:1", "[1:2:3:4:5:6:7::8]:1", "/tmp/socket", "[]:1", "x:1" }) |odd| {
        try std.testing.expectEqual(null, parse(odd, &memory));
    }
}
