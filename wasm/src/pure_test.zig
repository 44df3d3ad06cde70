//! All that needs no host, under one name for the tests.

pub const arm = @import("arm.zig");
pub const asked = @import("asked.zig");
pub const bytes = @import("bytes.zig");
pub const bins = @import("bins.zig");
pub const decide = @import("decide.zig");
pub const fields = @import("fields.zig");
pub const hash = @import("hash.zig");
pub const key = @import("key.zig");
pub const normal = @import("normal.zig");
pub const numbers = @import("numbers.zig");
pub const plan = @import("plan.zig");
pub const reader = @import("reader.zig");
pub const route = @import("route.zig");
pub const trust = @import("trust.zig");
