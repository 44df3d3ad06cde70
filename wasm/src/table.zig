//! The table in which the filter's counts gather, and its form as a batch (`numbers`). Of fixed size.
//!
//! A hit is counted in two steps: `plain` and `exposed` find its places, or say that there is none left, in which case
//! the request is handed on, for the sidecar to count; `countPlain` and `countExposed` count it once it is answered.
//! Both steps are of one callback: a batch never begins between them. Every hit is counted once as plain, under the
//! tag of its route, arm and policy, and besides once for each experiment that it counts in. What goes past the sidecar
//! to the origin is counted as plain too (`countPassed`).
//!
//! Tags are opaque bytes of the plan. As long as a plan is in force a tag is known by where it lies, so it must not
//! move; the table has a copy of those that it needs.
//!
//!     batch   "MCN1" | u16 format | u64 worker | u64 sequence | plan id, 8 bytes | u32 groups | groups
//!     group   u8 1 | u16 n | tag | u64 fresh | u64 stale | u64 not modified | u64 body bytes | u64 age ms | u64 passed
//!             u8 2 | u16 n | tag | u16 arm | u32 n | n * (u16 bin | u32 count) | u32 n | n * row
//!     row     unit, 16 bytes | u32 requests | u32 stale | u64 latency us | u64 latency square, ms^2
//!             | u32 latency us of one of them | u64 age ms
//!
//! Little endian; bins are those of `meshcache.experiment.bins`.

const std = @import("std");
const equal = @import("equal.zig").equal;
const little = @import("little.zig");
const Bins = @import("bins.zig").Bins;
const bin_count = @import("bins.zig").count;
const highest_us = @import("bins.zig").highest_us;

pub const format: u16 = 1;
/// The longest batch, in bytes: a table that is full in every respect. The sidecar takes up to 2 MiB.
pub const max_batch = header_bytes + max_plain * plain_bytes + max_groups * (group_bytes + bin_count * bin_bytes) +
    max_rows * row_bytes + max_tag_bytes;
/// Different (experiment, arm, unit) of one batch.
pub const max_rows = 16384;

/// Different plain tags of one batch.
const max_plain = 1024;
const plain_slot_count = 2 * max_plain;
/// Different (experiment, arm) of one batch.
const max_groups = 128;
/// All tags of one batch, each as often as it stands there.
const max_tag_bytes = 128 * 1024;
const slot_count = 2 * max_rows;

const header_bytes = 4 + 2 + 8 + 8 + 8 + 4;
const plain_bytes = 1 + 2 + 6 * 8;
const group_bytes = 1 + 2 + 2 + 4 + 4;
const bin_bytes = 2 + 4;
const row_bytes = 16 + 4 + 4 + 8 + 8 + 4 + 8;

/// What one hit has shown, whether or not it counts in an experiment.
pub const Hit = struct {
    stale: bool,
    /// Answered 304.
    not_modified: bool,
    /// Bytes of body that were sent.
    bytes: u64,
    age_ms: u64,
};

/// A tag by where it lies in the plan that was in force, so that those of a plan that is gone are not found again.
const Tag = struct {
    address: usize,
    plan: u32,

    fn hash(self: Tag) u64 {
        return (self.address ^ @as(u64, self.plan) << 40) *% 0x9e3779b97f4a7c15;
    }
};

const Kept = struct { at: u32, len: u16 };

const Plain = struct {
    tag: Tag,
    name: Kept,
    fresh: u64,
    stale: u64,
    not_modified: u64,
    bytes: u64,
    age_ms: u64,
    passed: u64,
};

const Group = struct {
    tag: Tag,
    arm: u16,
    name: Kept,
    /// The first and the last row, plus 1.
    first: u16,
    last: u16,
    /// Rows and bins with requests.
    rows: u32,
    used_bins: u32,
    counts: [bin_count]u32,
};

const Row = struct {
    tag: Tag,
    arm: u16,
    unit: [16]u8,
    group: u16,
    /// The next row of the group, plus 1.
    next: u16,
    requests: u32,
    stale: u32,
    sampled_us: u32,
    latency_us: u64,
    square: u64,
    age_ms: u64,
};

/// In static memory; `init` first.
pub const Table = struct {
    plan_id: [8]u8,
    plan: u32,
    draw: u64,
    bins: Bins,

    plain_count: u16,
    group_count: u16,
    row_count: u16,
    tag_bytes: u32,
    /// Whether anything was counted into the table.
    counted: bool,
    plain_slots: [plain_slot_count]u16,
    plains: [max_plain]Plain,
    groups: [max_groups]Group,
    rows: [max_rows]Row,
    slots: [slot_count]u16,
    tags: [max_tag_bytes]u8,

    /// `seed` is drawn.
    pub fn init(self: *Table, seed: u64) void {
        self.plan_id = @splat(0);
        self.plan = 0;
        self.draw = seed;
        self.bins.init();
        self.clear();
    }

    /// A new plan is in force: other tags lie where those of the last one lay.
    pub fn newPlan(self: *Table, plan_id: [8]u8) void {
        self.plan_id = plan_id;
        self.plan +%= 1;
    }

    /// The place of requests with this plain tag; null when there is no room, and the request is to be handed on.
    pub fn plain(self: *Table, name: []const u8) ?u16 {
        const tag = self.tagOf(name);
        var slot: usize = @intCast(tag.hash() >> 32 & (plain_slot_count - 1));
        while (self.plain_slots[slot] != 0) : (slot = (slot + 1) % plain_slot_count) {
            const place = self.plain_slots[slot] - 1;
            if (std.meta.eql(self.plains[place].tag, tag)) return place;
        }
        return self.newPlain(slot, tag, name);
    }

    /// The place of hits of this unit in this arm of the tag's experiment; null as for `plain`.
    pub fn exposed(self: *Table, name: []const u8, arm: u16, unit: *const [16]u8) ?u16 {
        const tag = self.tagOf(name);
        // Units are keyed digests: nobody outside can choose them to meet in one slot.
        const mixed = (little.read(u64, unit[8..16]) ^ tag.hash() ^ arm) *% 0xff51afd7ed558ccd;
        var slot: usize = @intCast(mixed >> 40 & (slot_count - 1));
        while (self.slots[slot] != 0) : (slot = (slot + 1) % slot_count) {
            const place = self.slots[slot] - 1;
            const row = &self.rows[place];
            if (row.arm == arm and equal(&row.unit, unit) and std.meta.eql(row.tag, tag)) return place;
        }
        return self.newRow(slot, tag, name, arm, unit);
    }

    /// A hit was answered whose place `plain` has given.
    pub fn countPlain(self: *Table, place: u16, hit: Hit) void {
        const found = &self.plains[place];
        if (hit.stale) found.stale += 1 else found.fresh += 1;
        found.not_modified += @intFromBool(hit.not_modified);
        found.bytes +|= hit.bytes;
        found.age_ms +|= hit.age_ms;
        self.counted = true;
    }

    /// A request was sent past the sidecar to the origin, since it can never be answered from a cache; its place is
    /// from `plain`.
    pub fn countPassed(self: *Table, place: u16) void {
        self.plains[place].passed += 1;
        self.counted = true;
    }

    /// A hit was answered whose place `exposed` has given, `latency_us` after its request's headers came.
    pub fn countExposed(self: *Table, place: u16, stale: bool, latency_us: u64, age_ms: u64) void {
        const row = &self.rows[place];
        const group = &self.groups[row.group];
        // As wide as it comes: of its own accord the lower of the two would be of 30 bits, too few for its square.
        const latency: u64 = @min(latency_us, highest_us);
        if (row.requests == 0) group.rows += 1;
        row.requests +|= 1;
        row.stale +|= @intFromBool(stale);
        row.latency_us +|= latency;
        row.square +|= latency * latency / 1_000_000;
        row.age_ms +|= age_ms;
        // One of the row's requests, each with the same chance.
        self.draw = self.draw *% 6364136223846793005 +% 1442695040888963407;
        if ((self.draw >> 32) * row.requests >> 32 == 0) row.sampled_us = @intCast(latency);
        const count = &group.counts[self.bins.of(latency)];
        group.used_bins += @intFromBool(count.* == 0);
        count.* +|= 1;
        self.counted = true;
    }

    fn tagOf(self: *const Table, name: []const u8) Tag {
        return .{ .address = @intFromPtr(name.ptr), .plan = self.plan };
    }

    fn newPlain(self: *Table, slot: usize, tag: Tag, name: []const u8) ?u16 {
        if (self.plain_count == max_plain) return null;
        const kept = self.keep(name) orelse return null;
        const place = self.plain_count;
        self.plains[place] = .{
            .tag = tag,
            .name = kept,
            .fresh = 0,
            .stale = 0,
            .not_modified = 0,
            .bytes = 0,
            .age_ms = 0,
            .passed = 0,
        };
        self.plain_count += 1;
        self.plain_slots[slot] = place + 1;
        return place;
    }

    fn newRow(self: *Table, slot: usize, tag: Tag, name: []const u8, arm: u16, unit: *const [16]u8) ?u16 {
        if (self.row_count == max_rows) return null;
        const at = self.groupOf(tag, name, arm) orelse return null;
        const place = self.row_count;
        self.rows[place] = .{
            .tag = tag,
            .arm = arm,
            .unit = unit.*,
            .group = at,
            .next = 0,
            .requests = 0,
            .stale = 0,
            .sampled_us = 0,
            .latency_us = 0,
            .square = 0,
            .age_ms = 0,
        };
        const group = &self.groups[at];
        if (group.last == 0) group.first = place + 1 else self.rows[group.last - 1].next = place + 1;
        group.last = place + 1;
        self.row_count += 1;
        self.slots[slot] = place + 1;
        return place;
    }

    fn groupOf(self: *Table, tag: Tag, name: []const u8, arm: u16) ?u16 {
        for (self.groups[0..self.group_count], 0..) |*group, at| {
            if (group.arm == arm and std.meta.eql(group.tag, tag)) return @intCast(at);
        }
        if (self.group_count == max_groups) return null;
        const kept = self.keep(name) orelse return null;
        const at = self.group_count;
        self.groups[at] = .{
            .tag = tag,
            .arm = arm,
            .name = kept,
            .first = 0,
            .last = 0,
            .rows = 0,
            .used_bins = 0,
            .counts = @splat(0),
        };
        self.group_count += 1;
        return at;
    }

    fn keep(self: *Table, name: []const u8) ?Kept {
        if (name.len > std.math.maxInt(u16) or self.tag_bytes + name.len > max_tag_bytes) return null;
        const at = self.tag_bytes;
        @memcpy(self.tags[at..][0..name.len], name);
        self.tag_bytes += @intCast(name.len);
        return .{ .at = at, .len = @intCast(name.len) };
    }

    /// Whether so much is waiting that the next batch should not wait.
    pub fn pressing(self: *const Table) bool {
        return self.row_count >= max_rows / 4 or self.group_count >= max_groups / 2 or self.tag_bytes >= max_tag_bytes / 2;
    }

    /// Writes the table into `buffer`, at least `max_batch` long, as a batch, and empties it; how many bytes that are.
    pub fn encode(self: *Table, worker: u64, sequence: u64, buffer: []u8) u32 {
        var out: Writer = .{ .buffer = buffer };
        out.bytes("MCN1");
        out.int(u16, format);
        out.int(u64, worker);
        out.int(u64, sequence);
        out.bytes(&self.plan_id);
        const groups_at = out.at;
        out.int(u32, 0);
        var groups: u32 = 0;
        for (self.plains[0..self.plain_count]) |*each| {
            if (each.fresh + each.stale + each.passed == 0) continue;
            groups += 1;
            out.int(u8, 1);
            self.writeTag(&out, each.name);
            out.int(u64, each.fresh);
            out.int(u64, each.stale);
            out.int(u64, each.not_modified);
            out.int(u64, each.bytes);
            out.int(u64, each.age_ms);
            out.int(u64, each.passed);
        }
        for (self.groups[0..self.group_count]) |*group| {
            if (group.rows == 0) continue;
            groups += 1;
            out.int(u8, 2);
            self.writeTag(&out, group.name);
            out.int(u16, group.arm);
            out.int(u32, group.used_bins);
            for (group.counts, 0..) |count, bin| {
                if (count == 0) continue;
                out.int(u16, @intCast(bin));
                out.int(u32, count);
            }
            out.int(u32, group.rows);
            var next = group.first;
            while (next != 0) {
                const row = &self.rows[next - 1];
                next = row.next;
                if (row.requests == 0) continue;
                out.bytes(&row.unit);
                out.int(u32, row.requests);
                out.int(u32, row.stale);
                out.int(u64, row.latency_us);
                out.int(u64, row.square);
                out.int(u32, row.sampled_us);
                out.int(u64, row.age_ms);
            }
        }
        const end = out.at;
        out.at = groups_at;
        out.int(u32, groups);
        self.clear();
        return @intCast(end);
    }

    fn writeTag(self: *const Table, out: *Writer, name: Kept) void {
        out.int(u16, name.len);
        out.bytes(self.tags[name.at..][0..name.len]);
    }

    fn clear(self: *Table) void {
        self.plain_count = 0;
        self.group_count = 0;
        self.row_count = 0;
        self.tag_bytes = 0;
        self.counted = false;
        @memset(&self.plain_slots, 0);
        @memset(&self.slots, 0);
    }
};

const Writer = struct {
    buffer: []u8,
    at: usize = 0,

    fn bytes(self: *Writer, data: []const u8) void {
        @memcpy(self.buffer[self.at..][0..data.len], data);
        self.at += data.len;
    }

    fn int(self: *Writer, comptime T: type, value: T) void {
        little.write(T, self.buffer[self.at..][0..@sizeOf(T)], value);
        self.at += @sizeOf(T);
    }
};
