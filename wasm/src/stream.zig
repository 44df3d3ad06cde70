//! One request and its response, as they pass: what is answered, what is asked, what is kept.
//!
//! Nothing is ever held up or changed but by a local response, and that is sent from one place, once for a stream: where the
//! filter is not certain, or has no room, the request goes on to the sidecar as if there were no filter.

const std = @import("std");
const equal = @import("equal.zig").equal;
const abi = @import("abi.zig");
const answer = @import("answer.zig");
const decide = @import("decide.zig");
const fields = @import("fields.zig");
const marks = @import("marks.zig");
const methods = @import("methods.zig");
const properties = @import("properties.zig");
const slots = @import("slots.zig");
const store_file = @import("store.zig");
const keeping = @import("keeping.zig");
const streams_file = @import("streams.zig");
const worker = @import("worker.zig");

/// Filter state, which Envoy has under `wasm.`: what the filters behind this one look at.
const ask_state = "meshcache.ask";
const skip_state = "meshcache.skip";
/// In access logs.
const details = "meshcache";
/// Uses from which an entry is popular: worth a request before it is stale (`engine.refresh.rules.POPULAR`).
const popular = 2;

/// Milliseconds by which an answer may seem to come from the future (`tiers.opening.CLOCK_SKEW`).
const clocks_differ = 60_000;

/// Room for the fields of a message, of 96 KiB at most, as the host serialises them.
var message: [128 << 10]u8 = undefined;
/// The fields of the message that is looked at, and those of a request as the host gave them.
var view: fields.View = undefined;
var pairs: []const u8 = &.{};
var asked_view: fields.View = undefined;
var joined: [4096]u8 = undefined;
var kept: keeping.Kept = undefined;
var varied: [marks.max_vary]store_file.Varied = undefined;
var mark: [marks.longest]u8 = undefined;
var chunk: [64 << 10]u8 = undefined;
var dropped: [marks.longest / 17 + 1]u64 = undefined;

/// Whether ever an unsafe request had to go on unremembered: from then on every response is looked at.
var crowded = false;

/// Whether Envoy has routes that add fields to answers. It does so to those that are made here as well, and what is stored
/// has such fields already: they would be there twice.
var routes_add = false;
/// Whether it is time to look again if they do.
pub var look_again = true;

const Moment = struct { nanoseconds: u64, milliseconds: i64 };

fn moment() Moment {
    const nanoseconds = abi.nanoseconds();
    return .{ .nanoseconds = nanoseconds, .milliseconds = @intCast(nanoseconds / std.time.ns_per_ms) };
}

/// `ended`: the request has no body.
pub fn onRequest(id: u32, ended: bool) abi.Action {
    pairs = read(&view, .request_headers) catch return onUnreadable(id);
    if (methods.isUnsafe(&view)) return guard(id);
    const plan = worker.plan orelse return .go_on;
    if (!ended) return .go_on;
    const now = moment();
    if (now.milliseconds >= worker.serves_until) return .go_on;
    switch (decide.decide(plan, &view, &worker.scratch, &properties.all)) {
        .hand_on => {},
        .skip => |*found| skip(found),
        .look_up => |*found| return lookUp(id, found, now),
    }
    return .go_on;
}

/// `ended`: the response has no body.
pub fn onResponse(id: u32, ended: bool) void {
    const stream = worker.streams.get(id) orelse {
        if (crowded) onUnremembered();
        return;
    };
    switch (stream.kind) {
        .answered => {
            dress(worker.streams.pairsOf(stream));
            forget(id);
        },
        .asked => |*asked| {
            asked.fill = begin(stream, asked);
            if (asked.fill == null) forget(id) else if (ended) commit(id);
        },
        .unsafe => |*party| {
            invalidate(if (party.*) |*known| known else null);
            forget(id);
        },
    }
}

/// `size` bytes of the response's body pass.
pub fn onBody(id: u32, size: usize, ended: bool) void {
    const stream = worker.streams.get(id) orelse return;
    const asked = if (stream.kind == .asked) &stream.kind.asked else return;
    const fill = asked.fill orelse return;
    if (size > asked.largest) return forget(id);
    asked.largest -= @intCast(size);
    var at: usize = 0;
    while (at < size) {
        const piece = abi.bytes(.response_body, at, &chunk) orelse return forget(id);
        if (piece.len == 0 or !worker.store.append(fill, piece)) return forget(id);
        at += piece.len;
    }
    if (ended) commit(id);
}

/// The response ends with trailers, which are not kept.
pub fn onTrailers(id: u32) void {
    commit(id);
}

/// The stream is over, however it ended: what has not come to its end is thrown away. If it was handed on for an entry's
/// sake, nothing may have come of that, and the next one is handed on at once: else who leaves again and again would keep the
/// entry from ever being refreshed.
pub fn onDelete(id: u32) void {
    const stream = worker.streams.get(id) orelse return;
    if (stream.kind == .asked) worker.store.handOnAgain(stream.kind.asked.hash);
    forget(id);
}

fn read(into: *fields.View, map: abi.Map) error{Unreadable}![]const u8 {
    const bytes = abi.pairs(map, &message) orelse return error.Unreadable;
    into.parse(bytes) catch return error.Unreadable;
    return bytes;
}

/// More fields than are looked at. Whether it is unsafe has to be known all the same.
fn onUnreadable(id: u32) abi.Action {
    var method: [16]u8 = undefined;
    const named = abi.header(.request_headers, ":method", &method) orelse return guard(id);
    if (!methods.isSafe(named)) return guard(id);
    var spellings: methods.Spellings = .{};
    while (spellings.next()) |name| {
        if (abi.header(.request_headers, name, &chunk) != null) return guard(id);
    }
    return .go_on;
}

/// Also where there is no plan, so that nothing can be asked: other workers may have one.
fn guard(id: u32) abi.Action {
    const party = if (worker.plan == null) null else worker.party;
    if (worker.streams.guard(id, worker.plan_number, party)) |_| {
        if (party != null) ask(&marks.no_key, .unsafe);
    } else crowded = true;
    return .go_on;
}

fn ask(digest: *const marks.Digest, why: marks.Why) void {
    var text: [marks.ask_bytes]u8 = undefined;
    const value = marks.writeAsk(&text, &worker.party, digest, why);
    if (worker.settings.header) {
        _ = abi.setHeader(.request_headers, marks.ask_name, value);
    } else _ = abi.setProperty(ask_state, value);
}

fn skip(found: *const decide.Skip) void {
    // Without filter state nobody behind this filter would see it.
    if (worker.settings.header) return;
    const place = worker.numbers.table.plain(found.tag) orelse return;
    if (abi.setProperty(skip_state, "1")) worker.numbers.table.countPassed(place);
}

fn lookUp(id: u32, found: *const decide.LookUp, now: Moment) abi.Action {
    const hash = worker.store.hash(found.material);
    const context: keeping.Context = .{ .request = &view, .memory = &joined };
    const hit = stored: {
        const first = worker.store.find(hash, found.material, context, now.milliseconds, &worker.drops.slots);
        if (first == null) break :stored null;
        switch (worker.drops.listen()) {
            .none => break :stored first,
            .some => {},
            .unknown => return .go_on,
        }
        break :stored worker.store.find(hash, found.material, context, now.milliseconds, &worker.drops.slots);
    } orelse {
        remember(id, found, hash, .miss, now);
        return .go_on;
    };
    const times = &hit.entry.times;
    // What he may see the origin decides.
    if (view.has.contains(.cookie) and hit.entry.flags & marks.for_cookies == 0) return .go_on;
    // HEAD brings nothing to keep: it must not be the one request that is handed on for the entry's sake.
    const brings = equal(view.method.?, "GET");
    // Else the clock has been set back, and nobody knows how old it is.
    const known = now.milliseconds >= times.birth -| clocks_differ;
    if (known and now.milliseconds < times.fresh_until) {
        const due = brings and times.renew_at != 0 and now.milliseconds >= times.renew_at and hit.entry.uses >= popular;
        if (!due or !hit.handOn(now.milliseconds)) return reply(id, found, &hit, false, now);
        remember(id, found, hash, .renew, now);
    } else {
        if (known and brings and now.milliseconds < times.stale_until and !hit.handOn(now.milliseconds)) return reply(id, found, &hit, true, now);
        remember(id, found, hash, .stale, now);
    }
    return .go_on;
}

/// Has the sidecar say what may be kept of the answer to this request.
fn remember(id: u32, found: *const decide.LookUp, hash: u64, why: marks.Why, now: Moment) void {
    // The answer to HEAD has no body to keep.
    if (!equal(view.method.?, "GET")) return;
    if (why == .miss and !worker.admission.asks(found.pool, hash)) return;
    const digest = marks.digestOf(found.material);
    const asked: streams_file.Awaited = .{
        .digest = digest,
        .hash = hash,
        .born = worker.drops.slots.now(),
        .pool = found.pool,
        .largest = found.largest,
        .pairs = 0,
        .material = 0,
    };
    for (0..2) |_| {
        if (worker.streams.ask(id, worker.plan_number, asked, pairs, found.material, now.milliseconds) != null) return ask(&digest, why);
        forget(worker.streams.slowest(pairs.len + found.material.len, now.milliseconds) orelse break);
    }
    if (why == .miss) worker.admission.pay(found.pool);
}

/// Answers the client. What could not be counted is not answered here.
fn reply(id: u32, found: *const decide.LookUp, hit: *const store_file.Hit, stale: bool, now: Moment) abi.Action {
    const table = &worker.numbers.table;
    const place = table.plain(found.tag) orelse return .go_on;
    const exposed = if (found.exposure) |*exposure|
        table.exposed(exposure.tag, exposure.arm, &exposure.unit) orelse return .go_on
    else
        null;
    const told: answer.Told = .{
        .shown = decide.shownTo(worker.plan.?, &properties.all),
        .stale = stale,
        .arm = found.arm,
        .policy = found.policy,
    };
    const made = answer.compose(hit, &view, &told, now.milliseconds, &worker.room) orelse return .go_on;
    if (!abi.respond(made.status, details, made.pairs, made.body)) return .go_on;
    const first = hit.entry.flags & answer.given == 0;
    if (routes_add or look_again or first) {
        if (worker.streams.answer(id, made.pairs, now.milliseconds) != null) hit.entry.flags |= answer.given;
    }
    // The answer comes past the filters behind this one, and Envoy would make ext_proc for it.
    if (!worker.settings.header) _ = abi.setProperty(skip_state, "1");
    if (first) worker.admission.pay(found.pool);
    const sent = if (equal(view.method.?, "HEAD")) 0 else made.body.len;
    table.countPlain(place, .{
        .stale = stale,
        .not_modified = made.status == 304,
        .bytes = sent,
        .age_ms = made.age_ms,
    });
    if (exposed) |row| {
        const microseconds = (abi.nanoseconds() -| now.nanoseconds) / std.time.ns_per_us;
        table.countExposed(row, stale, microseconds, made.age_ms);
    }
    return .stop;
}

/// Sees to it that an answer that was made here has each of its fields as often as it was given it: what a route has added by
/// the same names goes. What it has added by others stays, as it does where the sidecar answers.
fn dress(given: []const u8) void {
    look_again = false;
    const before = bytesGoingOut();
    // Envoy takes it from what has no body.
    const typed = abi.header(.response_headers, "content-type", &chunk) != null;
    for ([_]bool{ false, true }) |adding| {
        var walk: answer.Walk = .of(given);
        while (walk.next()) |pair| {
            if (!typed and equal(pair.name, "content-type")) continue;
            if (adding) {
                abi.addHeader(.response_headers, pair.name, pair.text[pair.name.len + 1 .. pair.text.len - 1]);
            } else abi.removeHeader(.response_headers, pair.name);
        }
    }
    if (bytesGoingOut() != before) routes_add = true;
}

/// Of the fields of the response that goes out.
fn bytesGoingOut() usize {
    return (abi.pairs(.response_headers, &message) orelse return 0).len;
}

/// Begins to keep the response, if the sidecar allows it.
fn begin(stream: *const streams_file.Stream, asked: *const streams_file.Awaited) ?store_file.Handle {
    const value = abi.header(.response_headers, marks.keep_name, &mark) orelse return null;
    abi.removeHeader(.response_headers, marks.keep_name);
    if (stream.plan != worker.plan_number) return null;
    const keep = marks.parseKeep(value, &worker.party, &asked.digest) orelse return null;
    const now = moment().milliseconds;
    _ = read(&view, .response_headers) catch return null;
    if (!kept.take(&view, now)) return null;
    if (kept.length) |length| if (length > asked.largest) return null;
    // It was read once before.
    asked_view.parse(worker.streams.pairsOf(stream)) catch return null;
    const names = keep.vary[0..keep.vary_count];
    if (!keeping.varied(&asked_view, names, &varied)) return null;
    if (view.first("content-encoding") != null and !contains(names, "accept-encoding")) return null;
    return worker.store.begin(&.{
        .hash = asked.hash,
        .material = worker.streams.materialOf(stream),
        .pool = asked.pool,
        .born = asked.born,
        .stream = stream.id,
        .times = .{
            .birth = keep.birth,
            .fresh_until = keep.fresh_until,
            .stale_until = keep.stale_until,
            .drop_at = keep.drop_at,
            .renew_at = keep.renew_at,
        },
        .status = kept.status,
        .flags = kept.flags | (keep.flags & ~(answer.untyped | answer.given)),
        .fields = kept.pairs[0..kept.count],
        .etag = kept.etag,
        .vary = varied[0..names.len],
        .labels = keep.labels[0..keep.label_count],
        .length = kept.length,
    }, now) catch null;
}

fn contains(names: []const []const u8, wanted: []const u8) bool {
    for (names) |name| if (equal(name, wanted)) return true;
    return false;
}

fn commit(id: u32) void {
    if (worker.streams.get(id)) |stream| {
        if (stream.kind == .asked and stream.plan == worker.plan_number) {
            if (stream.kind.asked.fill) |fill| _ = worker.store.commit(fill, &worker.drops.slots);
        }
    }
    forget(id);
}

fn forget(id: u32) void {
    const kind = worker.streams.forget(id) orelse return;
    // What was committed is a fill no more.
    if (kind == .asked) if (kind.asked.fill) |fill| worker.store.abort(fill);
}

/// The response to an unsafe request: what it has made invalid is dropped before the response goes on. Where the sidecar
/// does not say, and the request may have changed something, that is everything.
fn invalidate(party: ?*const marks.Party) void {
    if (abi.header(.response_headers, marks.drop_name, &mark)) |value| {
        abi.removeHeader(.response_headers, marks.drop_name);
        if (if (party) |known| marks.parseDrop(value, known) else null) |drop| {
            if (drop == .everything) return worker.drops.tell(&.{slots.everything});
            for (0..drop.count()) |number| dropped[number] = drop.label(number);
            return worker.drops.tell(dropped[0..drop.count()]);
        }
    }
    if (mayHaveChanged()) worker.drops.tell(&.{slots.everything});
}

/// A success or redirect (RFC 9111 section 4.4).
fn mayHaveChanged() bool {
    var memory: [8]u8 = undefined;
    const text = abi.header(.response_headers, ":status", &memory) orelse return true;
    const status = keeping.parseStatus(text) orelse return true;
    return status >= 200 and status <= 399;
}

fn onUnremembered() void {
    const method = properties.method() orelse "";
    if (!methods.isSafe(method) and mayHaveChanged()) worker.drops.tell(&.{slots.everything});
}
