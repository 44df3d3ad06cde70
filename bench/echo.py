"""The barest ext_proc server on `grpc.aio`: what any such server in Python costs, whatever it does.

`python -m bench.echo MODE SOCKET [ANSWER] [--native]`, with the event loop and the server options of `meshcache serve`;
with `--native` on `meshcache.rpc`:

- `reply` answers every request with the response that the file ANSWER holds (JSON: `headers`, `body`), unread;
- `pass` lets every request through to the origin, unread;
- `tee` lets it through and sees the response pass, headers and body, as a cache that stores it has to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import uvloop
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from grpc.aio import EOF
from grpc_health.v1 import health, health_pb2_grpc

from meshcache.extproc.grpcio_transport import SERVER_OPTIONS
from meshcache.extproc.options import METHOD, SERVICE, SOCKET_MODE
from meshcache.rpc.health import Health
from meshcache.rpc.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from meshcache.rpc.stream import Stream

    Context = grpc.aio.ServicerContext[Any, bytes]
    Handler = Callable[[object, Context | Stream], Coroutine[Any, Any, None]]


def canned_reply(text: str) -> bytes:
    """Serialise the immediate reply that the JSON `text` describes."""
    answer = json.loads(text)
    reply = ProcessingResponse()
    reply.immediate_response.status.code = 200
    reply.immediate_response.body = answer["body"].encode()
    for name, value in answer["headers"].items():
        header = reply.immediate_response.headers.set_headers.add().header
        header.key, header.raw_value = name, value.encode("latin-1")
    return _bytes(reply)


def answering_once(reply: bytes) -> Handler:
    """Return a handler that answers the first message of a stream and ends it."""

    async def converse(_requests: object, context: Context | Stream) -> None:
        if await context.read() not in _ENDS:
            await context.write(reply)

    return converse


async def tee(_requests: object, context: Context | Stream) -> None:
    """Follow a response to its end without changing it: the fewest messages by which it can be stored."""
    while (message := await context.read()) not in _ENDS:
        request = ProcessingRequest.FromString(message)
        match request.WhichOneof("request"):
            case "request_headers":
                await context.write(_SEND_RESPONSE_HEADERS)
            case "response_headers":
                await context.write(_STREAM_RESPONSE_BODY)
                if request.response_headers.end_of_stream:
                    return
            case "response_body":
                await context.write(_PASS_RESPONSE_BODY)
                if request.response_body.end_of_stream:
                    return
    raise asyncio.CancelledError


_ENDS = (EOF, None)
"""What is read at the end of a stream."""


def _pass_request() -> ProcessingResponse:
    reply = ProcessingResponse()
    reply.request_headers.SetInParent()
    return reply


def _bytes(reply: ProcessingResponse) -> bytes:
    serialised: bytes = reply.SerializeToString()
    return serialised


def _send_response_headers() -> bytes:
    reply = _pass_request()
    reply.mode_override.response_header_mode = ProcessingMode.SEND
    return _bytes(reply)


def _stream_response_body() -> bytes:
    reply = ProcessingResponse()
    reply.response_headers.SetInParent()
    reply.mode_override.response_body_mode = ProcessingMode.STREAMED
    return _bytes(reply)


def _pass_response_body() -> bytes:
    reply = ProcessingResponse()
    reply.response_body.SetInParent()
    return _bytes(reply)


_SEND_RESPONSE_HEADERS = _send_response_headers()
_STREAM_RESPONSE_BODY = _stream_response_body()
_PASS_RESPONSE_BODY = _pass_response_body()


async def serve(handler: Handler, socket: Path) -> None:
    """Serve until the process is ended."""
    method: grpc.RpcMethodHandler[Any, bytes] = grpc.stream_stream_rpc_method_handler(handler)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: method}),))
    # A new servicer says SERVING for the whole server, which is what Envoy's health check asks for.
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


async def serve_native(handler: Handler, socket: Path) -> None:
    """The same with `meshcache.rpc`."""
    health = Health((SERVICE,))
    health.set(serving=True)

    async def converse(stream: Stream) -> None:
        await handler(None, stream)

    methods = {f"/{SERVICE}/{METHOD}": converse, **health.methods()}
    await Server(methods, on_error=print).listen(socket, SOCKET_MODE)
    await asyncio.Event().wait()


def main() -> None:
    """The entry of the process."""
    parser = argparse.ArgumentParser(prog="bench.echo")
    parser.add_argument("mode", choices=["reply", "pass", "tee"])
    parser.add_argument("socket", type=Path)
    parser.add_argument("answer", type=Path, nargs="?")
    parser.add_argument("--native", action="store_true")
    options = parser.parse_args()
    if options.mode == "reply":
        handler = answering_once(canned_reply(options.answer.read_text()))
    elif options.mode == "pass":
        handler = answering_once(_bytes(_pass_request()))
    else:
        handler = tee
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run((serve_native if options.native else serve)(handler, options.socket))


if __name__ == "__main__":
    main()
