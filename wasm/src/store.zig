//! The filter's memory of answers: a fixed budget, divided among pools.
//!
//! Everything is kept in blocks of one size (blocks.zig), found through one table (index.zig), and leaves in the order
//! of its pool (s3fifo.zig). A pool takes what its share is and pushes out only what is its own. No call allocates: what is
//! not found, does not fit or is too much at once is refused, and costs a hit.

const std = @import("std");
const arriving = @import("arriving.zig");
const blocks_file = @import("blocks.zig");
const entry_file = @import("entry.zig");
const fills_file = @import("fills.zig");
const hash_file = @import("hash.zig");
const hit_file = @import("hit.zig");
const index_file = @import("index.zig");
const memory_file = @import("memory.zig");
const s3fifo = @import("s3fifo.zig");
const shares_file = @import("shares.zig");
const slots_file = @import("slots.zig");
const succession = @import("succession.zig");
const variant = @import("variant.zig");

const Blocks = blocks_file.Blocks;
const Entry = entry_file.Entry;
const Fill = fills_file.Fill;
const Pool = s3fifo.Pool;
const Ref = memory_file.Ref;
const page = memory_file.page;

pub const Handle = fills_file.Handle;
pub const Hit = hit_file.Hit;
pub const Memory = memory_file.Memory;
pub const Slots = slots_file.Slots;
pub const Times = entry_file.Times;

/// Pools of one plan, the common one among them.
pub const max_pools = 256;
/// The pool of what is no arm's, when the plan gives it no share of its own: it has what no share claims.
pub const common: u16 = 0xFFFF;

/// What a pool may take. `id` tells the same pool from plan to plan; 0 is the common one.
pub const Share = struct { id: u64, bytes: u64 };

pub const Pair = struct { name: []const u8, value: []const u8 };

/// A field that the answer varies on, and its raw value in the request; null when it had none.
pub const Varied = struct { name: []const u8, value: ?[]const u8 };

/// An answer that begins to arrive.
pub const Answer = struct {
    hash: u64,
    material: []const u8,
    /// Number of the share in what `configure` was given, or `common`.
    pool: u16,
    /// The clock of drops when the request began.
    born: slots_file.Born,
    /// Number of the request's stream; later requests have later ones.
    stream: u32,
    times: Times,
    status: u16,
    flags: u16,
    fields: []const Pair,
    /// Which of the fields is `etag`.
    etag: ?usize = null,
    vary: []const Varied = &.{},
    labels: []const u64 = &.{},
    /// Bytes of the body, if they were announced.
    length: ?u64 = null,
};

/// Why an answer is not taken in.
pub const Refusal = error{
    /// The store has no room at all.
    Disabled,
    /// It is larger than an answer may be, or than its pool.
    TooLarge,
    /// It has more fields, labels or varied names than are kept.
    TooMuch,
    /// As many as can are arriving already, or take what a pool spares for them.
    Busy,
    /// The same answer is arriving already.
    Same,
};

pub const Statistics = struct {
    entries: u64 = 0,
    /// Bytes of the blocks in use, those of fills among them.
    bytes: u64 = 0,
    /// Entries that had to go for others.
    evictions: u64 = 0,
    /// Entries that were met past their time, or after a drop.
    removals: u64 = 0,
    commits: u64 = 0,
    refusals: u64 = 0,
    /// Fills that were begun and did not become entries.
    aborts: u64 = 0,
};

/// Entries that may have to go for one block before the attempt is given up: a pool that was made smaller is emptied in
/// steps.
const max_victims = 32;
/// Buckets that move when an entry comes.
const buckets_step = 4;
/// Bytes from the budget below which nothing is kept.
const min_room = 4 * page;

pub const Store = struct {
    memory: *Memory,
    blocks: Blocks,
    index: index_file.Index,
    fills: fills_file.Fills,
    pools: [max_pools]Pool,
    /// From the number of a share to its pool.
    shares: [max_pools]u16,
    share_count: usize,
    /// Bytes of the tables: the index, and behind it the ghosts.
    tables: usize,
    /// Bytes of the tables before them, while buckets are still moving from there.
    retiring: usize,
    ghosts: Ref,
    ghost_sets: usize,
    /// Where a body is put together.
    scratch: Ref,
    scratch_size: usize,
    largest: usize,
    seed: u64,
    /// The last time that was told.
    now: i64,
    statistics: Statistics,

    /// An empty store that takes nothing yet. `seed` is random.
    pub fn init(self: *Store, memory: *Memory, seed: u64) void {
        self.* = .{
            .memory = memory,
            .blocks = .{ .memory = memory },
            .index = .{},
            .fills = undefined,
            .pools = @splat(.{}),
            .shares = @splat(0),
            .share_count = 0,
            .tables = 0,
            .retiring = 0,
            .ghosts = 0,
            .ghost_sets = 0,
            .scratch = 0,
            .scratch_size = 0,
            .largest = 0,
            .seed = seed,
            .now = 0,
            .statistics = .{},
        };
        self.fills.init();
        self.pools[0] = .{ .exists = true };
    }

    /// The hash under which a key is looked up and kept. Whoever finds keys that collide gains nothing by it (`max_chain`).
    pub fn hash(self: *const Store, material: []const u8) u64 {
        return hash_file.seeded(self.seed, material);
    }

    /// Takes over a plan's memory: `budget` bytes for the whole of memory, what others have of it included; no answer above
    /// `largest` bytes; and what each pool may take. What still fits stays; pools that are not named give up what they
    /// have, some of it whenever room is needed or `tend` is called. Memory that was taken is never given back (that
    /// is not possible in WebAssembly), but a smaller budget is kept to by what is in it.
    pub fn configure(self: *Store, budget: u64, largest: u64, shares: []const Share) void {
        const others = self.memory.size() - shares_file.taken(self);
        const room: usize = @intCast(@min(budget, std.math.maxInt(u32)) -| others);
        self.blocks.limit = 0;
        if (room >= min_room) {
            if (shares_file.sizeTables(self, room, @intCast(@min(largest, room)))) |counted| {
                self.blocks.limit = (room -| counted) / page * page / blocks_file.block_size;
            }
        }
        self.largest = @intCast(@min(largest, self.scratch_size));
        shares_file.divide(self, @max(budget, 1), shares);
        for (&self.fills.places) |*fill| {
            if (fill.entry != 0 and self.pools[Entry.get(self.memory, fill.entry).pool].gone) self.giveUp(fill);
        }
    }

    /// The answer to a request for `material` whose fields have the values that `context.vary(name) ?[]const u8` gives
    /// (raw; null for an absent one). Nothing dead or past its time is found. Counts as a use.
    pub fn find(
        self: *Store,
        key_hash: u64,
        material: []const u8,
        context: anytype,
        now_ms: i64,
        drops: *const Slots,
    ) ?Hit {
        self.now = now_ms;
        if (self.tables == 0) return null;
        var link = self.index.head(self.memory, key_hash);
        while (link.* != 0) {
            const ref = link.*;
            const entry = Entry.get(self.memory, ref);
            if (entry.hash == key_hash and entry.material == material.len) {
                if (now_ms >= entry.times.drop_at or self.pools[entry.pool].gone or
                    !drops.alive(entry.born, entry.slots()))
                {
                    self.remove(link);
                    self.statistics.removals += 1;
                    continue;
                }
                var reader = entry.reader(self.memory, ref);
                if (reader.equals(material) and variant.answers(entry, &reader, context)) {
                    entry.uses +|= 1;
                    Pool.use(entry);
                    return .{
                        .memory = self.memory,
                        .entry = entry,
                        .fields = reader,
                        .scratch = self.memory.bytes(self.scratch),
                    };
                }
            }
            link = &entry.link;
        }
        return null;
    }

    /// Begins to take in an answer; its body follows by `append`.
    pub fn begin(self: *Store, answer: *const Answer, now_ms: i64) Refusal!Handle {
        self.now = now_ms;
        return arriving.begin(self, answer) catch |refusal| {
            self.statistics.refusals += 1;
            return refusal;
        };
    }

    /// Adds to the body. False when the answer is given up: it got too long, or there is no room.
    pub fn append(self: *Store, handle: Handle, chunk: []const u8) bool {
        const fill = self.fills.get(handle) orelse return false;
        const entry = Entry.get(self.memory, fill.entry);
        const length = @as(u64, entry.body) + chunk.len;
        if (length > self.largest or length > fill.expected orelse length or !arriving.write(self, fill, chunk)) {
            self.giveUp(fill);
            return false;
        }
        entry.body = @intCast(length);
        fill.touched = self.now;
        return true;
    }

    /// Makes the answer one that is found, in the place of an older one for the same requests. False when it is not
    /// kept: it was given up before, is shorter than announced, something it depends on was dropped since its request began,
    /// or a newer one has been faster.
    pub fn commit(self: *Store, handle: Handle, drops: *const Slots) bool {
        const fill = self.fills.get(handle) orelse return false;
        const ref = fill.entry;
        const entry = Entry.get(self.memory, ref);
        const pool = &self.pools[entry.pool];
        const whole = entry.body == fill.expected orelse entry.body;
        if (!whole or !drops.alive(entry.born, entry.slots()) or !self.within(pool)) {
            self.giveUp(fill);
            return false;
        }
        const standing = succession.replace(self, ref, entry) catch {
            self.giveUp(fill);
            return false;
        };
        entry.last = fill.last;
        pool.filling -= entry.blocks;
        pool.fills -= 1;
        self.fills.end(fill);

        pool.insert(self.memory, ref, standing);
        const head = self.index.head(self.memory, entry.hash);
        entry.link = head.*;
        head.* = ref;
        self.statistics.entries += 1;
        self.statistics.commits += 1;
        self.stepIndex(buckets_step);
        return true;
    }

    /// Throws away what has arrived of an answer. Nothing happens when it is over already.
    pub fn abort(self: *Store, handle: Handle) void {
        if (self.fills.get(handle)) |fill| self.giveUp(fill);
    }

    /// Has the next request handed on that is for an entry of this hash, as if none had been.
    pub fn handOnAgain(self: *Store, key_hash: u64) void {
        if (self.tables == 0) return;
        var ref = self.index.head(self.memory, key_hash).*;
        while (ref != 0) {
            const entry = Entry.get(self.memory, ref);
            if (entry.hash == key_hash) entry.handed_on = 0;
            ref = entry.link;
        }
    }

    /// Does some of what a new plan has left to do: empties pools that have more than their share, moves buckets. For times
    /// when nobody waits; `steps` of 1000 take a fraction of a millisecond.
    pub fn tend(self: *Store, now_ms: i64, steps: u32) void {
        self.now = now_ms;
        self.stepIndex(steps);
        var left = steps;
        for (&self.pools) |*pool| {
            while (left > 0 and pool.used > pool.limit and self.evict(pool)) left -= 1;
            if (pool.gone and pool.used == 0) pool.* = .{};
        }
    }

    pub fn stats(self: *const Store) Statistics {
        var statistics = self.statistics;
        statistics.bytes = @as(u64, self.blocks.used) * blocks_file.block_size;
        return statistics;
    }

    /// One more block for a pool, for which others of it go when it has its share.
    pub fn takeBlock(self: *Store, pool: *Pool) ?Ref {
        for (0..max_victims) |_| {
            if (pool.used < pool.limit) {
                if (self.blocks.take()) |ref| {
                    pool.used += 1;
                    return ref;
                }
                // Every pool within its share leaves room for the others: one has not come down to its share yet.
                if (!self.evictAbove() and !self.evict(pool)) return null;
            } else if (!self.evict(pool)) return null;
        }
        return null;
    }

    /// Whether the pool has no more than its share, if need be after others of it have gone.
    fn within(self: *Store, pool: *Pool) bool {
        for (0..max_victims) |_| {
            if (pool.used <= pool.limit) return true;
            if (!self.evict(pool)) return false;
        }
        return pool.used <= pool.limit;
    }

    /// Removes an entry of a pool that has more than its share, if there is one.
    fn evictAbove(self: *Store) bool {
        for (&self.pools) |*pool| {
            if (pool.used > pool.limit and self.evict(pool)) return true;
        }
        return false;
    }

    /// Removes the entry of the pool that is to go first; false when it has none.
    pub fn evict(self: *Store, pool: *Pool) bool {
        const victim = pool.victim(self.memory, self.now) orelse return false;
        var link = self.index.head(self.memory, Entry.get(self.memory, victim).hash);
        while (link.* != victim) link = &Entry.get(self.memory, link.*).link;
        self.remove(link);
        self.statistics.evictions += 1;
        return true;
    }

    /// Takes the entry that `link` leads to out of everything.
    pub fn remove(self: *Store, link: *Ref) void {
        const ref = link.*;
        const entry = Entry.get(self.memory, ref);
        link.* = entry.link;
        const pool = &self.pools[entry.pool];
        pool.remove(self.memory, ref);
        pool.used -= entry.blocks;
        self.blocks.give(ref, entry.last, entry.blocks);
        self.statistics.entries -= 1;
    }

    pub fn giveUp(self: *Store, fill: *Fill) void {
        const entry = Entry.get(self.memory, fill.entry);
        const pool = &self.pools[entry.pool];
        pool.filling -= entry.blocks;
        pool.used -= entry.blocks;
        pool.fills -= 1;
        self.blocks.give(fill.entry, fill.last, entry.blocks);
        self.fills.end(fill);
        self.statistics.aborts += 1;
    }

    /// Moves buckets to the table in use, and makes blocks of the one before when it is empty.
    fn stepIndex(self: *Store, count: u32) void {
        const done = self.index.step(self.memory, count) orelse return;
        self.blocks.adopt(done, self.retiring);
        self.retiring = 0;
    }
};
