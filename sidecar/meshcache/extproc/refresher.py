"""Background requests to the origin, by way of Envoy: to one fixed address, never to one taken from a request."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import httpx

from meshcache.engine.ports import RefreshError
from meshcache.engine.refresh.background import MOST_AT_ONCE
from meshcache.message import Headers, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.engine.ports import RefreshRequest, TakeBody
    from meshcache.engine.storing.fill import CopyBudget

PATIENCE_SECONDS: Final = 30.0
"""For one refresh as a whole: an origin that sends a little now and then must not hold a refresh's place for ever."""
_CONNECT_SECONDS: Final = 2.0
_UNIX: Final = "unix:"
_CLUSTER: Final = b"x-meshcache-refresh-cluster"
"""Tells the refresh listener which of its clusters is meant (`envoy.filters.REFRESH_CLUSTER_HEADER`)."""
_LOCAL_REPLY: Final = "x-meshcache-local-reply"
"""Set by the refresh listener on what Envoy answered itself (`envoy.filters.LOCAL_REPLY_HEADER`)."""

_HOP: Final = "x-meshcache-hop-"
"""What the refresh listener sets before the names of the origin's fields of this hop (`envoy.filters.HOP_PREFIX`)."""
_NO_CONTENT: Final = 204
"""The one status whose answers are known by it to end with their heads."""
_REPLACED: Final = frozenset({"connection", "transfer-encoding"})
"""Those of them that Envoy has replaced by its own (`envoy.filters.HOP_FIELDS`)."""


class HttpRefresher:
    """A `Refresher` over HTTP/1.1 to `unix:<path>` or `http://host:port`. Raises `ValueError` for any other address."""

    def __init__(
        self,
        url: str,
        *,
        max_connections: int = MOST_AT_ONCE,
        patience: float = PATIENCE_SECONDS,
        on_end: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """`on_end` is told how long each refresh took, whether or not it succeeded."""
        self._on_end = on_end
        self._patience = patience
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        if url.startswith(_UNIX):
            self._transport = httpx.AsyncHTTPTransport(uds=url.removeprefix(_UNIX).removeprefix("//"), limits=limits)
            self._base = "http://refresh"
        elif url.startswith("http://"):
            self._transport = httpx.AsyncHTTPTransport(limits=limits)
            self._base = url.rstrip("/")
        else:
            raise ValueError(f"a refresh address is unix:<path> or http://host:port, not {url!r}")
        # The transport alone: a client around it would keep the cookies of all origins.
        self._timeouts = httpx.Timeout(patience, connect=_CONNECT_SECONDS).as_dict()

    async def receive(
        self, request: RefreshRequest, take: Callable[[Response], TakeBody], *, within: float | None = None
    ) -> Response:
        """See `Refresher`; `within` so many seconds. The body comes as it was sent, with any content coding left on.

        An answer of Envoy's own is a `RefreshError`, too: it says nothing of what the origin has.
        """
        fields = [(b"host", request.authority.encode("latin-1"))]
        fields += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers]
        if request.cluster:
            fields.append((_CLUSTER, request.cluster.encode("latin-1")))
        if "x-forwarded-proto" not in request.headers:
            fields.append((b"x-forwarded-proto", request.scheme.encode("latin-1")))
        # The target goes out byte for byte as the client's did: a URL library would write some of it anew.
        outgoing = httpx.Request(
            "GET",
            self._base,
            headers=fields,
            extensions={"target": request.path.encode("latin-1"), "timeout": self._timeouts},
        )
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._patience if within is None else min(within, self._patience)):
                incoming = await self._transport.handle_async_request(outgoing)
                try:
                    if _LOCAL_REPLY in incoming.headers:
                        raise RefreshError(f"Envoy answered {incoming.status_code} itself")
                    response = _head_of(incoming)
                    taking = take(response)
                    response.complete = True
                    async for part in incoming.aiter_raw():
                        response.complete = False
                        if not await taking(part):
                            break
                finally:
                    await incoming.aclose()
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise RefreshError(f"{type(error).__name__}: {error}") from error
        finally:
            self._on_end(time.monotonic() - began)
        return response

    async def fetch(
        self, request: RefreshRequest, limit: int, budget: CopyBudget, *, within: float | None = None
    ) -> tuple[Response, bytes]:
        """See `Refresher`."""
        gathered = _Gathered(limit, budget)
        try:
            response = await self.receive(request, lambda _head: gathered.take, within=within)
        finally:
            gathered.release()
        return response, b"".join(gathered.parts)

    async def close(self) -> None:
        """Close idle connections."""
        await self._transport.aclose()


def _head_of(incoming: httpx.Response) -> Response:
    fields = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in incoming.headers.raw]
    if any(name.startswith(_HOP) for name, _ in fields):
        # As a client's own request would have brought them: an answer that ends with its connection must not seem to
        # have an end of its own, nor a field that is for one hop to be for all.
        fields = [(name.removeprefix(_HOP), value) for name, value in fields if name not in _REPLACED]
    return Response(
        incoming.status_code, Headers(fields), from_origin=True, complete=incoming.status_code == _NO_CONTENT
    )


class _Gathered:
    """A body of bounded length in memory."""

    def __init__(self, limit: int, budget: CopyBudget) -> None:
        self.parts: list[bytes] = []
        self._limit = limit
        self._budget = budget
        self._size = 0

    async def take(self, part: bytes) -> bool:
        """Raises `RefreshError` for more than there is room for."""
        if self._size + len(part) > self._limit:
            raise RefreshError(f"the body is longer than {self._limit} bytes")
        if not self._budget.take(len(part)):
            raise RefreshError("there is no memory for the body now")
        self._size += len(part)
        self.parts.append(part)
        return True

    def release(self) -> None:
        """Give back what was reserved."""
        self._budget.give(self._size)
