//! What is done with a request: its route, its arm, its key. Never wrong: what is not certain here is handed on.

const mem = @import("bytes.zig");
const fields = @import("fields.zig");
const key = @import("key.zig");
const plans = @import("plan.zig");
const Asked = @import("asked.zig").Asked;
const Plan = plans.Plan;
pub const Shown = plans.Shown;

/// What is asked of the host only when it makes a difference. What they return must live until the next call of any.
pub const Properties = struct {
    /// `source.address`, with its port, as Envoy writes it; null when it is not known.
    address: *const fn () ?[]const u8,
    /// `connection.mtls`.
    mtls: *const fn () bool,
    /// `xds.cluster_name`; null when it is not known.
    cluster: *const fn () ?[]const u8,
    /// Whether Envoy has verified a token of the caller (dynamic metadata of `envoy.filters.http.jwt_authn`): then the
    /// request counts as one with `authorization`, however the token came.
    verified: *const fn () bool,
};

/// So much room is before the rest of the material for what it begins with.
const most_head = 4 << 10;

/// Memory for one decision at a time; what a decision refers to lies here, and ends with the next one.
pub const Scratch = struct {
    material: [36 << 10]u8 = undefined,
    text: [24 << 10]u8 = undefined,
    host: [260]u8 = undefined,
};

pub const Decision = union(enum) {
    /// The sidecar decides: nothing is known here.
    hand_on,
    /// Neither is there anything stored for the request nor will its answer be. The sidecar would let it go unseen.
    skip: Skip,
    look_up: LookUp,
};

pub const Skip = struct {
    /// What it is counted by.
    tag: []const u8,
};

pub const LookUp = struct {
    /// Byte for byte that of `engine.key.cache_key`, in the scratch.
    material: []const u8,
    /// A place in `Plan.pools`.
    pool: u16,
    /// What the request is counted by: route, arm and policy, opaque here.
    tag: []const u8,
    /// Names for `cache-status`; the arm is empty where the route has no experiment.
    arm: []const u8,
    policy: []const u8,
    /// Bodies up to so many bytes may be stored for it.
    largest: u32,
    exposure: ?Exposure,
};

/// That the request counts in an experiment.
pub const Exposure = struct {
    /// Experiment and epoch, opaque here.
    tag: []const u8,
    arm: u16,
    unit: [16]u8,
};

/// What is done with `request`, which has no body. Whether it is one of GET or HEAD, and plain, is seen to here.
pub fn decide(plan: *const Plan, request: *const fields.View, scratch: *Scratch, properties: *const Properties) Decision {
    return certain(plan, request, scratch, properties) catch .hand_on;
}

/// How much of `cache-status` the caller sees; to be asked only when an answer is made.
pub fn shownTo(plan: *const Plan, properties: *const Properties) Shown {
    return if (plan.shows_all.trusts(properties) == .yes) .full else plan.shown;
}

fn certain(
    plan: *const Plan,
    request: *const fields.View,
    scratch: *Scratch,
    properties: *const Properties,
) key.Error!Decision {
    if (request.has.contains(.special)) return .hand_on;
    const asked = Asked.of(request, &scratch.host) orelse return .hand_on;
    const target = switch (plan.routes.find(&asked, request)) {
        .none => return .{ .skip = .{ .tag = plan.no_route } },
        .uncertain => return .hand_on,
        .target => |number| plan.targets[number],
    };
    switch (target) {
        .hand_on => return .hand_on,
        .not_cached => |tag| return .{ .skip = .{ .tag = tag } },
        .place, .experiment => {},
    }
    if (!request.plain() or properties.verified()) return .hand_on;
    var finding: Finding = .{
        .plan = plan,
        .request = request,
        .asked = &asked,
        .properties = properties,
        .memory = &scratch.material,
        .out = .{ .bytes = &scratch.material, .len = most_head },
        .text = .{ .bytes = &scratch.text },
    };
    return switch (target) {
        .place => |number| finding.at(number, null),
        .experiment => |number| finding.inExperiment(number),
        else => unreachable,
    };
}

/// One request on its way to its key.
const Finding = struct {
    plan: *const Plan,
    request: *const fields.View,
    asked: *const Asked,
    properties: *const Properties,
    memory: []u8,
    /// The material, from `most_head` on; what it begins with is put before that.
    out: fields.Writer,
    text: fields.Writer,

    fn at(self: *Finding, number: u16, exposure: ?Exposure) key.Error!Decision {
        if (number == plans.nowhere) return .hand_on;
        const place = &self.plan.places[number];
        if (place.methods & self.asked.method == 0) return .hand_on;
        try self.rest(place.spec);
        return self.found(place, exposure);
    }

    fn inExperiment(self: *Finding, number: u16) key.Error!Decision {
        const experiment = &self.plan.experiments[number];
        switch (try experiment.choose(self.plan, self.request, &self.text, self.properties)) {
            .hand_on => return .hand_on,
            .place => |place| return self.at(place, null),
            .drawn => |drawn| return self.at(drawn.place, exposureOf(drawn.arm, drawn.tag, drawn.unit)),
            .by_key => |by_key| {
                if (by_key.methods & self.asked.method == 0) return .hand_on;
                try self.rest(by_key.spec);
                const drawn = experiment.chooseByKey(by_key.head, self.out.bytes[most_head..self.out.len]);
                if (drawn.place == plans.nowhere) return .hand_on;
                return self.found(&self.plan.places[drawn.place], exposureOf(drawn.arm, drawn.tag, drawn.unit));
            },
        }
    }

    /// Writes all of the material but what it begins with.
    fn rest(self: *Finding, number: u16) key.Error!void {
        const spec = &self.plan.specs[number];
        return spec.write(try self.revision(), self.asked, self.request, &self.out, &self.text);
    }

    fn revision(self: *Finding) key.Error![]const u8 {
        if (!self.plan.by_cluster) return self.plan.revision;
        const cluster = self.properties.cluster() orelse return self.plan.revision;
        // What is no ASCII, Python may read in another way.
        for (cluster) |byte| if (byte >= 0x80) return error.Unknown;
        return if (cluster.len > 0) cluster else self.plan.revision;
    }

    fn found(self: *Finding, place: *const plans.Place, exposure: ?Exposure) key.Error!Decision {
        const head = place.head;
        if (head.len > most_head) return error.NoRoom;
        mem.copy(self.memory[most_head - head.len .. most_head], head);
        return .{ .look_up = .{
            .material = self.memory[most_head - head.len .. self.out.len],
            .pool = place.pool,
            .tag = place.tag,
            .arm = place.arm,
            .policy = place.policy,
            .largest = @min(place.largest, self.plan.largest),
            .exposure = exposure,
        } };
    }
};

fn exposureOf(arm: u16, tag: []const u8, unit: [16]u8) ?Exposure {
    return if (tag.len > 0) .{ .tag = tag, .arm = arm, .unit = unit } else null;
}
