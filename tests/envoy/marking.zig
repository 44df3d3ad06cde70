//! A module for tests of where the filter stands: does with a request what its header `mode` says.

extern "env" fn proxy_get_header_map_value(map: u32, name: [*]const u8, name_len: usize, value: *?[*]u8, len: *usize) u32;
extern "env" fn proxy_set_property(path: [*]const u8, path_len: usize, value: [*]const u8, len: usize) u32;

var given: [64 * 1024]u8 align(16) = undefined;

export fn proxy_abi_version_0_2_1() void {}

export fn proxy_on_memory_allocate(size: usize) ?[*]u8 {
    return if (size <= given.len) &given else null;
}

export fn proxy_on_request_headers(_: u32, _: u32, _: u32) u32 {
    var value: ?[*]u8 = null;
    var len: usize = 0;
    const name = "mode";
    if (proxy_get_header_map_value(0, name, name.len, &value, &len) != 0 or len == 0) return 0;
    const state = "meshcache.skip";
    const asked = "meshcache.ask";
    switch (value.?[0]) {
        's' => _ = proxy_set_property(state, state.len, "1", 1),
        'a' => _ = proxy_set_property(asked, asked.len, value.?, len),
        't' => @trap(),
        else => {},
    }
    return 0;
}
