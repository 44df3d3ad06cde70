//! What must hold of a store at any time, looked up in all that it has; for tests.

const std = @import("std");
const blocks_file = @import("blocks.zig");
const Entry = @import("entry.zig").Entry;
const memory_file = @import("memory.zig");
const s3fifo = @import("s3fifo.zig");
const shares = @import("shares.zig");
const Store = @import("store.zig").Store;

const Ref = memory_file.Ref;

pub const Broken = error{ Chain, Queue, Pool, Index, Blocks, Memory };

/// Every block is in one place, every entry in one bucket and one queue, and all sums are right. Takes time with all that
/// is stored.
pub fn check(store: *Store) Broken!void {
    var used: usize = 0;
    var entries: usize = 0;
    for (&store.pools) |*pool| {
        var in_pool: usize = 0;
        for ([_]*const s3fifo.Queue{ &pool.small, &pool.main }) |queue| {
            var blocks: usize = 0;
            var count: usize = 0;
            var newer: Ref = 0;
            var ref = queue.newest;
            while (ref != 0) : (count += 1) {
                const entry = Entry.get(store.memory, ref);
                if (entry.newer != newer or &store.pools[entry.pool] != pool) return error.Queue;
                try chain(store, ref, entry.last, entry.blocks);
                if (!indexed(store, ref)) return error.Index;
                blocks += entry.blocks;
                newer = ref;
                ref = entry.older;
            }
            if (queue.oldest != newer or queue.count != count or queue.blocks != blocks) return error.Queue;
            in_pool += blocks;
            entries += count;
        }
        var filling: usize = 0;
        var fills: usize = 0;
        for (&store.fills.places) |*fill| {
            if (fill.entry == 0) continue;
            const entry = Entry.get(store.memory, fill.entry);
            if (&store.pools[entry.pool] != pool) continue;
            try chain(store, fill.entry, fill.last, entry.blocks);
            filling += entry.blocks;
            fills += 1;
        }
        if (pool.filling != filling or pool.fills != fills or pool.used != in_pool + filling) return error.Pool;
        if (!pool.exists and pool.used != 0) return error.Pool;
        used += pool.used;
    }
    if (store.blocks.used != used or store.statistics.entries != entries) return error.Blocks;
    if (used + unused(store) != store.blocks.total) return error.Blocks;
    if (shares.taken(store) != store.memory.size()) return error.Memory;
}

fn chain(store: *Store, first: Ref, last: Ref, count: usize) Broken!void {
    var ref = first;
    for (1..count) |_| ref = store.blocks.next(ref).*;
    if (ref != last or store.blocks.next(ref).* != 0) return error.Chain;
}

fn indexed(store: *Store, ref: Ref) bool {
    var other = store.index.head(store.memory, Entry.get(store.memory, ref).hash).*;
    while (other != 0) : (other = Entry.get(store.memory, other).link) {
        if (other == ref) return true;
    }
    return false;
}

fn unused(store: *Store) usize {
    var count: usize = 0;
    var ref = store.blocks.free;
    while (ref != 0) : (ref = store.blocks.next(ref).*) count += 1;
    for (store.blocks.fresh) |range| count += (range.to - range.from) / blocks_file.block_size;
    return count;
}
