"""The HTTP face for filters: `GET /v1/feed` (a long poll) and `POST /v1/numbers`, on a unix socket of the supervisor.

Who may connect to that socket may connect to the workers' as well. What is asked is checked all the same: the sender
may be of another version, or no filter at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from meshcache.wasm.feed import FORMAT
from meshcache.wasm.numbers import MOST_BATCH_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request

LONGEST_WAIT: Final = 10.0

_HEX = re.compile(r"[0-9a-f]{16}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3})?", re.ASCII)
_VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,32}", re.ASCII)
_ETAG = re.compile(r'"([0-9a-f]{16})"', re.ASCII)
_NO_STORE: Final = {"cache-control": "no-store"}
_BYTES: Final = "application/octet-stream"


class Poll(NamedTuple):
    """What one poll says."""

    worker: str
    """Id of the filter, 16 hexadecimal digits."""
    after: int
    """Generation of the drop log that it has come to; 0 for none."""
    wait: float
    """Seconds to wait for news at most."""
    plan: str
    """Id of the plan it works by; empty for none."""
    version: str
    entries: int
    bytes: int
    fills: int
    """Answers that it has taken into its memory since it began."""
    evictions: int
    """Those of them that had to go for others."""


class Reply(NamedTuple):
    """The answer to a poll."""

    plan: str
    """Id of the plan in force; empty while there is none."""
    body: bytes | None
    """None when there is nothing new."""


class Filters(Protocol):
    """Answers polls and takes counts; `extproc.filter_hub.FilterHub` is one."""

    async def poll(self, poll: Poll) -> Reply | None:
        """The answer, as soon as there is news or `poll.wait` is over; None when this filter is not served."""
        ...

    def refuse(self) -> None:
        """Hear of a poll that nobody understands: of another form, or of no form at all."""
        ...

    async def numbers(self, body: bytes) -> bool:
        """Take a batch of counts; False when it has to be sent again. Raises `ValueError` for what is no batch."""
        ...


def filter_app(filters: Filters) -> Starlette:
    """The application over `filters`."""

    async def feed(request: Request) -> Response:
        poll = poll_of(request)
        if isinstance(poll, str):
            filters.refuse()
            return PlainTextResponse(poll + "\n", 400, headers=_NO_STORE)
        reply = await filters.poll(poll)
        if reply is None:
            return PlainTextResponse("not now\n", 503, headers=_NO_STORE)
        headers = {**_NO_STORE, "etag": f'"{reply.plan}"'} if reply.plan else _NO_STORE
        if reply.body is None:
            return Response(status_code=304, headers=headers)
        return Response(reply.body, media_type=_BYTES, headers=headers)

    async def numbers(request: Request) -> Response:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BATCH_BYTES:
                    return PlainTextResponse(f"more than {MOST_BATCH_BYTES} bytes\n", 413, headers=_NO_STORE)
        except ClientDisconnect:
            # Half a batch is none: it comes again.
            return PlainTextResponse("broken off\n", 400, headers=_NO_STORE)
        try:
            taken = await filters.numbers(bytes(body))
        except ValueError:
            return PlainTextResponse("no batch of counts in this format\n", 400, headers=_NO_STORE)
        return Response(status_code=204 if taken else 503, headers=_NO_STORE)

    return Starlette(routes=[Route("/v1/feed", feed, methods=["GET"]), Route("/v1/numbers", numbers, methods=["POST"])])


def poll_of(request: Request) -> Poll | str:
    """What a request for the feed says, or a sentence on what is wrong with it."""
    query = request.query_params
    if query.get("format") != str(FORMAT):
        return f"format: this release speaks {FORMAT}"
    worker, after, wait = query.get("worker", ""), query.get("after", "0"), query.get("wait", "0")
    if not _HEX.fullmatch(worker):
        return "worker: expected 16 hexadecimal digits"
    if after != "0" and not _HEX.fullmatch(after):
        return "after: expected 16 hexadecimal digits"
    if not _SECONDS.fullmatch(wait):
        return "wait: expected seconds"
    version = query.get("version", "")
    etag = _ETAG.fullmatch(request.headers.get("if-none-match", ""))
    return Poll(
        worker=worker,
        after=int(after, 16),
        wait=min(float(wait), LONGEST_WAIT),
        plan="" if etag is None else etag[1],
        version=version if _VERSION.fullmatch(version) else "",
        entries=_count(query.get("entries", "")),
        bytes=_count(query.get("bytes", "")),
        fills=_count(query.get("fills", "")),
        evictions=_count(query.get("evictions", "")),
    )


def _count(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0
