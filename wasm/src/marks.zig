//! The marks on messages between the filter and the sidecar: what is asked, what may be kept, what is to be dropped. Their
//! form stands in `meshcache.wasm.marks`: words of ASCII with a blank between them, of which the last one proves that
//! whoever wrote it knows the plan's secret. A mark for another plan, key or field proves nothing here.

const std = @import("std");
const mem = @import("bytes.zig");
const equal = @import("equal.zig").equal;
const Blake2b = @import("blake2b.zig").Blake2b;
const Writer = @import("fields.zig").Writer;

pub const ask_name = "x-meshcache-ask";
pub const keep_name = "x-meshcache-keep";
pub const drop_name = "x-meshcache-drop";

pub const max_labels = 32;
pub const max_vary = 8;
/// Characters of the names that an answer varies on, with the commas between them.
pub const max_vary_bytes = 256;
/// The longest mark that is read. A drop of more labels than fit is one of everything.
pub const longest = 8192;
/// Bytes that `writeAsk` needs.
pub const ask_bytes = 2 + 1 + 16 + 1 + 64 + 1 + 6 + 1 + 32;

/// The last moment that a mark can name, in Unix milliseconds.
const latest = (1 << 53) - 1;
/// Flag of `Keep`: the answer may be given to requests with cookies.
pub const for_cookies: u16 = 1;

pub const Why = enum { miss, stale, renew, unsafe };

pub const Digest = [32]u8;
/// In place of a key's digest, for a request that is unsafe.
pub const no_key: Digest = @splat(0);

/// Whom the marks are exchanged with.
pub const Party = struct { plan: [8]u8, secret: [32]u8 };

/// The digest by which a key is named.
pub fn digestOf(material: []const u8) Digest {
    var digest: Digest = undefined;
    var hasher: Blake2b = .init(digest.len, &.{});
    hasher.update(material);
    hasher.final(&digest);
    return digest;
}

/// For how long an answer may be given. Times are Unix milliseconds.
pub const Keep = struct {
    birth: i64,
    fresh_until: i64,
    stale_until: i64,
    drop_at: i64,
    renew_at: i64,
    flags: u16,
    labels: [max_labels]u64,
    label_count: usize,
    /// Names of request fields, as they stand in the mark.
    vary: [max_vary][]const u8,
    vary_count: usize,
};

pub const Drop = union(enum) {
    everything,
    /// As they stand in the mark: `label` reads them. May be none.
    labels: []const u8,

    pub fn count(self: Drop) usize {
        return (self.labels.len + 1) / 17;
    }

    pub fn label(self: Drop, number: usize) u64 {
        return hexadecimal(self.labels[17 * number ..][0..16]) orelse 0;
    }
};

/// The value of `x-meshcache-ask`, in `into`.
pub fn writeAsk(into: *[ask_bytes]u8, party: *const Party, digest: *const Digest, why: Why) []const u8 {
    var writer: Writer = .{ .bytes = into };
    // It has room for the longest of them.
    put(&writer, party, digest, why) catch unreachable;
    return into[0..writer.len];
}

fn put(out: *Writer, party: *const Party, digest: *const Digest, why: Why) error{NoRoom}!void {
    try out.put("v1 ");
    try out.hexadecimal(&party.plan);
    try out.byte(' ');
    try out.hexadecimal(digest);
    try out.byte(' ');
    try out.put(@tagName(why));
    const proof = prove(ask_name, out.bytes[0..out.len], party);
    try out.byte(' ');
    try out.hexadecimal(&proof);
}

/// What `value` allows for the key of `digest`; null when it is not of the form, not proven, or about something else.
pub fn parseKeep(value: []const u8, party: *const Party, digest: *const Digest) ?Keep {
    var words = begin(keep_name, value, party, digest) orelse return null;
    var keep: Keep = undefined;
    keep.birth = moment(words.next()) orelse return null;
    keep.fresh_until = moment(words.next()) orelse return null;
    keep.stale_until = moment(words.next()) orelse return null;
    keep.drop_at = moment(words.next()) orelse return null;
    keep.renew_at = moment(words.next()) orelse return null;
    const flags = words.next() orelse return null;
    if (flags.len == 0 or flags.len > 8) return null;
    keep.flags = @truncate(hexadecimal(flags) orelse return null);
    const labels = words.next() orelse return null;
    keep.label_count = 0;
    var listed = mem.split(labels, ',');
    while (listed.next()) |text| {
        if (text.len != 16 or keep.label_count == max_labels) return null;
        keep.labels[keep.label_count] = hexadecimal(text) orelse return null;
        keep.label_count += 1;
    }
    const vary = words.next() orelse return null;
    keep.vary_count = 0;
    if (vary.len > max_vary_bytes) return null;
    if (!equal(vary, "-")) {
        var names = mem.split(vary, ',');
        while (names.next()) |name| {
            if (name.len == 0 or keep.vary_count == max_vary) return null;
            keep.vary[keep.vary_count] = name;
            keep.vary_count += 1;
        }
    }
    return if (words.next() == null) keep else null;
}

/// What `value`, on the answer to an unsafe request, says to drop; null as for `parseKeep`.
pub fn parseDrop(value: []const u8, party: *const Party) ?Drop {
    var words = begin(drop_name, value, party, &no_key) orelse return null;
    const said = words.next() orelse return null;
    if (words.next() != null) return null;
    if (equal(said, "*")) return .everything;
    if (equal(said, "-")) return .{ .labels = &.{} };
    var listed = mem.split(said, ',');
    while (listed.next()) |text| {
        if (text.len != 16 or hexadecimal(text) == null) return null;
    }
    return .{ .labels = said };
}

const Words = mem.Pieces;

/// The words of a mark behind those that say what it is about.
fn begin(name: []const u8, value: []const u8, party: *const Party, digest: *const Digest) ?Words {
    if (value.len > longest) return null;
    const blank = mem.findLast(value, ' ') orelse return null;
    const given = value[blank + 1 ..];
    const text = value[0..blank];
    const proof = prove(name, text, party);
    if (!isHexadecimalOf(given, &proof)) return null;
    var words = mem.split(text, ' ');
    if (!equal(words.next() orelse return null, "v1")) return null;
    if (!isHexadecimalOf(words.next() orelse return null, &party.plan)) return null;
    if (!isHexadecimalOf(words.next() orelse return null, digest)) return null;
    return words;
}

fn prove(name: []const u8, text: []const u8, party: *const Party) [16]u8 {
    var hasher: Blake2b = .init(16, &party.secret);
    hasher.update(name);
    hasher.update(" ");
    hasher.update(text);
    var digest: [16]u8 = undefined;
    hasher.final(&digest);
    return digest;
}

/// Takes as long whatever differs.
noinline fn isHexadecimalOf(text: []const u8, bytes: []const u8) bool {
    if (text.len != 2 * bytes.len) return false;
    var different = false;
    for (bytes, 0..) |byte, place| {
        const found = hexadecimal(text[2 * place ..][0..2]) orelse 0x100;
        different = different or found != byte;
    }
    return !different;
}

/// A number of lower-case digits, 16 at most; null for anything else.
fn hexadecimal(text: []const u8) ?u64 {
    if (text.len == 0 or text.len > 16) return null;
    var number: u64 = 0;
    for (text) |character| {
        const digit: u8 = switch (character) {
            '0'...'9' => character - '0',
            'a'...'f' => character - 'a' + 10,
            else => return null,
        };
        number = number << 4 | digit;
    }
    return number;
}

fn moment(word: ?[]const u8) ?i64 {
    const text = word orelse return null;
    if (text.len == 0 or text.len > 16) return null;
    var number: i64 = 0;
    for (text) |character| {
        if (character < '0' or character > '9') return null;
        number = number * 10 + (character - '0');
    }
    return if (number <= latest) number else null;
}

const testing = std.testing;
const party_of_tests: Party = .{ .plan = "planplan".*, .secret = "0123456789abcdef0123456789abcdef".* };

fn proven(into: []u8, name: []const u8, text: []const u8) []const u8 {
    const proof = prove(name, text, &party_of_tests);
    return std.fmt.bufPrint(into, "{s} {x}", .{ text, &proof }) catch unreachable;
}

test "an ask is the one that the sidecar would write" {
    var memory: [ask_bytes]u8 = undefined;
    const digest = digestOf("material");
    try testing.expectEqualStrings(
        "v1 706c616e706c616e 2c1edf88d40e7bfefbd3658f9b0afc1a13a1c0372ed61967a6f75f099c6f23c3" ++
            " unsafe e12d1e475e737f0df273cf1ec34ae6bb",
        writeAsk(&memory, &party_of_tests, &digest, .unsafe),
    );
}

test "a keep is read when all of it is right, and only then" {
    var memory: [1024]u8 = undefined;
    const digest = digestOf("material");
    var text: [512]u8 = undefined;
    const words = try std.fmt.bufPrint(&text, "v1 {x} {x} 1 20 300 4000 0 1 00000000000000ff,0123456789abcdef accept,x-a", .{ &party_of_tests.plan, &digest });
    const value = proven(&memory, keep_name, words);
    const keep = parseKeep(value, &party_of_tests, &digest).?;
    try testing.expectEqual(1, keep.birth);
    try testing.expectEqual(4000, keep.drop_at);
    try testing.expectEqual(for_cookies, keep.flags);
    try testing.expectEqualSlices(u64, &.{ 0xff, 0x0123456789abcdef }, keep.labels[0..keep.label_count]);
    try testing.expectEqualStrings("x-a", keep.vary[1]);

    const other = digestOf("other");
    try testing.expectEqual(null, parseKeep(value, &party_of_tests, &other));
    const stranger: Party = .{ .plan = party_of_tests.plan, .secret = @splat(1) };
    try testing.expectEqual(null, parseKeep(value, &stranger, &digest));
    const later: Party = .{ .plan = @splat('p'), .secret = party_of_tests.secret };
    try testing.expectEqual(null, parseKeep(value, &later, &digest));
    // Neither cut off anywhere, nor changed anywhere.
    var changed: [1024]u8 = undefined;
    for (0..value.len) |place| {
        try testing.expectEqual(null, parseKeep(value[0..place], &party_of_tests, &digest));
        @memcpy(changed[0..value.len], value);
        changed[place] +%= 1;
        try testing.expectEqual(null, parseKeep(changed[0..value.len], &party_of_tests, &digest));
    }
    // Nor what is proven for another field.
    try testing.expectEqual(null, parseKeep(proven(&memory, drop_name, words), &party_of_tests, &digest));
}

test "what is proven but not of the form is refused" {
    var text: [1024]u8 = undefined;
    var memory: [2048]u8 = undefined;
    const digest = digestOf("material");
    const label = "0123456789abcdef";
    inline for (.{
        "1 2 3 4 0 1 " ++ label,
        "1 2 3 4 0 1 " ++ label ++ " - -",
        "1 2 3 4 0 1 " ++ label ++ " a,,b",
        "1 2 3 4 0 1 " ++ label ++ " ",
        "1 2 3 4 0 1 " ++ label ++ " a,b,c,d,e,f,g,h,i",
        "1 2 3 4 0 1 " ++ label ++ ", -",
        "1 2 3 4 0 1 0123 -",
        "1 2 3 4 0 123456789 " ++ label ++ " -",
        "1 2 3 4 0 g " ++ label ++ " -",
        "-1 2 3 4 0 1 " ++ label ++ " -",
        "1 2 3 4 9007199254740992 1 " ++ label ++ " -",
        "1 2 3 4 11111111111111111 1 " ++ label ++ " -",
    }) |rest| {
        const words = try std.fmt.bufPrint(&text, "v1 {x} {x} " ++ rest, .{ &party_of_tests.plan, &digest });
        try testing.expectEqual(null, parseKeep(proven(&memory, keep_name, words), &party_of_tests, &digest));
    }
}

test "a drop names labels, everything or nothing" {
    var text: [512]u8 = undefined;
    var memory: [1024]u8 = undefined;
    inline for (.{ "*", "-", "00000000000000ff,0123456789abcdef" }, .{ null, 0, 2 }) |said, count| {
        const words = try std.fmt.bufPrint(&text, "v1 {x} {x} " ++ said, .{ &party_of_tests.plan, &no_key });
        const drop = parseDrop(proven(&memory, drop_name, words), &party_of_tests).?;
        if (@as(?usize, count)) |expected| {
            try testing.expectEqual(expected, drop.count());
            if (expected == 2) try testing.expectEqual(0xff, drop.label(0));
            if (expected == 2) try testing.expectEqual(0x0123456789abcdef, drop.label(1));
        } else try testing.expectEqual(Drop.everything, drop);
    }
    inline for (.{ "", "00000000000000ff,", "ff", "* *", "00000000000000fF" }) |said| {
        const words = try std.fmt.bufPrint(&text, "v1 {x} {x} " ++ said, .{ &party_of_tests.plan, &no_key });
        try testing.expectEqual(null, parseDrop(proven(&memory, drop_name, words), &party_of_tests));
    }
}
