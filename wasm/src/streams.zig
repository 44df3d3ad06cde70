//! The streams whose response has to be looked at, in tables of fixed size: what is not remembered is only passed on.

const std = @import("std");
const fills = @import("fills.zig");
const marks = @import("marks.zig");
const slots = @import("slots.zig");
const store = @import("store.zig");

/// Those that are asked for have less room for data than this: the rest is for unsafe requests.
const max_streams = 4096;
const max_small = 768;
const small_bytes = 3 * 1024;
const max_large = 32;
const large_bytes = 32 * 1024;
const heads = 1024;

/// What was asked so long ago, milliseconds, gives way to another question: else who asks for what takes long keeps all
/// others out. If its answer comes, it is kept with the next one who asks for it.
const slow_ms = 1000;

const none = 0xFFFF;

pub const Kind = union(enum) {
    /// The sidecar was asked, and may allow to keep the answer.
    asked: Awaited,
    /// It was answered here, with fields of so many bytes, and they are to be looked at as they go out.
    answered: u32,
    /// The request may change what is stored; null where nobody could be asked what.
    unsafe: ?marks.Party,
};

pub const Awaited = struct {
    digest: marks.Digest,
    hash: u64,
    born: slots.Born,
    pool: u16,
    /// Bytes of the largest body to keep.
    largest: u32,
    pairs: u32,
    material: u32,
    fill: ?store.Handle = null,
};

pub const Stream = struct {
    id: u32,
    /// The next of the same head, or of the free ones.
    next: u16,
    /// Number of its room for data, `max_small` and above for a large one.
    room: u16,
    /// Counts plans: what was asked under one that is gone is not kept.
    plan: u32,
    kind: Kind,
};

pub const Streams = struct {
    heads: [heads]u16,
    streams: [max_streams]Stream,
    free: u16,
    small: Rooms(max_small, small_bytes),
    large: Rooms(max_large, large_bytes),

    pub fn init(self: *Streams) void {
        self.heads = @splat(none);
        for (&self.streams, 0..) |*stream, place| stream.next = if (place + 1 < max_streams) @intCast(place + 1) else none;
        self.free = 0;
        self.small.init();
        self.large.init();
    }

    pub fn get(self: *Streams, id: u32) ?*Stream {
        var place = self.heads[id % heads];
        while (place != none) {
            const stream = &self.streams[place];
            if (stream.id == id) return stream;
            place = stream.next;
        }
        return null;
    }

    /// Remembers a request that was asked for by its fields, as the host gave them, and its key; null when there is no
    /// room for that (`slowest`).
    pub fn ask(self: *Streams, id: u32, plan: u32, asked: Awaited, pairs: []const u8, material: []const u8, now_ms: i64) ?*Stream {
        var kind: Kind = .{ .asked = asked };
        kind.asked.pairs = @intCast(pairs.len);
        kind.asked.material = @intCast(material.len);
        return self.hold(id, plan, kind, pairs, material, now_ms);
    }

    /// Remembers the fields of an answer, as it was given; null as for `ask`.
    pub fn answer(self: *Streams, id: u32, pairs: []const u8, now_ms: i64) ?*Stream {
        return self.hold(id, 0, .{ .answered = @intCast(pairs.len) }, pairs, "", now_ms);
    }

    fn hold(self: *Streams, id: u32, plan: u32, kind: Kind, first: []const u8, second: []const u8, now_ms: i64) ?*Stream {
        const bytes = first.len + second.len;
        if (self.free == none) return null;
        const holder: Holder = .{ .id = id, .since = now_ms };
        const room: u16 = if (bytes <= small_bytes)
            self.small.take(holder) orelse return null
        else if (bytes <= large_bytes)
            max_small + (self.large.take(holder) orelse return null)
        else
            return null;
        const stream = self.add(id, plan, kind).?;
        stream.room = room;
        const memory = self.data(stream);
        @memcpy(memory[0..first.len], first);
        @memcpy(memory[first.len..][0..second.len], second);
        return stream;
    }

    /// The stream that gives way to one with so many bytes, when there is no room for both: of those that were asked for
    /// by as few, the one that has waited longest. Null where none has waited long, or no room is as large.
    pub fn slowest(self: *const Streams, bytes: usize, now_ms: i64) ?u32 {
        if (bytes > large_bytes) return null;
        const holders: []const Holder = if (bytes <= small_bytes) &self.small.holders else &self.large.holders;
        var found = holders[0];
        for (holders[1..]) |holder| {
            if (holder.since < found.since) found = holder;
        }
        return if (fills.isPast(found.since, slow_ms, now_ms)) found.id else null;
    }

    /// Remembers an unsafe request; null when there is no room at all.
    pub fn guard(self: *Streams, id: u32, plan: u32, party: ?marks.Party) ?*Stream {
        return self.add(id, plan, .{ .unsafe = party });
    }

    /// The fields of the request that was asked for, or of the answer.
    pub fn pairsOf(self: *Streams, stream: *const Stream) []const u8 {
        return self.data(stream)[0..if (stream.kind == .asked) stream.kind.asked.pairs else stream.kind.answered];
    }

    /// Its key's material.
    pub fn materialOf(self: *Streams, stream: *const Stream) []const u8 {
        return self.data(stream)[stream.kind.asked.pairs..][0..stream.kind.asked.material];
    }

    /// Forgets a stream, if it was remembered, and gives what was.
    pub fn forget(self: *Streams, id: u32) ?Kind {
        var link = &self.heads[id % heads];
        while (link.* != none) {
            const place = link.*;
            const stream = &self.streams[place];
            if (stream.id != id) {
                link = &stream.next;
                continue;
            }
            link.* = stream.next;
            stream.next = self.free;
            self.free = place;
            if (stream.room != none) {
                if (stream.room < max_small) self.small.give(stream.room) else self.large.give(stream.room - max_small);
            }
            return stream.kind;
        }
        return null;
    }

    fn add(self: *Streams, id: u32, plan: u32, kind: Kind) ?*Stream {
        const place = self.free;
        if (place == none) return null;
        const stream = &self.streams[place];
        self.free = stream.next;
        const head = &self.heads[id % heads];
        stream.* = .{ .id = id, .next = head.*, .room = none, .plan = plan, .kind = kind };
        head.* = place;
        return stream;
    }

    fn data(self: *Streams, stream: *const Stream) []u8 {
        if (stream.room < max_small) return &self.small.memory[stream.room];
        return &self.large.memory[stream.room - max_small];
    }
};

/// Which stream has a room, and since when.
const Holder = struct { id: u32, since: i64 };

/// Rooms of one size.
fn Rooms(comptime count: u16, comptime size: usize) type {
    return struct {
        memory: [count][size]u8,
        /// Of rooms that nobody has, who had them last.
        holders: [count]Holder,
        next: [count]u16,
        free: u16,

        fn init(self: *@This()) void {
            for (&self.next, 0..) |*next, place| next.* = if (place + 1 < count) @intCast(place + 1) else none;
            self.holders = @splat(.{ .id = 0, .since = 0 });
            self.free = 0;
        }

        fn take(self: *@This(), holder: Holder) ?u16 {
            const place = self.free;
            if (place == none) return null;
            self.free = self.next[place];
            self.holders[place] = holder;
            return place;
        }

        fn give(self: *@This(), place: u16) void {
            self.next[place] = self.free;
            self.free = place;
        }
    };
}

const testing = std.testing;
var tested: Streams = undefined;

test "what has waited longest gives way, once that is long" {
    tested.init();
    const asked: Awaited = .{ .digest = @splat(0), .hash = 1, .born = 0, .pool = 0, .largest = 9, .pairs = 0, .material = 0 };
    var id: u32 = 1;
    while (tested.ask(id, 7, asked, "pairs", "material", 5000 + id)) |_| id += 1;
    try testing.expectEqual(null, tested.slowest(13, 5000 + slow_ms));
    try testing.expectEqual(1, tested.slowest(13, 5001 + slow_ms).?);
    try testing.expect(tested.forget(1) != null);
    try testing.expect(tested.ask(id, 7, asked, "pairs", "material", 9000) != null);
    try testing.expectEqual(2, tested.slowest(13, 9000).?);
    // As large ones are.
    const long: [small_bytes]u8 = @splat('x');
    for (0..max_large) |place| try testing.expect(tested.ask(@intCast(9000 + place), 7, asked, &long, "material", 1000) != null);
    try testing.expectEqual(null, tested.ask(10000, 7, asked, &long, "material", 1000));
    try testing.expectEqual(null, tested.slowest(long.len + 8, 1000));
    try testing.expectEqual(9000, tested.slowest(long.len + 8, 9000).?);
    try testing.expectEqual(null, tested.slowest(large_bytes + 1, 9000));
}

test "what is remembered is found until it is forgotten, and room is used again" {
    tested.init();
    const asked: Awaited = .{ .digest = @splat(0), .hash = 1, .born = 0, .pool = 0, .largest = 9, .pairs = 0, .material = 0 };
    const party: marks.Party = .{ .plan = @splat(0), .secret = @splat(0) };
    for (0..3) |_| {
        var id: u32 = 1;
        var held: usize = 0;
        while (tested.ask(id, 7, asked, "pairs", "material", 0)) |stream| : (id += heads) {
            try testing.expectEqual(stream, tested.get(id).?);
            held += 1;
        }
        try testing.expectEqual(max_small, held);
        const long: [large_bytes - 8]u8 = @splat('x');
        const stream = tested.ask(2, 7, asked, &long, "material", 0).?;
        try testing.expectEqualStrings("material", tested.materialOf(stream));
        try testing.expectEqualStrings(&long, tested.pairsOf(stream));
        try testing.expectEqual(null, tested.ask(3, 7, asked, &long, "material ", 0));
        while (held > 0) : (held -= 1) {
            id -= heads;
            try testing.expectEqualStrings("material", tested.materialOf(tested.get(id).?));
            try testing.expect(tested.forget(id) != null);
            try testing.expectEqual(null, tested.get(id));
        }
        try testing.expect(tested.forget(2) != null);
        try testing.expectEqual(null, tested.forget(2));
    }
    const answered = tested.answer(5, "fields", 0).?;
    try testing.expectEqualStrings("fields", tested.pairsOf(answered));
    try testing.expectEqual(6, tested.forget(5).?.answered);
    // Those that are asked for leave room for the unsafe.
    var id: u32 = 0;
    while (tested.ask(id, 7, asked, "pairs", "material", 0)) |_| id += 1;
    try testing.expectEqual(max_small, id);
    while (tested.guard(id, 7, party)) |_| id += 1;
    try testing.expectEqual(max_streams, id);
    while (id > 0) : (id -= 1) try testing.expect(tested.forget(id - 1) != null);
}
