//! What the filter has answered by itself, counted, for the sidecar to add to what it has counted.
//!
//! Counts gather in one table of fixed size. A batch (`tick`) is that table as bytes, numbered; the bytes stay in a
//! buffer of their own until the sidecar has said that it has them (`on_taken`), and are sent again unchanged until
//! then, while new counts gather in the table. The sidecar takes each number of a worker once, so nothing is lost and
//! nothing is doubled, whichever of request and reply is lost on the way.
//!
//! A hit is counted in two steps: `plain` and `exposed` find its places, or say that there is none left, in which case
//! the request is handed on, for the sidecar to count; `countPlain` and `countExposed` count it once it is answered.
//! Both steps are of one callback: a batch never begins between them. Every hit is counted once as plain, under the
//! tag of its route, arm and policy, and besides once for each experiment that it counts in.
//!
//!     batch   "MCN1" | u16 format | u64 worker | u64 sequence | plan id, 8 bytes | u32 groups | groups
//!     group   u8 1 | u16 n | tag | u64 fresh | u64 stale | u64 not modified | u64 body bytes | u64 age ms
//!             u8 2 | u16 n | tag | u16 arm | u32 n | n * (u16 bin | u32 count) | u32 n | n * row
//!     row     unit, 16 bytes | u32 requests | u32 stale | u64 latency us | u64 latency square, ms^2
//!             | u32 latency us of one of them | u64 age ms
//!
//! Little endian. Tags are opaque bytes of the plan, bins those of `meshcache.experiment.bins`.

const std = @import("std");

pub const format: u16 = 1;
/// Tags of one plan, plain ones and those of experiments together, are numbered from 0 and fewer than this.
pub const max_tags = 2048;
/// The longest batch, in bytes: the sidecar refuses longer ones.
pub const max_batch = 1 << 20;
/// Different (experiment, arm, unit) of one batch.
pub const max_rows = 16384;

const max_plain = 1024;
const max_groups = 128;
const max_tag_bytes = 128 * 1024;
const slot_count = 2 * max_rows;
/// Room that is left in a batch for bins that requests which have found their places may still begin.
const slack = 1024;

const header_bytes = 4 + 2 + 8 + 8 + 8 + 4;
const plain_bytes = 1 + 2 + 5 * 8;
const group_bytes = 1 + 2 + 2 + 4 + 4;
const bin_bytes = 2 + 4;
const row_bytes = 16 + 4 + 4 + 8 + 8 + 4 + 8;

/// Milliseconds between two batches.
pub const interval_ms = 500;
/// Milliseconds after a failure until the same batch is sent again.
pub const retry_ms = 500;
/// Milliseconds after which a batch is sent again of which nothing was heard; more than any timeout of a call.
const lost_ms = 15_000;

/// Number of bins of `meshcache.experiment.bins`: 1 % apart from 100 us to 1000 s.
pub const bins = 807;
const lowest_us = 100;
const highest_us: u64 = 1_000_000_000;
const growth: f64 = 1.01 / 0.99;

/// What one hit has shown, whether or not it counts in an experiment.
pub const Hit = struct {
    stale: bool,
    /// Answered 304.
    not_modified: bool,
    /// Bytes of body that were sent.
    bytes: u64,
    age_ms: u64,
};

const Plain = struct {
    tag_at: u32,
    tag_len: u16,
    fresh: u64,
    stale: u64,
    not_modified: u64,
    bytes: u64,
    age_ms: u64,
};

const Group = struct {
    key: u64,
    tag_at: u32,
    tag_len: u16,
    /// The first and the last row, plus 1.
    first: u16,
    last: u16,
    /// Rows and bins with requests.
    rows: u32,
    used_bins: u32,
    counts: [bins]u32,
};

const Row = struct {
    /// See `keyOf`: rows and groups of a plan that is gone are not found again.
    key: u64,
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

/// One for each worker of Envoy, in static memory; `init` first.
pub const Numbers = struct {
    worker: u64,
    /// Of the batch that was made last.
    sequence: u64,
    plan_id: [8]u8,
    plan: u32,
    draw: u64,
    edges: [bins - 1]u32,

    plain_count: u16,
    group_count: u16,
    row_count: u16,
    tag_bytes: u32,
    /// Bytes of the batch that the table makes.
    size: u32,
    /// Whether anything was counted into the table.
    counted: bool,
    plain_of: [max_tags]u16,
    plains: [max_plain]Plain,
    groups: [max_groups]Group,
    rows: [max_rows]Row,
    slots: [slot_count]u16,
    tags: [max_tag_bytes]u8,

    batch: [max_batch]u8,
    /// 0 when nothing waits to be taken.
    batch_len: u32,
    in_flight: bool,
    /// When the batch was made, when it was sent last, and before when it is not sent again.
    made_at: u64,
    sent_at: u64,
    retry_at: u64,

    /// `worker` is this worker's alone, for all time; `seed` is drawn.
    pub fn init(self: *Numbers, worker: u64, seed: u64) void {
        self.worker = worker;
        self.sequence = 0;
        self.plan_id = @splat(0);
        self.plan = 0;
        self.draw = seed;
        var edge: f64 = lowest_us;
        for (&self.edges) |*each| {
            each.* = @intFromFloat(edge);
            edge *= growth;
        }
        self.batch_len = 0;
        self.in_flight = false;
        self.made_at = 0;
        self.sent_at = 0;
        self.retry_at = 0;
        self.clear();
    }

    /// A new plan is in force: tag numbers mean other tags from now on.
    pub fn newPlan(self: *Numbers, plan_id: [8]u8) void {
        self.plan_id = plan_id;
        self.plan +%= 1;
        @memset(&self.plain_of, 0);
    }

    /// The place of hits with this plain tag; null when there is no room, and the request is to be handed on.
    pub fn plain(self: *Numbers, tag: u16, name: []const u8) ?u16 {
        if (tag >= max_tags) return null;
        const known = self.plain_of[tag];
        return if (known != 0) known - 1 else self.newPlain(tag, name);
    }

    /// The place of hits of this unit in this arm of the tag's experiment; null as for `plain`.
    pub fn exposed(self: *Numbers, tag: u16, name: []const u8, arm: u16, unit: *const [16]u8) ?u16 {
        if (tag >= max_tags) return null;
        const key = self.keyOf(tag, arm);
        var slot = slotOf(key, unit);
        while (self.slots[slot] != 0) : (slot = (slot + 1) % slot_count) {
            const place = self.slots[slot] - 1;
            const row = &self.rows[place];
            if (row.key == key and std.mem.eql(u8, &row.unit, unit)) return place;
        }
        return self.newRow(slot, key, name, unit);
    }

    /// A hit was answered whose place `plain` has given.
    pub fn countPlain(self: *Numbers, place: u16, hit: Hit) void {
        const found = &self.plains[place];
        if (hit.stale) found.stale += 1 else found.fresh += 1;
        found.not_modified += @intFromBool(hit.not_modified);
        found.bytes +|= hit.bytes;
        found.age_ms +|= hit.age_ms;
        self.counted = true;
    }

    /// A hit was answered whose place `exposed` has given, `latency_us` after its request's headers came.
    pub fn countExposed(self: *Numbers, place: u16, stale: bool, latency_us: u64, age_ms: u64) void {
        const row = &self.rows[place];
        const group = &self.groups[row.group];
        const latency = @min(latency_us, highest_us);
        if (row.requests == 0) group.rows += 1;
        row.requests +|= 1;
        row.stale +|= @intFromBool(stale);
        row.latency_us +|= latency;
        row.square +|= latency * latency / 1_000_000;
        row.age_ms +|= age_ms;
        // One of the row's requests, each with the same chance.
        self.draw = self.draw *% 6364136223846793005 +% 1442695040888963407;
        if ((self.draw >> 32) * row.requests >> 32 == 0) row.sampled_us = @intCast(latency);
        const count = &group.counts[self.binOf(latency)];
        if (count.* == 0) {
            group.used_bins += 1;
            self.size += bin_bytes;
        }
        count.* +|= 1;
        self.counted = true;
    }

    /// The bin of a latency in microseconds.
    pub fn binOf(self: *const Numbers, latency_us: u64) u16 {
        if (latency_us <= lowest_us) return 0;
        if (latency_us >= highest_us) return bins - 1;
        // The first whose upper edge it does not exceed.
        var low: usize = 1;
        var high: usize = self.edges.len;
        while (low < high) {
            const middle = (low + high) / 2;
            if (latency_us <= self.edges[middle]) high = middle else low = middle + 1;
        }
        return @intCast(low);
    }

    /// Whether so much is waiting that the next batch should not wait.
    pub fn pressing(self: *const Numbers) bool {
        return self.row_count >= max_rows / 4 or self.size >= max_batch / 4;
    }

    /// The batch to send now, if any; it stays as it is until it was taken or refused. `now_ms` never goes back.
    pub fn tick(self: *Numbers, now_ms: u64) ?[]const u8 {
        if (self.batch_len == 0) {
            if (!self.counted) return null;
            if (now_ms -| self.made_at < interval_ms and !self.pressing()) return null;
            self.batch_len = self.encode();
            self.made_at = now_ms;
        } else if (self.in_flight) {
            if (now_ms -| self.sent_at < lost_ms) return null;
        } else if (now_ms < self.retry_at) {
            return null;
        }
        self.in_flight = true;
        self.sent_at = now_ms;
        return self.batch[0..self.batch_len];
    }

    /// The number of the batch that `tick` gave last.
    pub fn sequenceSent(self: *const Numbers) u64 {
        return self.sequence;
    }

    /// The sidecar has this batch (204).
    pub fn onTaken(self: *Numbers, sequence: u64) void {
        if (sequence != self.sequence) return;
        self.batch_len = 0;
        self.in_flight = false;
    }

    /// The sidecar will never take this batch (400): it is of another release.
    pub fn onRefused(self: *Numbers, sequence: u64) void {
        self.onTaken(sequence);
    }

    /// The batch under way was not taken, or nobody knows: it is sent again.
    pub fn onFailed(self: *Numbers, now_ms: u64) void {
        self.in_flight = false;
        self.retry_at = now_ms + retry_ms;
    }

    fn keyOf(self: *const Numbers, tag: u16, arm: u16) u64 {
        return @as(u64, self.plan) << 32 | @as(u64, tag) << 16 | arm;
    }

    fn slotOf(key: u64, unit: *const [16]u8) usize {
        // Units are keyed digests: nobody outside can choose them to meet in one slot.
        const mixed = (std.mem.readInt(u64, unit[8..16], .little) ^ key *% 0x9e3779b97f4a7c15) *% 0xff51afd7ed558ccd;
        return @intCast(mixed >> 40 & (slot_count - 1));
    }

    fn newPlain(self: *Numbers, tag: u16, name: []const u8) ?u16 {
        if (self.plain_count == max_plain or !self.fits(plain_bytes + name.len)) return null;
        const at = self.keep(name) orelse return null;
        const place = self.plain_count;
        self.plains[place] = .{
            .tag_at = at,
            .tag_len = @intCast(name.len),
            .fresh = 0,
            .stale = 0,
            .not_modified = 0,
            .bytes = 0,
            .age_ms = 0,
        };
        self.plain_count += 1;
        self.plain_of[tag] = place + 1;
        self.size += @intCast(plain_bytes + name.len);
        return place;
    }

    fn newRow(self: *Numbers, slot: usize, key: u64, name: []const u8, unit: *const [16]u8) ?u16 {
        if (self.row_count == max_rows or !self.fits(row_bytes)) return null;
        const at = self.groupOf(key, name) orelse return null;
        const place = self.row_count;
        self.rows[place] = .{
            .key = key,
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
        self.size += row_bytes;
        return place;
    }

    fn groupOf(self: *Numbers, key: u64, name: []const u8) ?u16 {
        for (self.groups[0..self.group_count], 0..) |*group, at| {
            if (group.key == key) return @intCast(at);
        }
        if (self.group_count == max_groups or !self.fits(group_bytes + name.len + row_bytes)) return null;
        const kept = self.keep(name) orelse return null;
        const at = self.group_count;
        const group = &self.groups[at];
        group.* = .{
            .key = key,
            .tag_at = kept,
            .tag_len = @intCast(name.len),
            .first = 0,
            .last = 0,
            .rows = 0,
            .used_bins = 0,
            .counts = @splat(0),
        };
        self.group_count += 1;
        self.size += @intCast(group_bytes + name.len);
        return at;
    }

    fn fits(self: *const Numbers, more: usize) bool {
        return self.size + more + slack <= max_batch;
    }

    fn keep(self: *Numbers, name: []const u8) ?u32 {
        if (name.len > std.math.maxInt(u16) or self.tag_bytes + name.len > max_tag_bytes) return null;
        const at = self.tag_bytes;
        @memcpy(self.tags[at..][0..name.len], name);
        self.tag_bytes += @intCast(name.len);
        return at;
    }

    /// The table as bytes, and empty afterwards; how many bytes that are.
    fn encode(self: *Numbers) u32 {
        self.sequence += 1;
        var out: Writer = .{ .buffer = &self.batch };
        out.bytes("MCN1");
        out.int(u16, format);
        out.int(u64, self.worker);
        out.int(u64, self.sequence);
        out.bytes(&self.plan_id);
        const groups_at = out.at;
        out.int(u32, 0);
        var groups: u32 = 0;
        for (self.plains[0..self.plain_count]) |*each| {
            if (each.fresh + each.stale == 0) continue;
            groups += 1;
            out.int(u8, 1);
            self.writeTag(&out, each.tag_at, each.tag_len);
            for ([_]u64{ each.fresh, each.stale, each.not_modified, each.bytes, each.age_ms }) |count| out.int(u64, count);
        }
        for (self.groups[0..self.group_count]) |*group| {
            if (group.rows == 0) continue;
            groups += 1;
            out.int(u8, 2);
            self.writeTag(&out, group.tag_at, group.tag_len);
            out.int(u16, @truncate(group.key));
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

    fn writeTag(self: *const Numbers, out: *Writer, at: u32, len: u16) void {
        out.int(u16, len);
        out.bytes(self.tags[at..][0..len]);
    }

    fn clear(self: *Numbers) void {
        self.plain_count = 0;
        self.group_count = 0;
        self.row_count = 0;
        self.tag_bytes = 0;
        self.size = header_bytes;
        self.counted = false;
        @memset(&self.plain_of, 0);
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
        std.mem.writeInt(T, self.buffer[self.at..][0..@sizeOf(T)], value, .little);
        self.at += @sizeOf(T);
    }
};
