//! Experiments: which arm a request is in (`policy.layers`, `experiment.assignment`).

const std = @import("std");
const ln = @import("logarithm.zig").ln;
const mem = @import("bytes.zig");
const fields = @import("fields.zig");
const hash = @import("hash.zig");
const plans = @import("plan.zig");
const Plan = plans.Plan;
const Source = plans.Source;
const Properties = @import("decide.zig").Properties;

pub const Mode = enum(u8) { decided, one_unit, several_units, by_key, unknown };

const Force = struct {
    header: []const u8,
    value: []const u8,
    place: u16,

    fn read(from: *Source, plan: *const Plan) Force {
        return .{ .header = from.reader.name(), .value = from.reader.text(), .place = from.place(plan) };
    }
};

const Unit = struct {
    kind: enum(u8) { header, cookie },
    name: []const u8,
    /// Stands before the value in what is hashed.
    mark: []const u8,

    fn read(from: *Source, _: *const Plan) Unit {
        return .{
            .kind = @fromBackingInt(@intCast(from.reader.below(u8, 2))),
            .name = from.reader.name(),
            .mark = from.reader.text(),
        };
    }
};

const Arm = struct {
    place: u16,
    /// What its requests count as; empty when they do not.
    tag: []const u8,

    fn read(from: *Source, plan: *const Plan) Arm {
        return .{ .place = from.place(plan), .tag = from.reader.text() };
    }
};

const group = 0xFFFF;

const Draw = struct {
    arm: u16,
    seed: u64,
    /// The negative mean of its time.
    scale: f64,

    fn read(from: *Source, _: *const Plan) Draw {
        return .{ .arm = from.reader.int(u16), .seed = from.reader.int(u64), .scale = from.reader.float() };
    }
};

/// Where keys are assigned: the key as it is without an arm.
pub const ByKey = struct {
    methods: u8,
    spec: u16,
    head: []const u8,
};

pub const Choice = union(enum) {
    hand_on,
    /// The arm of a request that does not count, or where it came to.
    place: u16,
    /// Those of an arm that has been drawn.
    drawn: Drawn,
    /// It depends on the key.
    by_key: *const ByKey,
};

pub const Drawn = struct {
    place: u16,
    arm: u16,
    /// Empty when it does not count.
    tag: []const u8,
    /// Valid when it counts.
    unit: [16]u8,
};

const by_key_mark = "cacheKey:\x00";

pub const Experiment = struct {
    forces: []const Force,
    mode: Mode,
    /// Of who carries no unit, or of all.
    rest: u16,
    units: []const Unit,
    arms: []const Arm,
    keyed: hash.Keyed,
    apart: []const Draw,
    together: []const Draw,
    by_key: ByKey,
    counts: bool,

    pub fn read(from: *Source, plan: *const Plan) Experiment {
        const reader = &from.reader;
        var made: Experiment = undefined;
        made.forces = from.list(Force, u16, plan, Force.read);
        made.mode = @fromBackingInt(@intCast(reader.below(u8, 5)));
        made.rest = from.place(plan);
        made.units = from.list(Unit, u16, plan, Unit.read);
        made.arms = from.list(Arm, u16, plan, Arm.read);
        made.keyed = .init(reader.raw(32)[0..32]);
        made.apart = from.list(Draw, u16, plan, Draw.read);
        made.together = from.list(Draw, u16, plan, Draw.read);
        made.by_key = .{ .methods = 0, .spec = 0, .head = "" };
        if (made.mode == .by_key) {
            made.by_key = .{
                .methods = reader.int(u8),
                .spec = reader.below(u16, plan.specs.len),
                .head = reader.text(),
            };
        }
        made.counts = false;
        for (made.arms) |arm| made.counts = made.counts or arm.tag.len > 0;
        reader.check(made.sound());
        return made;
    }

    fn sound(self: *const Experiment) bool {
        for (self.apart) |draw| {
            if (draw.arm == group) {
                if (self.together.len == 0) return false;
            } else if (draw.arm >= self.arms.len) return false;
        }
        for (self.together) |draw| if (draw.arm >= self.arms.len) return false;
        return self.apart.len + self.together.len > 0;
    }

    /// The arm of `request`. `text` is memory for what is hashed.
    pub fn choose(
        self: *const Experiment,
        plan: *const Plan,
        request: *const fields.View,
        text: *fields.Writer,
        properties: *const Properties,
    ) error{NoRoom}!Choice {
        for (self.forces) |force| {
            const place = request.next(force.header, 0) orelse continue;
            // A header sent twice reads as a list, and equals no value.
            if (!mem.equal(request.fields[place].value, force.value)) continue;
            if (request.next(force.header, place + 1) != null) continue;
            switch (plan.canary.trusts(properties)) {
                .yes => return .{ .place = force.place },
                .no => {},
                .unknown => return .hand_on,
            }
        }
        switch (self.mode) {
            .decided => return .{ .place = self.rest },
            .by_key => return .{ .by_key = &self.by_key },
            .unknown => return .hand_on,
            .one_unit, .several_units => {},
        }
        for (self.units) |unit| {
            const value = switch (unit.kind) {
                .header => try request.joined(unit.name, text) orelse continue,
                .cookie => cookieValue(request, unit.name) orelse continue,
            };
            if (value.len == 0) continue;
            if (self.mode == .several_units) return .hand_on;
            const start = text.len;
            try text.put(unit.mark);
            try putUtf8(text, value);
            return .{ .drawn = self.drawnBy(&.{text.bytes[start..text.len]}) };
        }
        return .{ .place = self.rest };
    }

    /// The arm by what is asked for: the material without an arm, in two parts.
    pub fn chooseByKey(self: *const Experiment, head: []const u8, rest: []const u8) Drawn {
        return self.drawnBy(&.{ by_key_mark, head, rest });
    }

    fn drawnBy(self: *const Experiment, unit: []const []const u8) Drawn {
        const certain = self.onlyOne();
        if (certain) |only| {
            if (!self.counts) return .{ .place = self.arms[only].place, .arm = only, .tag = "", .unit = undefined };
        }
        const digest = self.keyed.digest(unit);
        const chosen = certain orelse self.pick(&digest);
        const arm = self.arms[chosen];
        return .{ .place = arm.place, .arm = chosen, .tag = arm.tag, .unit = digest };
    }

    fn onlyOne(self: *const Experiment) ?u16 {
        if (self.apart.len == 0) return if (self.together.len == 1) self.together[0].arm else null;
        return if (self.apart.len == 1 and self.apart[0].arm != group) self.apart[0].arm else null;
    }

    fn pick(self: *const Experiment, digest: *const [16]u8) u16 {
        if (self.apart.len > 0) {
            const chosen = earliest(digest, self.apart);
            if (chosen != group) return chosen;
        }
        return earliest(digest, self.together);
    }
};

fn earliest(digest: *const [16]u8, draws: []const Draw) u16 {
    if (draws.len == 1) return draws[0].arm;
    var chosen = draws[0].arm;
    var first = std.math.inf(f64);
    for (draws) |draw| {
        const drawn: f64 = @floatFromInt(hash.xxh3(digest, draw.seed) >> 11);
        const time = ln((drawn + 0.5) * 0x1p-53) * draw.scale;
        if (time < first) {
            first = time;
            chosen = draw.arm;
        }
    }
    return chosen;
}

/// The first value of the cookie `name`; null when it is absent, empty where the first one is (`cookie_value`).
fn cookieValue(request: *const fields.View, name: []const u8) ?[]const u8 {
    if (!request.has.contains(.cookie)) return null;
    var place = request.next("cookie", 0);
    while (place) |found| : (place = request.next("cookie", found + 1)) {
        var pieces = mem.split(request.fields[found].value, ';');
        while (pieces.next()) |whole| {
            const piece = mem.trimStart(whole);
            if (!mem.startsWith(piece, name)) continue;
            if (piece.len == name.len) return "";
            if (piece[name.len] == '=') return piece[name.len + 1 ..];
        }
    }
    return null;
}

/// Python reads each byte of a value as a character (ISO-8859-1), and hashes what that is in UTF-8.
fn putUtf8(into: *fields.Writer, value: []const u8) error{NoRoom}!void {
    for (value) |byte| {
        if (byte < 0x80) {
            try into.byte(byte);
        } else {
            try into.byte(0xC0 | (byte >> 6));
            try into.byte(0x80 | (byte & 0x3F));
        }
    }
}
