//! From a request to where its route leads, by the precedence of `policy.routing`.

const std = @import("std");
const little = @import("little.zig");
const mem = @import("bytes.zig");
const fields = @import("fields.zig");
const plans = @import("plan.zig");
const Asked = @import("asked.zig").Asked;
const Plan = plans.Plan;
const Source = plans.Source;

/// Paths of more segments than this within the longest prefix are handed on.
const most_segments = 64;

const Condition = struct {
    name: []const u8,
    /// Whether it has to have this value; else it has to be there.
    exact: bool,
    value: []const u8,

    fn read(from: *Source, _: *const Plan) Condition {
        return .{ .name = from.reader.name(), .exact = from.flag(), .value = from.reader.text() };
    }

    fn fits(self: *const Condition, value: []const u8) bool {
        return !self.exact or mem.equal(self.value, value);
    }

    /// Whether one line of the header fits.
    fn ofHeader(self: *const Condition, request: *const fields.View) bool {
        var place = request.next(self.name, 0);
        while (place) |found| : (place = request.next(self.name, found + 1)) {
            if (self.fits(request.fields[found].value)) return true;
        }
        return false;
    }

    /// Whether the first parameter of the name fits, as it is sent.
    fn ofQuery(self: *const Condition, query: []const u8) bool {
        if (query.len == 0) return false;
        var parameters = mem.split(query, '&');
        while (parameters.next()) |pair| {
            const end = mem.find(pair, '=', 0) orelse pair.len;
            if (mem.equal(pair[0..end], self.name)) {
                return self.fits(if (end < pair.len) pair[end + 1 ..] else "");
            }
        }
        return false;
    }
};

/// A match, without host and path.
const Candidate = struct {
    methods: u8,
    /// Whether it asks for more than is known here.
    uncertain: bool,
    bounded: bool,
    /// Between which the paths lie that it may fit, if they are bounded.
    least: []const u8,
    most: []const u8,
    target: u16,
    headers: []const Condition,
    parameters: []const Condition,

    fn read(from: *Source, plan: *const Plan) Candidate {
        const reader = &from.reader;
        const methods = reader.int(u8);
        const bits = reader.below(u8, 4);
        const target = reader.below(u16, plan.targets.len);
        const bounded = bits & 2 != 0;
        return .{
            .methods = methods,
            .uncertain = bits & 1 != 0,
            .bounded = bounded,
            .target = target,
            .least = if (bounded) reader.text() else "",
            .most = if (bounded) reader.text() else "",
            .headers = from.list(Condition, u16, plan, Condition.read),
            .parameters = from.list(Condition, u16, plan, Condition.read),
        };
    }

    fn mayFit(self: *const Candidate, asked: *const Asked, request: *const fields.View) bool {
        if (self.methods & asked.method == 0) return false;
        if (self.bounded) {
            if (std.mem.order(u8, asked.path, self.least) == .lt) return false;
            if (std.mem.order(u8, asked.path, self.most) == .gt) return false;
        }
        for (self.headers) |*condition| if (!condition.ofHeader(request)) return false;
        for (self.parameters) |*condition| if (!condition.ofQuery(asked.query)) return false;
        return true;
    }
};

/// The matches of one path, in the order in which they count.
const Group = struct {
    candidates: []const Candidate,

    fn read(from: *Source, plan: *const Plan) Group {
        return .{ .candidates = from.list(Candidate, u16, plan, Candidate.read) };
    }

    fn find(self: *const Group, asked: *const Asked, request: *const fields.View) ?Found {
        for (self.candidates) |*candidate| {
            if (candidate.mayFit(asked, request)) return if (candidate.uncertain) .uncertain else .{ .target = candidate.target };
        }
        return null;
    }
};

pub const Found = union(enum) {
    /// A place in the plan's targets.
    target: u16,
    /// Perhaps another match fits, which cannot be told here.
    uncertain,
    /// No match fits.
    none,
};

const Host = struct {
    kind: enum(u8) { any, this, below },
    /// Of `below` with its first dot.
    text: []const u8,
    expressions: u32 = none,
    any: u32 = none,
    /// Lengths of the longest and the shortest prefix; 0 without any.
    longest: u16 = 0,
    shortest: u16 = 0,
    exact: bool = false,

    const none = std.math.maxInt(u32);

    fn read(from: *Source, _: *const Plan) Host {
        return .{ .kind = @fromBackingInt(@intCast(from.reader.below(u8, 3))), .text = from.reader.text() };
    }
};

const Path = struct {
    host: u16,
    kind: enum(u8) { exact, prefix, expressions, any },
    text: []const u8,
    group: u32,
};

/// Places of items by what stands in them, with open addressing.
const Table = struct {
    /// Each one more than a place; 0 for none.
    slots: []u32,

    fn init(from: *Source, items: usize) Table {
        const slots = from.alloc(u32, std.math.ceilPowerOfTwoAssert(usize, 2 * items + 1));
        @memset(slots, 0);
        return .{ .slots = slots };
    }

    fn put(self: *Table, hashed: u32, place: usize) void {
        var slot = hashed & (self.slots.len - 1);
        while (self.slots[slot] != 0) slot = (slot + 1) & (self.slots.len - 1);
        self.slots[slot] = @intCast(place + 1);
    }
};

pub const Index = struct {
    hosts: []const Host,
    groups: []const Group,
    paths: []const Path,
    by_host: Table,
    by_path: Table,
    any: ?*const Host,
    /// Whether there is any host of `this` or `below`.
    named: bool,
    below: bool,

    pub fn read(from: *Source, plan: *const Plan) Index {
        const hosts = @constCast(from.list(Host, u16, plan, Host.read));
        var made: Index = .{
            .hosts = hosts,
            .groups = from.list(Group, u32, plan, Group.read),
            .paths = undefined,
            .by_host = .init(from, hosts.len),
            .by_path = undefined,
            .any = null,
            .named = false,
            .below = false,
        };
        if (from.reader.failed) return made;
        for (hosts, 0..) |*host, place| {
            switch (host.kind) {
                .any => made.any = host,
                .this => made.named = true,
                .below => made.below = true,
            }
            made.by_host.put(hashOf(@backingInt(host.kind), host.text), place);
        }
        const paths = from.alloc(Path, from.number(u32));
        made.paths = paths;
        made.by_path = .init(from, paths.len);
        if (from.reader.failed) return made;
        for (paths, 0..) |*path, place| {
            path.* = .{
                .host = from.reader.below(u16, hosts.len),
                .kind = @fromBackingInt(@intCast(from.reader.below(u8, 4))),
                .text = from.reader.text(),
                .group = from.reader.below(u32, made.groups.len),
            };
            if (from.reader.failed) return made;
            const host = &hosts[path.host];
            switch (path.kind) {
                .expressions => host.expressions = path.group,
                .any => host.any = path.group,
                .exact => host.exact = true,
                .prefix => {
                    const length: u16 = @intCast(path.text.len);
                    from.reader.check(length > 0);
                    host.longest = @max(host.longest, length);
                    host.shortest = if (host.shortest == 0) length else @min(host.shortest, length);
                },
            }
            made.by_path.put(hashOf(seedOf(path.host, path.kind == .prefix), path.text), place);
        }
        return made;
    }

    pub fn find(self: *const Index, asked: *const Asked, request: *const fields.View) Found {
        const host = asked.host;
        if (self.named) {
            if (self.hostOf(.this, host)) |found| {
                if (self.inHost(found, asked, request)) |result| return result;
            }
        }
        if (self.below and host.len > 1) {
            var dot = mem.find(host, '.', 1);
            while (dot) |at| : (dot = mem.find(host, '.', at + 1)) {
                const found = self.hostOf(.below, host[at..]) orelse continue;
                if (self.inHost(found, asked, request)) |result| return result;
            }
        }
        if (self.any) |found| {
            if (self.inHost(found, asked, request)) |result| return result;
        }
        return .none;
    }

    fn hostOf(self: *const Index, kind: @FieldType(Host, "kind"), text: []const u8) ?*const Host {
        const slots = self.by_host.slots;
        var slot = hashOf(@backingInt(kind), text) & (slots.len - 1);
        while (slots[slot] != 0) : (slot = (slot + 1) & (slots.len - 1)) {
            const host = &self.hosts[slots[slot] - 1];
            if (host.kind == kind and mem.equal(host.text, text)) return host;
        }
        return null;
    }

    fn inHost(self: *const Index, host: *const Host, asked: *const Asked, request: *const fields.View) ?Found {
        const path = asked.path;
        if (host.exact) {
            if (self.group(host, false, path)) |found| {
                if (found.find(asked, request)) |result| return result;
            }
        }
        if (host.longest > 0) {
            // The longest first, at the end of each segment.
            var end = path.len;
            if (end > host.longest) end = lastSlash(path[0 .. host.longest + 1]);
            var segments: usize = 0;
            while (end >= host.shortest) : (end = lastSlash(path[0..end])) {
                segments += 1;
                if (segments > most_segments) return .uncertain;
                const found = self.group(host, true, path[0..end]) orelse continue;
                if (found.find(asked, request)) |result| return result;
            }
        }
        if (host.expressions != Host.none) {
            if (self.groups[host.expressions].find(asked, request)) |result| return result;
        }
        return if (host.any == Host.none) null else self.groups[host.any].find(asked, request);
    }

    fn group(self: *const Index, host: *const Host, prefix: bool, text: []const u8) ?*const Group {
        const number = (@intFromPtr(host) - @intFromPtr(self.hosts.ptr)) / @sizeOf(Host);
        const slots = self.by_path.slots;
        var slot = hashOf(seedOf(@intCast(number), prefix), text) & (slots.len - 1);
        while (slots[slot] != 0) : (slot = (slot + 1) & (slots.len - 1)) {
            const path = &self.paths[slots[slot] - 1];
            const kind: @FieldType(Path, "kind") = if (prefix) .prefix else .exact;
            if (path.host == number and path.kind == kind and mem.equal(path.text, text)) return &self.groups[path.group];
        }
        return null;
    }
};

/// The place of the last slash; 0 without any.
fn lastSlash(path: []const u8) usize {
    var at = path.len;
    while (at > 0) {
        at -= 1;
        if (path[at] == '/') return at;
    }
    return 0;
}

fn seedOf(host: u16, prefix: bool) u64 {
    return @as(u64, host) << 1 | @intFromBool(prefix);
}

/// Only for tables whose items are the plan's, so that nobody can make many of them collide.
fn hashOf(seed: u64, text: []const u8) u32 {
    const odd = 0x9E3779B97F4A7C15;
    var state = (seed +% 1) *% odd ^ text.len;
    var left = text;
    while (left.len >= 8) : (left = left[8..]) {
        state = (state ^ little.read(u64, left[0..8])) *% odd;
        state ^= state >> 29;
    }
    var last: u64 = 0;
    for (left) |byte| last = last << 8 | byte;
    state = (state ^ last) *% odd;
    return @truncate(state ^ state >> 32);
}
