"""Requests on their way, a client's or the cache's own, and what comes of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from meshcache.extproc import wire
from meshcache.message import Headers

if TYPE_CHECKING:
    from meshcache.engine.outcome import Answer
    from meshcache.message import Request


class Stage(Enum):
    """How far the origin's answer has come."""

    ASKED = auto()
    HEAD = auto()
    """The head is through, the body is not."""
    DONE = auto()


@dataclass
class Reply:
    """What the origin answers, and what the model knows of it."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes
    known: Any = None
    """The model's own record of it."""
    from_origin: bool = True


@dataclass
class Got:
    """What the client gets from the cache itself."""

    status: int
    headers: Headers
    body: bytes


@dataclass
class Flight:
    """A request on its way, a client's or the cache's own."""

    request: Request
    began: float
    order: int
    """The place of its beginning among all events."""
    worker: int = 0
    background: bool = False
    facts: Any = None
    """What the model knows of the request."""
    sent: Request | None = None
    """As the origin got it."""
    asked_at: float = 0.0
    asked_order: int = 0
    reply: Reply | None = None
    came: float = 0.0
    """When the head of the answer came; 0 as long as it has not."""
    came_order: int = 0
    stage: Stage | None = None
    """None as long as the origin has not been asked."""
    got: Got | None = None
    """What the cache answered; None when the client got the origin's own answer."""
    finished: bool = False
    whole: bool = False
    """The client has got everything."""
    left: bool = False
    go: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    cut: bool = False


class BrokenOffError(Exception):
    """The origin's connection has broken in the middle of a body."""


def sent_by_cache(answer: Answer, request: Request) -> Got:
    """What Envoy makes of the reply: the last value of a field counts, unless it is to be one more."""
    reply = ProcessingResponse.FromString(wire.answer(answer)).immediate_response
    fields: list[tuple[str, str]] = []
    for option in reply.headers.set_headers:
        name, value = option.header.key, option.header.raw_value.decode("latin-1")
        if not option.append.value:
            fields = [item for item in fields if item[0] != name]
        fields.append((name, value))
    body = b"" if request.method == "HEAD" else reply.body
    return Got(reply.status.code, Headers(fields), body)
