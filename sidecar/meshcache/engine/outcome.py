"""What the engine tells its caller to do with a request or a response. Plain values, no transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from meshcache.decisions import BypassReason, Decision, MissReason, TierName
    from meshcache.engine.in_envoy import Grant
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Field


class Excerpt(msgspec.Struct, frozen=True):
    """What a range request gets of a stored response: some of its bytes, or that there are none such."""

    status: int
    """206 or 416."""
    fields: tuple[Field, ...]
    body: bytes
    """Empty when it has to be read from chunks."""
    span: tuple[int, int] | None = None
    """Which bytes of a body in chunks it is: offset and length."""


class Answer(msgspec.Struct):
    """Answer the client from what is stored."""

    decision: Decision
    stored: StoredResponse
    tier: TierName | None
    """Where it was stored; None for what the cache has made itself."""
    age: int | None
    """Seconds, for the `age` field; None for what the cache has made itself."""
    cache_status: str
    """Empty: the client is told nothing."""
    not_modified: bool = False
    """The client holds this answer already: send 304 with no body."""
    excerpt: Excerpt | None = None
    """What is sent of it to a client that has asked for ranges; None for all of it."""
    cookies: tuple[str, ...] = ()
    """`set-cookie` lines for this client, from the origin's word that what is stored is still right."""
    rendered: bytes | None = None
    """The reply as the edge serialised it for an earlier hit, when it is at hand."""
    grant: Grant | None = None
    """For how long the filter in Envoy, which has asked, may give it by itself; None where it may not."""

    @property
    def status(self) -> int:
        """The status that goes out."""
        if self.not_modified:
            return 304
        return self.stored.status if self.excerpt is None else self.excerpt.status

    @property
    def size(self) -> int:
        """Bytes of the body that goes out."""
        if self.not_modified:
            return 0
        if self.excerpt is None:
            return self.stored.length
        span = self.span
        return len(self.excerpt.body) if span is None else span[1]

    @property
    def span(self) -> tuple[int, int] | None:
        """Which bytes of a body in chunks are to be read for it, as offset and length; None when none are."""
        if self.not_modified or not self.stored.chunks:
            return None
        return (0, self.stored.size) if self.excerpt is None else self.excerpt.span

    def with_body(self, body: bytes) -> Answer:
        """The same with the bytes of its `span` at hand."""
        if self.excerpt is not None:
            return msgspec.structs.replace(self, excerpt=msgspec.structs.replace(self.excerpt, body=body, span=None))
        return msgspec.structs.replace(self, stored=msgspec.structs.replace(self.stored, body=body, chunks=(), size=0))


class Forward(msgspec.Struct):
    """Send the request to the origin."""

    decision: Decision
    reason: BypassReason | MissReason
    set_fields: list[Field] = []
    remove_fields: list[str] = []
    watch: bool = True
    """Whether the engine has to see the response."""


class Wait(msgspec.Struct, frozen=True):
    """Keep the request until another one's answer is here."""

    seconds: float
    """For how long at most."""


class Pass(msgspec.Struct):
    """Hand the origin's response to the client."""

    cache_status: str
    copy: bool = False
    """Whether the engine has to see the body, too."""
    remove: tuple[str, ...] = ()
    """Fields of the response that are for caches and not for the client."""
    grant: Grant | None = None
    """As in `Answer`."""
    invalid: frozenset[bytes] | None = None
    """The resource ids that are invalid now, where the filter has asked with an unsafe request; None for others."""
