//! The calls to the sidecar's supervisor: polls, which bring plans and drops and keep the lease, and batches of numbers.
//!
//! A poll is answered at once when there is news, else after `wait_seconds`; the next one follows on its heels. A worker
//! answers hits only until its last answered poll was sent as long ago as the lease is long: so a purge that has been
//! announced to all pollers binds, at the latest, when their leases are over. The lease is measured by two clocks: by the
//! one that hits are judged by, so that a worker which was stopped in between does not serve, and at each tick by one that
//! nobody can set back.

const std = @import("std");
const equal = @import("equal.zig").equal;
const abi = @import("abi.zig");
const fields = @import("fields.zig");
const keeping = @import("keeping.zig");
const news_file = @import("news.zig");
const stream = @import("stream.zig");
const version = @import("version.zig");
const worker = @import("worker.zig");

pub const tick_ms = 100;
const wait_seconds = "2";
/// Longer than the sidecar waits.
const poll_timeout_ms = 6_000;
/// When nothing is heard of a poll any more, nor will be: Envoy forgets the calls of a filter whose configuration has changed.
const poll_lost_ms = poll_timeout_ms + 1_000;
const numbers_timeout_ms = 5_000;
const first_pause_ms = 100;
const longest_pause_ms = 1_000;
/// A poll that was answered faster is followed by another at the next tick only.
const least_ms = 20;
/// Steps of the store's own work in one tick.
const tend_steps = 500;
const milliseconds = std.time.ns_per_ms;
/// A larger answer is not read. A plan has 1 MiB at most.
const longest_answer = (1 << 20) + (64 << 10);

/// The poll under way; null for none.
var poll: ?u32 = null;
var sent: Moment = .{};
var next_poll_ms: u64 = 0;
var pause_ms: u64 = first_pause_ms;
/// How far this worker has come in the sidecar's log of drops; 0 for not at all.
var generation: u64 = 0;
/// When the lease is over, by the clock that nobody can set back.
var lease_until_ms: u64 = 0;

var batch: ?u32 = null;
var batch_sequence: u64 = 0;

var landing: worker.Stretch = .{};
var written: [2048]u8 = undefined;

/// One moment by both clocks, in milliseconds.
const Moment = struct {
    wall: i64 = 0,
    steady: u64 = 0,

    fn now() Moment {
        return .{ .wall = @intCast(abi.nanoseconds() / milliseconds), .steady = abi.steadyNanoseconds() / milliseconds };
    }
};

/// What is to be done every `tick_ms`.
pub fn tick() void {
    const now: Moment = .now();
    if (now.steady >= lease_until_ms) worker.serves_until = 0;
    if (poll != null and now.steady - sent.steady >= poll_lost_ms) poll = null;
    if (poll == null and now.steady >= next_poll_ms) ask(now);
    tellNumbers(now);
    // Whoever answers seldom is not to be so far behind that he has to drop everything.
    _ = worker.drops.listen();
    stream.look_again = true;
    worker.store.tend(now.wall, tend_steps);
}

/// The call `token` has ended; without fields when it has failed.
pub fn onResponse(token: u32, field_count: u32, size: usize) void {
    const now: Moment = .now();
    if (poll == token) {
        poll = null;
        if (field_count > 0 and answered(size)) {
            pause_ms = first_pause_ms;
            extend();
            // One that answers at once, again and again, is not asked in a tight loop.
            if (now.steady - sent.steady >= least_ms) ask(now) else next_poll_ms = now.steady;
        } else {
            next_poll_ms = now.steady + pause_ms;
            pause_ms = @min(2 * pause_ms, longest_pause_ms);
        }
    } else if (batch == token) {
        batch = null;
        const status = if (field_count > 0) statusOfCall() else 0;
        // 400 is for good: the sidecar is of another release.
        if (status == 204 or status == 400) worker.numbers.onTaken(batch_sequence) else worker.numbers.onFailed(now.steady);
        tellNumbers(now);
    }
}

fn ask(now: Moment) void {
    var path: [256]u8 = undefined;
    var tag: [18]u8 = undefined;
    var out: fields.Writer = .{ .bytes = &path };
    putPath(&out) catch unreachable;
    var pairs: [4]abi.Pair = .{
        .{ .name = ":method", .value = "GET" },
        .{ .name = ":path", .value = path[0..out.len] },
        .{ .name = ":authority", .value = "meshcache" },
        .{ .name = "if-none-match", .value = &tag },
    };
    if (worker.plan) |plan| quote(&tag, plan.id);
    sent = now;
    poll = call(if (worker.plan == null) pairs[0..3] else &pairs, &.{}, poll_timeout_ms);
    if (poll == null) next_poll_ms = now.steady + longest_pause_ms;
}

/// In `path` there is room for the longest.
fn putPath(out: *fields.Writer) error{NoRoom}!void {
    var number: [8]u8 = undefined;
    const statistics = worker.store.stats();
    try out.put("/v1/feed?format=1&wait=" ++ wait_seconds ++ "&version=" ++ version.text ++ "&worker=");
    std.mem.writeInt(u64, &number, worker.id, .big);
    try out.hexadecimal(&number);
    try out.put("&after=");
    std.mem.writeInt(u64, &number, generation, .big);
    try out.hexadecimal(&number);
    try out.put("&entries=");
    try out.decimal(statistics.entries);
    try out.put("&bytes=");
    try out.decimal(statistics.bytes);
    try out.put("&fills=");
    try out.decimal(statistics.commits);
    try out.put("&evictions=");
    try out.decimal(statistics.evictions);
}

/// An id of a plan as an entity tag.
fn quote(into: *[18]u8, plan: [8]u8) void {
    var out: fields.Writer = .{ .bytes = into };
    out.byte('"') catch unreachable;
    out.hexadecimal(&plan) catch unreachable;
    out.byte('"') catch unreachable;
}

fn tellNumbers(now: Moment) void {
    const body = worker.numbers.tick(now.steady) orelse return;
    batch_sequence = worker.numbers.sequence;
    batch = call(&.{
        .{ .name = ":method", .value = "POST" },
        .{ .name = ":path", .value = "/v1/numbers" },
        .{ .name = ":authority", .value = "meshcache" },
        .{ .name = "content-type", .value = "application/octet-stream" },
    }, body, numbers_timeout_ms);
    if (batch == null) worker.numbers.onFailed(now.steady);
}

fn call(pairs: []const abi.Pair, body: []const u8, timeout_ms: u32) ?u32 {
    const serialised = abi.serialise(pairs, &written) orelse return null;
    return abi.call(worker.settings.clusterName(), serialised, body, timeout_ms);
}

/// Takes over what the answer to a poll says; false when it says nothing that can be understood.
fn answered(size: usize) bool {
    const status = statusOfCall();
    if (status == 200) {
        if (size > longest_answer) return false;
        const into = landing.ensure(size) orelse return false;
        const body = abi.bytes(.call_response_body, 0, into) orelse return false;
        const news = news_file.parse(body) orelse return false;
        if (news.labels == null) {
            worker.drops.slots.dropAll();
        } else for (0..news.count()) |number| worker.drops.slots.drop(news.label(number));
        generation = news.generation;
        // Behind the drops: what is stored under the new plan is not concerned by what came before it.
        if (news.plan.len > 0 and !worker.adopt(news.plan)) return false;
    } else if (status != 304) return false;
    return worker.plan == null or names(worker.plan.?.id) or worker.retire();
}

/// Whether the answer says that the plan of this id is in force.
fn names(plan: [8]u8) bool {
    var memory: [32]u8 = undefined;
    const tag = abi.header(.call_response_headers, "etag", &memory) orelse return false;
    var expected: [18]u8 = undefined;
    quote(&expected, plan);
    return equal(tag, &expected);
}

/// The sidecar has answered the poll that was sent at `sent`.
fn extend() void {
    const plan = worker.plan orelse return;
    lease_until_ms = sent.steady + plan.lease_ms;
    worker.serves_until = sent.wall + plan.lease_ms;
}

fn statusOfCall() u16 {
    var memory: [8]u8 = undefined;
    const text = abi.header(.call_response_headers, ":status", &memory) orelse return 0;
    return keeping.parseStatus(text) orelse 0;
}
