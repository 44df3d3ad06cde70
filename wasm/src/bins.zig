//! The bins of latencies: those of `meshcache.experiment.bins`, for whole microseconds.

/// From 100 us to 1000 s, 2 % wide; what lies outside counts in the first or the last.
pub const count = 807;
/// Microseconds; what is longer counts as this.
pub const highest_us: u64 = 1_000_000_000;
const lowest_us = 100;
const growth: f64 = 1.01 / 0.99;

/// In static memory; `init` first.
pub const Bins = struct {
    /// The highest whole microsecond of each bin but the last.
    edges: [count - 1]u32,

    pub fn init(self: *Bins) void {
        var edge: f64 = lowest_us;
        for (&self.edges) |*each| {
            each.* = @intFromFloat(edge);
            edge *= growth;
        }
    }

    /// The bin of a latency in microseconds.
    pub fn of(self: *const Bins, latency_us: u64) u16 {
        if (latency_us <= lowest_us) return 0;
        if (latency_us >= highest_us) return count - 1;
        // The first whose upper edge it does not exceed.
        var low: usize = 1;
        var high: usize = self.edges.len;
        while (low < high) {
            const middle = (low + high) / 2;
            if (latency_us <= self.edges[middle]) high = middle else low = middle + 1;
        }
        return @intCast(low);
    }
};
