"""One request on its way through the filter and back, as Envoy leads it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from proxy_wasm.abi import CONTINUE, Buffer, Map, Pairs
from proxy_wasm.envoy import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proxy_wasm.worker import Worker


class Stream:
    """A request. Of the callbacks only that one sees headers and bodies to which Envoy gives them, and when.

    `forwarded` is what goes on to the next filter, None for what the module answers itself: then `reply` is the
    answer. Of what comes back, `sent` is what goes to the client.
    """

    def __init__(
        self,
        worker: Worker,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        end_of_stream: bool = True,
        properties: Mapping[bytes, bytes] = MappingProxyType({}),
    ) -> None:
        self.worker = worker
        self.properties = properties
        """By path, its parts joined by NUL."""
        self.state: dict[bytes, bytes] = {}
        """Filter state: what the module has set as properties."""
        self.writable: dict[Map, Pairs] = {}
        self.readable: dict[Map, Pairs] = {}
        self.buffers: dict[Buffer, bytes] = {}
        self.reply: Reply | None = None
        self.forwarded: Pairs | None = None
        self.sent: Pairs | None = None
        self.closed = False
        self._deciding = False
        self._request = list(headers)
        self.number = worker.open_stream(self)
        self._decide(end=end_of_stream)

    def _decide(self, *, end: bool) -> None:
        self._deciding = True
        action = self._headers("proxy_on_request_headers", Map.REQUEST_HEADERS, self._request, end=end)
        self._deciding = False
        if self.reply is None:
            assert action == CONTINUE, f"the request stands still: {action}"
            self.forwarded = self._request
        else:
            self._run_reply_back(self.reply)

    # -- what comes back -----------------------------------------------------------------------------------------------

    def respond(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        chunks: Iterable[bytes] = (),
        *,
        trailers: Pairs | None = None,
        cut: bool = False,
    ) -> Pairs:
        """An answer as it streams past, then the end of the request; the headers that go to the client.

        The last chunk ends it unless there are trailers. One that is `cut` has no end: its connection broke.
        """
        pieces = list(chunks)
        whole = trailers is None and not cut
        self.respond_headers(status, headers, end=whole and not pieces)
        for number, piece in enumerate(pieces, 1):
            self.respond_body(piece, end=whole and number == len(pieces))
        if trailers is not None:
            self.respond_trailers(trailers)
        self.close()
        assert self.sent is not None
        return self.sent

    def respond_headers(self, status: int, headers: Iterable[tuple[bytes, bytes]], *, end: bool) -> None:
        """The head of an answer."""
        self.sent = [(b":status", b"%d" % status), *headers]
        action = self._headers("proxy_on_response_headers", Map.RESPONSE_HEADERS, self.sent, end=end)
        assert action == CONTINUE, f"the answer stands still: {action}"

    def respond_body(self, chunk: bytes, *, end: bool) -> None:
        """A piece of an answer's body; it may be empty."""
        self.buffers[Buffer.RESPONSE_BODY] = chunk
        action = self.worker.call("proxy_on_response_body", self.number, len(chunk), int(end))
        assert action == CONTINUE, f"the body stands still: {action}"
        del self.buffers[Buffer.RESPONSE_BODY]

    def respond_trailers(self, trailers: Pairs) -> None:
        """The trailers of an answer; they end it."""
        self.writable[Map.RESPONSE_TRAILERS] = trailers
        action = self.worker.call("proxy_on_response_trailers", self.number, len(trailers))
        assert action == CONTINUE, f"the trailers stand still: {action}"
        del self.writable[Map.RESPONSE_TRAILERS]

    def request_body(self, chunk: bytes, *, end: bool) -> None:
        """A piece of the request's body."""
        self.buffers[Buffer.REQUEST_BODY] = chunk
        action = self.worker.call("proxy_on_request_body", self.number, len(chunk), int(end))
        assert action == CONTINUE, f"the upload stands still: {action}"
        del self.buffers[Buffer.REQUEST_BODY]

    def close(self) -> None:
        """The request is over: it was answered, or one of the ends has gone."""
        if not self.closed:
            self.closed = True
            self.readable = {Map.REQUEST_HEADERS: self._request, Map.RESPONSE_HEADERS: self.sent or []}
            self.worker.close_stream(self.number)

    # -- what the module does ------------------------------------------------------------------------------------------

    def take_local_response(self, status: int, headers: Pairs, body: bytes) -> None:
        """The module answers the request itself."""
        assert self._deciding, "Envoy is known to crash on an answer at another time"
        assert self.reply is None, "Envoy is known to crash on a second answer"
        self.reply = Reply(status, [(name.lower(), value) for name, value in headers], body)

    def _run_reply_back(self, reply: Reply) -> None:
        """The module's own answer goes out through the module, with the fields that Envoy sets."""
        headers = [*self.worker.envoy.added_by_route, *reply.headers]
        names = ("content-length", "content-type")
        fields = [item for item in headers if reply.body or item[0].decode("latin-1") not in names]
        if reply.body:
            fields = [item for item in fields if item[0] != b"content-length"]
            fields.append((b"content-length", b"%d" % len(reply.body)))
            if not any(name == b"content-type" for name, _ in fields):
                fields.append((b"content-type", b"text/plain"))
        head = (b":method", b"HEAD") in self._request
        self.respond_headers(reply.status, fields, end=head or not reply.body)
        if reply.body and not head:
            self.respond_body(reply.body, end=True)
        self.close()
        assert self.sent is not None
        self.reply = Reply(reply.status, self.sent[1:], b"" if head else reply.body)

    def _headers(self, callback: str, kind: Map, headers: Pairs, *, end: bool) -> int:
        self.writable[kind] = headers
        action = self.worker.call(callback, self.number, len(headers), int(end))
        del self.writable[kind]
        return action
