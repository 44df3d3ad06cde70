//! Which entry of a pool goes first: S3-FIFO, by bytes.
//!
//! Yang, Zhang, Qiu, Yue and Vigfusson, "FIFO queues are all you need for cache eviction", SOSP 2023. What comes in
//! stands in a small queue, a tenth of the pool; what is not used there leaves without having pushed out anything else,
//! and only its hash stays for a while. What is used, or comes again while its hash is remembered, stands in the main
//! queue, at whose end what was used lately gets another turn. A hit sets two bits and moves nothing. The paper wants two
//! uses before an entry moves on; one is better here (decision 30).

const entry_file = @import("entry.zig");
const memory_file = @import("memory.zig");

const Entry = entry_file.Entry;
const Memory = memory_file.Memory;
const Place = entry_file.Place;
const Ref = memory_file.Ref;

/// The small queue has one block of so many of the pool.
const small_part = 10;
/// Uses that are told apart.
const max_frequency = 3;
/// Entries that one eviction may pass over, so that it takes microseconds whatever the uses are.
const patience = 64;

/// Where an entry stands, for the one that takes its place.
pub const Standing = struct { place: Place, frequency: u8 };

pub const Queue = struct {
    oldest: Ref = 0,
    newest: Ref = 0,
    count: u32 = 0,
    blocks: u32 = 0,

    fn push(self: *Queue, memory: *const Memory, ref: Ref) void {
        const entry = Entry.get(memory, ref);
        entry.older = self.newest;
        entry.newer = 0;
        if (self.newest != 0) Entry.get(memory, self.newest).newer = ref else self.oldest = ref;
        self.newest = ref;
        self.count += 1;
        self.blocks += entry.blocks;
    }

    fn remove(self: *Queue, memory: *const Memory, ref: Ref) void {
        const entry = Entry.get(memory, ref);
        if (entry.older != 0) Entry.get(memory, entry.older).newer = entry.newer else self.oldest = entry.newer;
        if (entry.newer != 0) Entry.get(memory, entry.newer).older = entry.older else self.newest = entry.older;
        self.count -= 1;
        self.blocks -= entry.blocks;
    }
};

/// Hashes of entries that have left the small queue: sets of four, each 32 bits of the hash and when it left.
pub const Ghosts = struct {
    const Ghost = extern struct { print: u32, time: u32 };
    const ways = 4;
    pub const set_size = ways * @sizeOf(Ghost);

    from: Ref = 0,
    sets: u32 = 0,
    clock: u32 = 0,

    fn set(self: *const Ghosts, memory: *const Memory, hash: u64) []Ghost {
        const number = (hash & 0xFFFF_FFFF) * self.sets >> 32;
        return memory.table(Ghost, self.from)[@intCast(number * ways)..][0..ways];
    }

    fn add(self: *Ghosts, memory: *const Memory, hash: u64) void {
        if (self.sets == 0) return;
        self.clock +%= 1;
        const places = self.set(memory, hash);
        var place = &places[0];
        for (places[1..]) |*other| {
            if (self.clock -% other.time > self.clock -% place.time) place = other;
        }
        place.* = .{ .print = @intCast(hash >> 32), .time = self.clock };
    }

    /// Whether this one left as one of the last `count`; if so it is forgotten.
    fn take(self: *Ghosts, memory: *const Memory, hash: u64, count: u32) bool {
        if (self.sets == 0) return false;
        for (self.set(memory, hash)) |*ghost| {
            if (ghost.print != @as(u32, @intCast(hash >> 32)) or self.clock -% ghost.time >= count) continue;
            ghost.* = .{ .print = 0, .time = self.clock -% 0x8000_0000 };
            return true;
        }
        return false;
    }
};

/// The entries of one pool, and how many blocks they may take.
pub const Pool = struct {
    /// Who it belongs to; 0 is the common pool.
    id: u64 = 0,
    /// Whether the slot is taken, by a pool in force or by one that is being given up.
    exists: bool = false,
    /// Not in force any longer: nothing in it is found, and it gives everything up.
    gone: bool = false,
    limit: u32 = 0,
    /// Blocks of its entries and fills.
    used: u32 = 0,
    /// Blocks of its fills, and how many these are.
    filling: u32 = 0,
    fills: u32 = 0,
    small: Queue = .{},
    main: Queue = .{},
    ghosts: Ghosts = .{},

    pub fn entries(self: *const Pool) u32 {
        return self.small.count + self.main.count;
    }

    fn queue(self: *Pool, place: Place) *Queue {
        return if (place == .main) &self.main else &self.small;
    }

    /// Takes in an entry that is whole; `standing` is that of the one whose place it takes, if any.
    pub fn insert(self: *Pool, memory: *const Memory, ref: Ref, standing: ?Standing) void {
        const entry = Entry.get(memory, ref);
        entry.frequency = 0;
        entry.place = .small;
        if (standing) |old| {
            entry.place = old.place;
            entry.frequency = old.frequency;
        } else if (self.ghosts.take(memory, entry.hash, self.entries())) {
            entry.place = .main;
        }
        self.queue(entry.place).push(memory, ref);
    }

    pub inline fn use(entry: *Entry) void {
        if (entry.frequency < max_frequency) entry.frequency += 1;
    }

    pub fn remove(self: *Pool, memory: *const Memory, ref: Ref) void {
        self.queue(Entry.get(memory, ref).place).remove(memory, ref);
    }

    /// The entry that is to go, still in its queue; null when the pool has none.
    pub fn victim(self: *Pool, memory: *const Memory, now: i64) ?Ref {
        var passed: usize = 0;
        while (true) : (passed += 1) {
            const from_small = self.small.oldest != 0 and
                (self.main.oldest == 0 or self.small.blocks * small_part >= self.limit);
            const ref = if (from_small) self.small.oldest else self.main.oldest;
            if (ref == 0) return null;
            const entry = Entry.get(memory, ref);
            if (entry.times.drop_at <= now or self.gone) return ref;
            if (from_small) {
                if (entry.frequency > 0 and passed < patience) {
                    self.small.remove(memory, ref);
                    entry.frequency = 0;
                    entry.place = .main;
                    self.main.push(memory, ref);
                    continue;
                }
                self.ghosts.add(memory, entry.hash);
            } else if (entry.frequency > 0 and passed < patience) {
                entry.frequency -= 1;
                self.main.remove(memory, ref);
                self.main.push(memory, ref);
                continue;
            }
            return ref;
        }
    }
};
