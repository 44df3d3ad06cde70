"""The copy of a response that is to be stored, gathered while it streams to the client."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import NoStoreReason
from meshcache.engine.chunks import CHUNK_BYTES, INLINE_BYTES
from meshcache.engine.judge import judge
from meshcache.engine.key import is_unusual
from meshcache.engine.lifetime import lifetime
from meshcache.engine.ranges.parts import part_of
from meshcache.engine.records import StoredResponse
from meshcache.engine.sharing import directives_of, disguised, may_be_personal
from meshcache.engine.variants import variant_names
from meshcache.rfc import stale
from meshcache.rfc.age import age_value, corrected_initial_age
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.fields import http_date, split_list
from meshcache.rfc.storing import no_store_reason, storable_fields
from meshcache.rfc.tags import TAG_FIELDS, response_tags
from meshcache.rfc.validators import can_be_validated
from meshcache.rfc.vary import parse_vary, selecting_values

if TYPE_CHECKING:
    from meshcache.engine.judge import Judgement
    from meshcache.engine.ports import OpenSpool, Spool
    from meshcache.engine.target import Target
    from meshcache.message import Headers, Response
    from meshcache.policy.compiled import Freshness
    from meshcache.rfc.cache_control import CacheControl
    from meshcache.rfc.ranges import ContentRange

NOT_REPLAYED = TAG_FIELDS | {"content-length", "cache-status"}
"""Computed anew for each answer, or kept beside it."""

_AUTHORIZATION = frozenset({"authorization"})
_LIFELESS = frozenset({NoStoreReason.NO_FRESHNESS, NoStoreReason.STATUS})
_FIRST_REDIRECT = 300
_GONE = frozenset({404, 410})


@dataclass(slots=True)
class CopyBudget:
    """Bytes that all copies under way in this process may take together."""

    limit: int
    used: int = 0

    def take(self, size: int) -> bool:
        """Reserve `size` bytes; False when they are not there."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Return `size` bytes."""
        self.used -= size


def unstorable(target: Target, response: Response, *, part: bool = False) -> NoStoreReason | None:
    """Why `response` must not be stored for `target`, or None; with `part`, a 206 may be stored as a part."""
    if not response.from_origin:
        return NoStoreReason.LOCAL_REPLY
    headers = response.headers
    if not target.policy.key.host and "host" in parse_vary(headers.get("vary")):
        # The key leaves the host out, and variants are not told apart by it: no request is known to match.
        return NoStoreReason.VARY_STAR
    if not response.complete and _ends_with_its_connection(headers):
        return NoStoreReason.UNDELIMITED
    if response_tags(headers) is None:
        return NoStoreReason.TAGS
    policy, request = target.policy.freshness, target.request
    asked = request.headers.without(_AUTHORIZATION) if "authorization" in policy.ignore else request.headers
    directives = directives_of(headers, policy)
    personal = may_be_personal(asked, headers, directives.control, policy)
    times = partial(
        lifetime,
        policy,
        status=response.status,
        headers=headers,
        directives=directives,
        response_time=target.request_time,
    )
    granted = times(origin_alone=personal)
    reason = no_store_reason(
        method=request.method,
        request_headers=asked,
        request_cc=request_cache_control(request.headers),
        status=response.status,
        response_headers=headers,
        response_cc=directives.control,
        has_lifetime=granted is not None,
        part=part,
    )
    if reason is not None:
        return NoStoreReason.COOKIE if personal and reason in _LIFELESS and times() is not None else reason
    if personal and (not granted or directives.control.no_cache):
        # To keep it for its validation would be to rely on that no two callers have answers of one version.
        return NoStoreReason.COOKIE
    if response.status >= _FIRST_REDIRECT and target.policy.key.host and is_unusual(request.authority, request.scheme):
        return NoStoreReason.HOST_SPELLING
    if disguised(request.path, response.status, request.headers, headers, directives.control, policy):
        return NoStoreReason.TYPE_MISMATCH
    if not can_be_validated(response.status, headers):
        return _nothing_left(policy, headers, directives.control, granted or 0.0)
    return None


def fresh_for(target: Target, response: Response, now: float) -> float:
    """For how many seconds a response that has come `now`, and may be stored, is fresh; negative when it is stale."""
    headers, policy = response.headers, target.policy.freshness
    directives = directives_of(headers, policy)
    granted = lifetime(
        policy,
        status=response.status,
        headers=headers,
        directives=directives,
        response_time=now,
        origin_alone=may_be_personal(target.request.headers, headers, directives.control, policy),
    )
    date = headers.get("date")
    age = corrected_initial_age(
        age=age_value(headers.get("age")),
        date=None if date is None else http_date(date, now),
        request_time=target.request_time,
        response_time=now,
    )
    return (granted or 0.0) - age


def _ends_with_its_connection(headers: Headers) -> bool:
    """Whether the body of a response over HTTP/1.1 is delimited by nothing else (RFC 9112 section 6.3).

    Without `connection: close` it came over HTTP/2, where a stream has an end of its own, or over HTTP/1.0.
    """
    if "content-length" in headers or "transfer-encoding" in headers:
        return False
    connection = headers.get("connection")
    return connection is not None and "close" in split_list(connection.lower())


def _nothing_left(
    policy: Freshness, headers: Headers, directives: CacheControl, granted: float
) -> NoStoreReason | None:
    """Why a response that cannot be validated is of no use from the start: it is past its time as it comes.

    Where its origin has given it a time, and allows it to be served stale, a client may still ask for that.
    """
    if granted > 0.0 and stale.may_serve_stale(directives):
        return None
    window = max(
        stale.stale_while_revalidate_window(directives, policy.stale_while_revalidate),
        stale.stale_if_error_window(directives, policy.stale_if_error),
    )
    useful = granted + window - age_value(headers.get("age"))
    return NoStoreReason.NO_FRESHNESS if useful <= 0.0 else None


def supersedes(status: int) -> bool:
    """Whether an answer of this status, given in full, means that the one before is no longer current.

    An error says so only when it says that there is nothing any more: what a client gets for a wrong or an
    unwelcome request must not cost the others their answer, nor must a failure of the origin.
    """
    return (200 <= status <= 399 and status != 304) or status in _GONE


class Fill:
    """A response on its way into the cache. `release` or `finish` must follow, exactly once."""

    __slots__ = (
        "_budget",
        "_chunks",
        "_declared",
        "_limit",
        "_open_spool",
        "_size",
        "_spool",
        "part",
        "refused",
        "response",
        "response_time",
        "target",
    )

    def __init__(
        self,
        target: Target,
        response: Response,
        response_time: float,
        budget: CopyBudget,
        part: ContentRange | None = None,
        open_spool: OpenSpool = lambda _head, _size: None,
    ) -> None:
        """`part` is what a 206 says its content is.

        A whole body that is longer than `INLINE_BYTES` goes to what `open_spool` opens; all else is gathered here.
        """
        self.target = target
        self.response = response
        self.response_time = response_time
        self.part = part
        self.refused: NoStoreReason | None = None
        """Why the copy was given up, once `add` has returned False or `finish` None."""
        self._budget = budget
        self._chunks: list[bytes] = []
        self._size = 0
        self._limit = target.policy.tiers.largest()
        self._declared = _length(response.headers.get("content-length"))
        self._open_spool = open_spool
        self._spool: Spool | None = None

    def fits(self) -> bool:
        """Whether some tier takes a body of the announced size."""
        return self._declared is None or self._declared <= self._limit

    @property
    def spool(self) -> Spool | None:
        """Where the body goes when it is too long for its record: then `finish_spooled` takes the place of `finish`."""
        return self._spool

    def add(self, chunk: bytes) -> bool:
        """Copy one chunk; False when the copy has to be given up, with `refused` set."""
        size = self._size + len(chunk)
        if size > self._limit:
            self.refused = NoStoreReason.TOO_LARGE
        elif self.part is None and max(self._declared or 0, size) > INLINE_BYTES:
            self._spool_on(chunk)
        elif not self._budget.take(len(chunk)):
            self.refused = NoStoreReason.NO_MEMORY
        else:
            self._chunks.append(chunk)
        if self.refused is not None:
            return False
        self._size = size
        return True

    async def add_all(self, body: bytes) -> bool:
        """Copy a body that is at hand; see `add`. Waits while the stores cannot follow."""
        view = memoryview(body)
        while view:
            if not self.add(bytes(view[:CHUNK_BYTES])):
                return False
            view = view[CHUNK_BYTES:]
            if self._spool is not None:
                await self._spool.has_room()
        return True

    def _spool_on(self, chunk: bytes) -> None:
        """Hand `chunk` on, and before it what was gathered so far."""
        if self._spool is None:
            gathered, self._chunks = self._chunks, []
            self._budget.give(self._size)
            self._size = 0
            self._spool = self._open_spool(self._record(b""), max(self._declared or 0, INLINE_BYTES + 1))
            if self._spool is None:
                self.refused = NoStoreReason.TOO_LARGE
                return
            for part in gathered:
                self._spool.add(part)
        if not self._spool.add(chunk):
            self.refused = self._spool.refused

    def release(self) -> None:
        """Give the copied bytes back."""
        if self._spool is not None:
            self._spool.drop()
        else:
            self._budget.give(self._size)
        self._size = 0
        self._chunks.clear()

    def finish(self) -> StoredResponse | None:
        """The record to store, or None with `refused` set when the body is not what was announced."""
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self.release()
        if self._declared is not None and self._declared != len(body):
            self.refused = NoStoreReason.TRUNCATED
            return None
        record = self._record(body)
        if self.part is None:
            return record
        held = part_of(record, self.part)
        if held is None:
            self.refused = NoStoreReason.PARTIAL
        return held

    def finish_spooled(self, digests: tuple[bytes, ...]) -> StoredResponse | None:
        """The same for a body that went to the spool, which has stored these chunks."""
        if self._declared is not None and self._declared != self._size:
            self.refused = NoStoreReason.TRUNCATED
            return None
        return msgspec.structs.replace(self._record(b""), chunks=digests, size=self._size, chunk_bytes=CHUNK_BYTES)

    def judged(self) -> Judgement:
        """How the policy sees the response, before its body is here."""
        return judge(self._record(b""), self.target.policy.freshness)

    def _record(self, body: bytes) -> StoredResponse:
        target, response = self.target, self.response
        names = variant_names(response.headers, target.request.headers, target.index)
        assert names != "*"  # noqa: S101 - `unstorable` has refused it
        policy = target.policy.freshness
        directives = directives_of(response.headers, policy).control
        fields = storable_fields(response.headers, directives, response_time=self.response_time)
        return StoredResponse(
            key=target.key.material,
            selecting=selecting_values(names, target.request.headers),
            status=response.status,
            fields=tuple(field for field in fields if field[0] not in NOT_REPLAYED),
            request_time=target.request_time,
            response_time=self.response_time,
            initial_age=age_value(response.headers.get("age")),
            authorized="authorization" in target.request.headers,
            body=body,
            uri=target.request.uri,
            route=target.selection.route,
            subject=target.subject,
            revision=target.revision,
            tags=response_tags(response.headers) or (),
            personal=may_be_personal(target.request.headers, response.headers, directives, policy),
        )


def _length(field: str | None) -> int | None:
    """The bytes that a `content-length` announces; None when it is absent or no number."""
    if field is None or not field.isdecimal():
        return None
    digits = field.lstrip("0")
    # No body is as long as 19 digits say, and Python refuses to convert thousands of them.
    return int(digits[:19] or "0")
