//! From a hash to the entries that have it: a table of buckets with chained entries, newest first.
//!
//! The table is sized from the budget, so that it rarely grows; when it does, the buckets move to the new one a few at a
//! time, as entries come, and no request waits for the whole.

const entry_file = @import("entry.zig");
const memory_file = @import("memory.zig");

const Entry = entry_file.Entry;
const Memory = memory_file.Memory;
const Ref = memory_file.Ref;

pub const Index = struct {
    /// The table in use; bucket of a hash: its lowest bits.
    heads: Ref = 0,
    mask: u32 = 0,
    /// The table from which buckets are still moving, and how many of them have moved.
    old: Ref = 0,
    old_mask: u32 = 0,
    moved: u32 = 0,

    pub fn moving(self: *const Index) bool {
        return self.old != 0;
    }

    /// Puts an empty table of `count` buckets (a power of two, more than there were) in the place of the present one.
    /// Not to be called while buckets are moving.
    pub fn extend(self: *Index, heads: Ref, count: u32) void {
        self.old = self.heads;
        self.old_mask = self.mask;
        self.moved = 0;
        self.heads = heads;
        self.mask = count - 1;
    }

    /// The link to the first entry of the bucket in which those with this hash are.
    pub inline fn head(self: *const Index, memory: *const Memory, hash: u64) *Ref {
        const low: u32 = @truncate(hash);
        if (self.old != 0 and (low & self.old_mask) >= self.moved) {
            return &memory.table(Ref, self.old)[low & self.old_mask];
        }
        return &memory.table(Ref, self.heads)[low & self.mask];
    }

    /// Moves up to `count` buckets on; the old table when that was the last one, which then is no longer needed.
    pub fn step(self: *Index, memory: *const Memory, count: u32) ?Ref {
        if (self.old == 0) return null;
        const from = memory.table(Ref, self.old);
        const to = memory.table(Ref, self.heads);
        var left = count;
        while (left > 0) : (left -= 1) {
            // Turned round first, so that pushing in front keeps the order.
            var turned: Ref = 0;
            var ref = from[self.moved];
            while (ref != 0) {
                const entry = Entry.get(memory, ref);
                const next = entry.link;
                entry.link = turned;
                turned = ref;
                ref = next;
            }
            while (turned != 0) {
                const entry = Entry.get(memory, turned);
                const next = entry.link;
                const bucket = &to[@as(u32, @truncate(entry.hash)) & self.mask];
                entry.link = bucket.*;
                bucket.* = turned;
                turned = next;
            }
            if (self.moved == self.old_mask) {
                const done = self.old;
                self.old = 0;
                return done;
            }
            self.moved += 1;
        }
        return null;
    }
};
