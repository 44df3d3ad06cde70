//! What the filter has answered by itself, counted, for the sidecar to add to what it has counted.
//!
//! Counts gather in one table of fixed size (`table`). A batch (`tick`) is that table as bytes, numbered; the bytes stay
//! in a buffer of their own until the sidecar has said that it has them (`onTaken`), and are sent again unchanged until
//! then, while new counts gather in the table. The sidecar takes each number of a worker once, so nothing is lost and
//! nothing is doubled, whichever of request and reply is lost on the way.

const table = @import("table.zig");

pub const Hit = table.Hit;
pub const max_batch = table.max_batch;

/// Milliseconds between two batches.
const interval_ms = 500;
/// Milliseconds after a failure until the same batch is sent again.
const retry_ms = 500;
/// Milliseconds after which a batch is sent again of which nothing was heard; more than any timeout of a call.
const lost_ms = 15_000;

/// One for each worker of Envoy, in static memory; `init` first.
pub const Numbers = struct {
    /// Where hits are counted.
    table: table.Table,
    worker: u64,
    /// Of the batch that was made last.
    sequence: u64,
    batch: [max_batch]u8,
    /// 0 when nothing waits to be taken.
    batch_len: u32,
    in_flight: bool,
    /// When the batch was made, when it was sent last, and when that failed last.
    made_at: u64,
    sent_at: u64,
    failed_at: u64,

    /// `worker` is this worker's alone, for all time; `seed` is drawn.
    pub fn init(self: *Numbers, worker: u64, seed: u64) void {
        self.table.init(seed);
        self.worker = worker;
        self.sequence = 0;
        self.batch_len = 0;
        self.in_flight = false;
        self.made_at = 0;
        self.sent_at = 0;
        self.failed_at = 0;
    }

    /// The batch to send now, if any; it stays as it is until it was taken or refused.
    pub fn tick(self: *Numbers, now_ms: u64) ?[]const u8 {
        if (self.batch_len == 0) {
            if (!self.table.counted) return null;
            if (now_ms -% self.made_at < interval_ms and !self.table.pressing()) return null;
            self.sequence += 1;
            self.batch_len = self.table.encode(self.worker, self.sequence, &self.batch);
            self.made_at = now_ms;
        } else if (self.in_flight) {
            if (now_ms -% self.sent_at < lost_ms) return null;
        } else if (now_ms -% self.failed_at < retry_ms) {
            return null;
        }
        self.in_flight = true;
        self.sent_at = now_ms;
        return self.batch[0..self.batch_len];
    }

    /// The sidecar has this batch (204), or will never take it (400): it is of another release.
    pub fn onTaken(self: *Numbers, sequence: u64) void {
        if (sequence != self.sequence) return;
        self.batch_len = 0;
        self.in_flight = false;
    }

    /// The batch under way was not taken, or nobody knows: it is sent again.
    pub fn onFailed(self: *Numbers, now_ms: u64) void {
        self.in_flight = false;
        self.failed_at = now_ms;
    }
};
