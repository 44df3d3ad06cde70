//! Drops that the workers of one Envoy tell each other, so that what one of them has dropped no other answers with.
//!
//! Shared data holds the last of them (`slots.Ring`); a counter that all workers share is raised behind each. Whoever is
//! about to answer reads the counter, which costs him next to nothing, and the shared data only when it has moved. Where
//! there is no such counter he reads the shared data each time.

const abi = @import("abi.zig");
const slots = @import("slots.zig");

const Ring = slots.Ring;
const key = "meshcache.drops";
/// Attempts to add to what others add to at the same moment.
const patience = 1000;

pub const News = enum {
    /// Nothing has been dropped elsewhere.
    none,
    /// Something has, and now is here: what was found has to be looked up again.
    some,
    /// Nobody can say.
    unknown,
};

pub const Drops = struct {
    slots: slots.Slots,
    /// Null where none moves: Envoy gives one that does not for what its `stats_config` rejects.
    counter: ?u32,
    /// The counter, and the number of drops in shared data, as they were last seen.
    counted: u64,
    seen: u64,

    /// Nothing is stored yet, so nothing of before matters.
    pub fn init(self: *Drops) void {
        self.slots = .{};
        self.counter = abi.defineCounter("meshcache_filter_drops");
        self.counted = 0;
        if (self.counter) |counter| {
            const before = abi.metric(counter);
            abi.increment(counter);
            // Before the shared data is read, so that a drop that comes in between is seen as news.
            self.counted = abi.metric(counter) orelse 0;
            if (self.counted == before orelse 0) self.counter = null;
        }
        var memory: [Ring.size]u8 = undefined;
        const shared = abi.shared(key, &memory) orelse return;
        if (shared.value.len == 0) {
            // The first VM of a process is started before any that serves.
            var empty: [Ring.size]u8 = undefined;
            Ring.add(&.{}, &.{}, &empty);
            _ = abi.share(key, &empty, shared.cas);
        }
        self.seen = Ring.count(shared.value) orelse 0;
    }

    /// Takes over what other workers have dropped.
    pub fn listen(self: *Drops) News {
        if (self.counter) |counter| {
            const counted = abi.metric(counter) orelse return .unknown;
            if (counted == self.counted) return .none;
            self.counted = counted;
        }
        const before = self.slots.now();
        var memory: [Ring.size]u8 = undefined;
        if (abi.shared(key, &memory)) |shared| {
            self.seen = Ring.apply(shared.value, self.seen, &self.slots);
        } else self.slots.dropAll();
        return if (self.slots.now() == before) .none else .some;
    }

    /// Drops what has any of these labels, in this worker and in all others.
    pub fn tell(self: *Drops, labels: []const u64) void {
        if (labels.len == 0) return;
        var memory: [Ring.size]u8 = undefined;
        var new: [Ring.size]u8 = undefined;
        const told = for (0..patience) |_| {
            const shared = abi.shared(key, &memory) orelse break false;
            if (labels.len <= Ring.length) {
                Ring.add(shared.value, labels, &new);
            } else Ring.add(shared.value, &.{slots.everything}, &new);
            switch (abi.share(key, &new, shared.cas)) {
                .done => break true,
                .changed => continue,
                .failed => break false,
            }
        } else false;
        if (!told) {
            // Puts everybody behind by more than there is to read, so that they drop everything, whatever else is there: a
            // number as it was not there before, nor the last time that this was needed.
            const unlike: [8]u8 = @bitCast(abi.nanoseconds());
            Ring.add(&unlike, &.{slots.everything}, &new);
            _ = abi.share(key, &new, 0);
        }
        if (self.counter) |counter| abi.increment(counter);
        if (self.listen() != .some) self.slots.dropAll();
    }
};
