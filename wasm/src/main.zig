//! The module's face towards Envoy: what proxy-wasm calls. What is not exported is not called, which is cheaper.

const abi = @import("abi.zig");
const feed = @import("feed.zig");
const stream = @import("stream.zig");
const worker = @import("worker.zig");

/// Says which version of proxy-wasm's ABI the module speaks.
export fn proxy_abi_version_0_2_1() void {}

export fn proxy_on_memory_allocate(size: usize) ?[*]u8 {
    return abi.allocate(size);
}

export fn proxy_on_configure(_: u32, _: usize) u32 {
    var memory: [4096]u8 = undefined;
    const configuration = abi.bytes(.plugin_configuration, 0, &memory) orelse &.{};
    // A configuration that is refused would keep Envoy from starting: without a worker the filter lets everything pass.
    if (worker.init(configuration)) abi.tickEvery(feed.tick_ms) else abi.log(.err, "no random numbers: the filter does nothing");
    return 1;
}

export fn proxy_on_tick(_: u32) void {
    feed.tick();
}

export fn proxy_on_http_call_response(_: u32, token: u32, fields: u32, size: usize, _: u32) void {
    feed.onResponse(token, fields, size);
}

export fn proxy_on_request_headers(id: u32, _: u32, ended: u32) abi.Action {
    return stream.onRequest(id, ended != 0);
}

export fn proxy_on_response_headers(id: u32, _: u32, ended: u32) abi.Action {
    stream.onResponse(id, ended != 0);
    return .go_on;
}

export fn proxy_on_response_body(id: u32, size: usize, ended: u32) abi.Action {
    stream.onBody(id, size, ended != 0);
    return .go_on;
}

export fn proxy_on_response_trailers(id: u32, _: u32) abi.Action {
    stream.onTrailers(id);
    return .go_on;
}

export fn proxy_on_delete(id: u32) void {
    stream.onDelete(id);
}
