"""Background requests to the origin, by way of Envoy: to one fixed address, never to one taken from a request."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import httpx

from meshcache.engine.ports import RefreshError
from meshcache.engine.refreshes import MOST_AT_ONCE
from meshcache.message import Headers, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.engine.fill import CopyBudget
    from meshcache.engine.ports import RefreshRequest

PATIENCE_SECONDS: Final = 30.0
"""For one refresh as a whole: an origin that sends a little now and then must not hold a refresh's place for ever."""
_CONNECT_SECONDS: Final = 2.0
_UNIX: Final = "unix:"
_CLUSTER: Final = b"x-meshcache-refresh-cluster"
"""Tells the refresh listener which of its clusters is meant (`envoy.filters.REFRESH_CLUSTER_HEADER`)."""
_LOCAL_REPLY: Final = "x-meshcache-local-reply"
"""Set by the refresh listener on what Envoy answered itself (`envoy.filters.LOCAL_REPLY_HEADER`)."""


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

    async def fetch(
        self, request: RefreshRequest, limit: int, budget: CopyBudget, *, within: float | None = None
    ) -> tuple[Response, bytes]:
        """See `Refresher`. The body comes as it was sent, with any content coding left on.

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
                response = await self._transport.handle_async_request(outgoing)
                try:
                    if _LOCAL_REPLY in response.headers:
                        raise RefreshError(f"Envoy answered {response.status_code} itself")
                    body = await _read(response, limit, budget)
                finally:
                    await response.aclose()
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise RefreshError(f"{type(error).__name__}: {error}") from error
        finally:
            self._on_end(time.monotonic() - began)
        headers = Headers(
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw
        )
        return Response(response.status_code, headers, from_origin=True, complete=not body), body

    async def close(self) -> None:
        """Close idle connections."""
        await self._transport.aclose()


async def _read(response: httpx.Response, limit: int, budget: CopyBudget) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in response.aiter_raw():
            if size + len(chunk) > limit:
                raise RefreshError(f"the body is longer than {limit} bytes")
            if not budget.take(len(chunk)):
                raise RefreshError("there is no memory for the body now")
            size += len(chunk)
            chunks.append(chunk)
    finally:
        budget.give(size)
    return b"".join(chunks)
