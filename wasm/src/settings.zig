//! What the module is configured with: a flat JSON object of strings and booleans, of which two members are known.

const std = @import("std");

pub const Settings = struct {
    /// The cluster of the sidecar's supervisor.
    cluster: [128]u8 = undefined,
    cluster_length: usize = 0,
    /// Whether the filter adds `x-meshcache-ask` itself, because there is no filter behind it that does. Then Envoy chooses
    /// the route anew.
    header: bool = false,

    const default = "meshcache-filter";

    /// What `text` does not say is as by default; so is all where it is not of this form.
    pub fn read(text: []const u8) Settings {
        var settings: Settings = .{};
        if (valueOf(text, "cluster")) |value| settings.setCluster(string(value) orelse default) else settings.setCluster(default);
        if (valueOf(text, "header")) |value| settings.header = std.mem.startsWith(u8, value, "true");
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
fn valueOf(text: []const u8, comptime name: []const u8) ?[]const u8 {
    const quoted = "\"" ++ name ++ "\"";
    const at = std.mem.indexOf(u8, text, quoted) orelse return null;
    const rest = std.mem.trimStart(u8, text[at + quoted.len ..], " \t\r\n");
    if (rest.len == 0 or rest[0] != ':') return null;
    return std.mem.trimStart(u8, rest[1..], " \t\r\n");
}

fn string(text: []const u8) ?[]const u8 {
    if (text.len < 2 or text[0] != '"') return null;
    const end = std.mem.indexOfScalarPos(u8, text, 1, '"') orelse return null;
    const inner = text[1..end];
    return if (inner.len == 0 or std.mem.indexOfScalar(u8, inner, '\\') != null) null else inner;
}

test "settings" {
    const testing = std.testing;
    var settings: Settings = .read("{\"cluster\": \"elsewhere\", \"header\":true}");
    try testing.expectEqualStrings("elsewhere", settings.clusterName());
    try testing.expect(settings.header);
    for ([_][]const u8{ "", "{}", "{\"cluster\"", "{\"cluster\":1}", "{\"cluster\":\"a\\\"b\"}", "{\"cluster\":\"" ++ @as([200]u8, @splat('x')) ++ "\"}" }) |text| {
        settings = .read(text);
        try testing.expectEqualStrings("meshcache-filter", settings.clusterName());
        try testing.expect(!settings.header);
    }
}
