//! What a budget is spent on: tables, room for one whole body, blocks, and these among the pools.

const std = @import("std");
const blocks_file = @import("blocks.zig");
const memory_file = @import("memory.zig");
const s3fifo = @import("s3fifo.zig");
const store_file = @import("store.zig");

const Ghosts = s3fifo.Ghosts;
const Pool = s3fifo.Pool;
const Ref = memory_file.Ref;
const Share = store_file.Share;
const Store = store_file.Store;
const page = memory_file.page;

/// The room for one body in one piece has at most one of so many parts of the store.
const scratch_part = 8;
/// Bytes of the store for each bucket; smaller entries make chains of two.
const bytes_per_bucket = 512;
/// Bytes of the store for each set of four ghosts: as many ghosts as entries of 1 KB.
const bytes_per_set = 4096;
const min_buckets = 1024;
/// Bytes of a share above which it makes no difference; what is multiplied by it fits into 64 bits.
const max_share: u64 = 1 << 40;

/// Stands for a share that found no pool.
pub const none = 0xFFFF;

/// Bytes of memory that the store has been given.
pub fn taken(store: *const Store) usize {
    return store.blocks.total * blocks_file.block_size + store.tables + store.retiring + store.scratch_size;
}

fn pages(bytes: usize) usize {
    return (bytes + page - 1) / page;
}

/// Makes tables and scratch as large as a store of `room` bytes needs them, and gives what they are to count: what exists
/// is never made smaller, but a smaller store need not pay for what was there before. Serves as blocks when something
/// larger takes its place. Null when memory does not grow so far.
pub fn sizeTables(store: *Store, room: usize, largest: usize) ?usize {
    const wanted = pages(@min(largest, room / scratch_part)) * page;
    if (wanted > store.scratch_size) {
        if (store.memory.grow(wanted / page)) |scratch| {
            if (store.scratch_size > 0) store.blocks.adopt(store.scratch, store.scratch_size);
            store.scratch = scratch;
            store.scratch_size = wanted;
        }
    }
    const buckets = @max(min_buckets, std.math.floorPowerOfTwo(usize, @max(1, room / bytes_per_bucket)));
    const old_buckets = if (store.tables == 0) 0 else @as(usize, store.index.mask) + 1;
    // One growth at a time: a plan that comes while buckets are still moving makes do with the present table.
    const sets = room / bytes_per_set + 1;
    const bytes = pages(buckets * @sizeOf(Ref) + sets * Ghosts.set_size) * page;
    const counted = @min(wanted, store.scratch_size) + bytes;
    if (old_buckets > 0 and (buckets <= old_buckets or store.index.moving())) return counted;
    const tables = store.memory.grow(bytes / page) orelse return if (old_buckets > 0) counted else null;
    store.retiring = store.tables;
    store.index.extend(tables, @intCast(buckets));
    store.tables = bytes;
    store.ghosts = @intCast(tables + buckets * @sizeOf(Ref));
    store.ghost_sets = sets;
    return counted + store.retiring;
}

/// Gives each pool its limit and its part of the ghosts. Shares that claim more than there is are cut down alike; what
/// none claims is the common pool's.
pub fn divide(store: *Store, budget: u64, shares: []const Share) void {
    for (store.pools[1..]) |*pool| pool.gone = pool.exists;
    for (&store.pools) |*pool| {
        pool.limit = 0;
        pool.ghosts.sets = 0;
    }
    var claimed: u64 = 0;
    for (shares) |share| claimed += @min(share.bytes, max_share);
    const whole = @max(@min(budget, max_share), claimed);

    var left = store.blocks.limit;
    var sets: usize = 0;
    store.share_count = @min(shares.len, store_file.max_pools);
    for (shares[0..store.share_count], store.shares[0..store.share_count]) |share, *number| {
        number.* = find(store, share.id) orelse none;
        if (number.* == none) continue;
        const pool = &store.pools[number.*];
        // Of 64 bits by name: what is the smaller of two has as few bits as the smaller one needs.
        const bytes: u64 = @min(share.bytes, max_share);
        const limit: usize = @intCast(store.blocks.limit * bytes / whole);
        pool.limit += @intCast(limit);
        left -= limit;
    }
    store.pools[0].limit += @intCast(left);
    for (&store.pools) |*pool| {
        if (pool.limit == 0 or store.blocks.limit == 0) continue;
        const count = @as(u64, store.ghost_sets) * pool.limit / store.blocks.limit;
        pool.ghosts.from = @intCast(store.ghosts + sets * Ghosts.set_size);
        pool.ghosts.sets = @intCast(count);
        sets += pool.ghosts.sets;
    }
}

/// The pool with this id, which is in force from now on; a new one where there was none; null when there are too many.
fn find(store: *Store, id: u64) ?u16 {
    if (id == 0) return 0;
    var free: ?u16 = null;
    var smallest: ?u16 = null;
    for (store.pools[1..], 1..) |*pool, number| {
        if (pool.exists and pool.id == id) {
            pool.gone = false;
            return @intCast(number);
        }
        if (!pool.exists) {
            free = free orelse @intCast(number);
        } else if (pool.gone and pool.fills == 0 and (smallest == null or pool.used < store.pools[smallest.?].used)) {
            smallest = @intCast(number);
        }
    }
    const number = free orelse smallest orelse return null;
    const pool = &store.pools[number];
    while (pool.used > 0 and store.evict(pool)) {}
    pool.* = .{ .id = id, .exists = true };
    return number;
}
