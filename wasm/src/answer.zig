//! How a stored answer goes out: its fields with `age` and `cache-status`, whole or as a 304. What `cache-status` says is
//! what `engine.report` and `rfc.cache_status` say of a hit, word by word.

const std = @import("std");
const mem = @import("bytes.zig");
const equal = @import("equal.zig").equal;
const little = @import("little.zig");
const conditions = @import("conditions.zig");
const fields = @import("fields.zig");
const entry_file = @import("entry.zig");
const Hit = @import("hit.zig").Hit;
const Shown = @import("decide.zig").Shown;

const View = fields.View;
const Writer = fields.Writer;
const NoRoom = error{NoRoom};

/// Flag of an entry, beside those of its mark: the answer has no `content-type`.
pub const untyped: u16 = 1 << 15;
/// And: it has been given before.
pub const given: u16 = 1 << 14;

const max_extra = 3;
/// Bytes of a value that is made here.
const max_made = 4096;
const head_bytes = 4 + 8 * (entry_file.max_fields + max_extra);
const reply_bytes = head_bytes + entry_file.max_fields_bytes + max_extra * max_made;

/// Memory for one answer at a time.
pub const Room = struct {
    whole: [reply_bytes]u8 = undefined,
    reduced: [reply_bytes]u8 = undefined,
    made: Made = .{},
    condition: [8192]u8 = undefined,
};

/// What an answer tells of how it came about.
pub const Told = struct {
    shown: Shown,
    stale: bool,
    /// Empty where the route has no experiment. Both are names that may stand in quotes as they are: the plan has no others.
    arm: []const u8,
    policy: []const u8,
};

pub const Reply = struct {
    status: u16,
    /// In the host's serialised form.
    pairs: []const u8,
    body: []const u8,
    age_ms: u64,
};

/// The answer to `request` at `now_ms`; null when it would be longer than there is room for, or lose some of its fields.
pub fn compose(hit: *const Hit, request: *const View, told: *const Told, now_ms: i64, room: *Room) ?Reply {
    const entry = hit.entry;
    const age_ms: u64 = @intCast(@max(0, now_ms -| entry.times.birth));
    const made = &room.made;
    made.count = 0;
    made.len = 0;
    made.number("age", age_ms / 1000) catch return null;
    made.cacheStatus(told, entry.times.fresh_until -| now_ms) catch return null;
    // Without one Envoy would make it text/plain. An empty one says as little as none.
    if (entry.flags & untyped != 0 and entry.body > 0) made.field("content-type", "") catch return null;

    const count = @as(usize, entry.fields) + made.count;
    const sizes = room.whole[4 .. 4 + 8 * count];
    const text = room.whole[4 + 8 * count ..];
    if (hit.textLength() + made.len > text.len or count > entry_file.max_fields + max_extra) return null;
    little.write(u32, room.whole[0..4], @intCast(count));
    hit.copyFields(sizes, text);
    @memcpy(sizes[hit.sizesLength()..], made.sizes[0 .. 8 * made.count]);
    @memcpy(text[hit.textLength()..][0..made.len], made.memory[0..made.len]);
    const pairs = room.whole[0 .. 4 + 8 * count + hit.textLength() + made.len];

    if (request.has.contains(.if_none_match) and unmodified(request, hit, text, &room.condition)) {
        return .{ .status = 304, .pairs = reduce(pairs, &room.reduced), .body = &.{}, .age_ms = age_ms };
    }
    // From an answer without a body Envoy takes the type, and for HEAD the length.
    if (entry.body == 0 and entry.status != 204 and (entry.flags & untyped == 0 or equal(request.method.?, "HEAD"))) return null;
    return .{ .status = entry.status, .pairs = pairs, .body = hit.body(), .age_ms = age_ms };
}

/// Fields that are made for an answer.
const Made = struct {
    sizes: [8 * max_extra]u8 = undefined,
    count: usize = 0,
    memory: [max_extra * max_made]u8 = undefined,
    len: usize = 0,

    fn begin(self: *Made, name: []const u8) NoRoom!Writer {
        var out: Writer = .{ .bytes = &self.memory, .len = self.len };
        little.write(u32, self.sizes[8 * self.count ..][0..4], @intCast(name.len));
        try out.put(name);
        try out.byte(0);
        return out;
    }

    fn end(self: *Made, out: *Writer, began: usize) NoRoom!void {
        little.write(u32, self.sizes[8 * self.count + 4 ..][0..4], @intCast(out.len - began));
        try out.byte(0);
        self.len = out.len;
        self.count += 1;
    }

    fn field(self: *Made, name: []const u8, value: []const u8) NoRoom!void {
        var out = try self.begin(name);
        const began = out.len;
        try out.put(value);
        try self.end(&out, began);
    }

    fn number(self: *Made, name: []const u8, value: u64) NoRoom!void {
        var out = try self.begin(name);
        const began = out.len;
        try out.decimal(value);
        try self.end(&out, began);
    }

    fn cacheStatus(self: *Made, told: *const Told, left_ms: i64) NoRoom!void {
        if (told.shown == .off) return;
        var out = try self.begin("cache-status");
        const began = out.len;
        try out.put("meshcache; hit");
        if (told.shown != .minimal) {
            try out.put("; ttl=");
            // Whole seconds, rounded down; far from the largest integer of structured fields, as marks name no later moment.
            const left = @divFloor(left_ms, 1000);
            if (left < 0) try out.byte('-');
            try out.decimal(@abs(left));
        }
        if (told.shown == .full) {
            try out.put(if (told.stale) "; detail=\"stale-swr tier=wasm " else "; detail=\"tier=wasm ");
            if (told.arm.len > 0) {
                try out.put("arm=");
                try out.put(told.arm);
                try out.byte(' ');
            }
            try out.put("policy=");
            try out.put(told.policy);
            try out.byte('"');
        }
        try self.end(&out, began);
    }
};

fn unmodified(request: *const View, hit: *const Hit, text: []const u8, memory: []u8) bool {
    var writer: Writer = .{ .bytes = memory };
    // What does not fit gets the whole answer, which is never wrong.
    const sent = (request.joined("if-none-match", &writer) catch return false) orelse return false;
    return conditions.notModified(sent, hit.entry.status, hit.etag(text));
}

/// The fields that a generated 304 has (`rfc.validation.not_modified_fields`).
fn reduce(pairs: []const u8, into: *[reply_bytes]u8) []const u8 {
    var tagged = false;
    var walk: Walk = .of(pairs);
    while (walk.next()) |pair| tagged = tagged or equal(pair.name, "etag");

    var kept: usize = 0;
    walk = .of(pairs);
    while (walk.next()) |pair| {
        if (!mem.among(pair.name, &left_out) and !(tagged and equal(pair.name, "last-modified"))) kept += 1;
    }
    little.write(u32, into[0..4], @intCast(kept));
    var out: Writer = .{ .bytes = into, .len = 4 + 8 * kept };
    var place: usize = 0;
    walk = .of(pairs);
    while (walk.next()) |pair| {
        if (mem.among(pair.name, &left_out) or (tagged and equal(pair.name, "last-modified"))) continue;
        @memcpy(into[4 + 8 * place ..][0..8], pair.sizes);
        // No more than there was.
        out.put(pair.text) catch unreachable;
        place += 1;
    }
    return into[0..out.len];
}

/// Goes through serialised pairs that were made here.
pub const Walk = struct {
    pairs: []const u8,
    at: usize,
    number: usize = 0,

    const Pair = struct { name: []const u8, sizes: []const u8, text: []const u8 };

    pub fn of(pairs: []const u8) Walk {
        return .{ .pairs = pairs, .at = 4 + 8 * @as(usize, little.read(u32, pairs[0..4])) };
    }

    pub fn next(self: *Walk) ?Pair {
        if (self.number == little.read(u32, self.pairs[0..4])) return null;
        const sizes = self.pairs[4 + 8 * self.number ..][0..8];
        const name = little.read(u32, sizes[0..4]);
        const value = little.read(u32, sizes[4..8]);
        const text = self.pairs[self.at..][0 .. name + value + 2];
        self.at += text.len;
        self.number += 1;
        return .{ .name = text[0..name], .sizes = sizes, .text = text };
    }
};

/// What describes a representation that the client has anyway.
const left_out = [_][]const u8{
    "content-digest", "content-encoding", "content-language", "content-length", "content-md5", "content-range", "content-type", "digest", "repr-digest",
};
