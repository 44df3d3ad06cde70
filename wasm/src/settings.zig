//! What the module is configured with: a flat JSON object of strings and booleans, of which three members are known.

const std = @import("std");
const mem = @import("bytes.zig");

pub const Settings = struct {
    /// The cluster of the sidecar's supervisor.
    cluster: [128]u8 = undefined,
    cluster_length: usize = 0,
    /// Whether the filter adds `x-meshcache-ask` itself, because there is no filter behind it that does. Then Envoy chooses
    /// the route anew.
    header: bool = false,
    /// Whether a filter in front of this one may have verified a token of the caller.
    tokens: bool = true,

    const default = "meshcache-filter";

    /// What `text` does not say is as by default; so is all where it is not of this form.
    pub fn read(text: []const u8) Settings {
        var settings: Settings = .{};
        const cluster = if (valueOf(text, "\"cluster\"")) |value| string(value) else null;
        settings.setCluster(cluster orelse default);
        settings.header = boolean(text, "\"header\"", settings.header);
        settings.tokens = boolean(text, "\"tokens\"", settings.tokens);
        return settings;
    }

    pub fn clusterName(self: *const Settings) []const u8 {
        return self.cluster[0..self.cluster_length];
    }

    fn setCluster(self: *Settings, name: []const u8) void {
        const fitting = if (name.len <= self.cluster.len) name else default;
        @memcpy(self.cluster[0..fitting.len], fitting);
        self.cluster_length = fitting.len;
    }
};

/// The text from the value of a member on.
fn valueOf(text: []const u8, quoted: []const u8) ?[]const u8 {
    for (0..text.len) |at| {
        if (!mem.startsWith(text[at..], quoted)) continue;
        const rest = mem.trim(text[at + quoted.len ..]);
        return if (rest.len > 0 and rest[0] == ':') mem.trim(rest[1..]) else null;
    }
    return null;
}

fn boolean(text: []const u8, quoted: []const u8, default: bool) bool {
    const value = valueOf(text, quoted) orelse return default;
    return if (default) !mem.startsWith(value, "false") else mem.startsWith(value, "true");
}

fn string(text: []const u8) ?[]const u8 {
    if (text.len == 0 or text[0] != '"') return null;
    const end = mem.find(text, '"', 1) orelse return null;
    const inner = text[1..end];
    return if (inner.len == 0 or mem.find(inner, '\\', 0) != null) null else inner;
}

test "settings" {
    const testing = std.testing;
    var settings: Settings = .read("{\"cluster\": \"elsewhere\", \"header\":true, \"tokens\": false}");
    try testing.expectEqualStrings("elsewhere", settings.clusterName());
    try testing.expect(settings.header and !settings.tokens);
    for ([_][]const u8{ "", "{}", "{\"cluster\"", "{\"cluster\":1}", "{\"cluster\":\"a\\\"b\"}", "{\"cluster\":\"" ++ @as([200]u8, @splat('x')) ++ "\"}" }) |text| {
        settings = .read(text);
        try testing.expectEqualStrings("meshcache-filter", settings.clusterName());
        try testing.expect(!settings.header and settings.tokens);
    }
}
