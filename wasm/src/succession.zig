//! Which answers stay when one comes for requests that others answer already: the newer one, and of one key those that vary
//! on the same fields (`engine.storing.succession`, RFC 9111 section 4).

const entry_file = @import("entry.zig");
const s3fifo = @import("s3fifo.zig");
const store_file = @import("store.zig");
const variant = @import("variant.zig");

const Entry = entry_file.Entry;
const Ref = @import("memory.zig").Ref;
const Store = store_file.Store;

/// Entries of one bucket; beyond that the last one goes, so that whatever hashes are made, a look-up ends.
const max_chain = 64;
/// Entries of one key that differ in what they vary on.
const max_variants = 4;

/// Whether an answer is older than another one: asked for before it, by an earlier stream, and born no later. Both, since an
/// origin's clock may be wrong, or an answer may have lain in another cache. Numbers of streams grow until they begin anew.
pub fn isOlder(stream: u32, birth: i64, other_stream: u32, other_birth: i64) bool {
    return @as(i32, @bitCast(other_stream -% stream)) > 0 and other_birth >= birth;
}

/// Removes what a new entry takes the place of: the one that answers the same requests, and those of the same key that
/// vary on other fields, since the origin has changed its mind about what matters. The oldest of too many goes as well.
/// Gives where the new one is to stand; an error when one that it would take the place of is newer.
pub fn replace(store: *Store, ref: Ref, entry: *const Entry) error{Older}!?s3fifo.Standing {
    var standing: ?s3fifo.Standing = null;
    var variants: usize = 1;
    var length: usize = 1;
    var link = store.index.head(store.memory, entry.hash);
    while (link.* != 0) {
        const other = Entry.get(store.memory, link.*);
        var takes_place = length >= max_chain;
        if (other.hash == entry.hash and variant.sameMaterial(store.memory, ref, link.*)) {
            const comparison = variant.compare(store.memory, ref, link.*);
            if (comparison != .other_values and
                isOlder(entry.stream, entry.times.birth, other.stream, other.times.birth)) return error.Older;
            switch (comparison) {
                .same => {
                    standing = .{ .place = other.place, .frequency = other.frequency };
                    takes_place = true;
                },
                .other_names => takes_place = true,
                .other_values => {
                    variants += 1;
                    if (variants > max_variants) takes_place = true;
                },
            }
        }
        if (takes_place) {
            store.remove(link);
            continue;
        }
        length += 1;
        link = &other.link;
    }
    return standing;
}
