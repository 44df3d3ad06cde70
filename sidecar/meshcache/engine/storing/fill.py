"""The copy of a response that is to be stored, gathered while it streams to the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from meshcache.decisions import NoStoreReason
from meshcache.engine.chunks import CHUNK_BYTES, INLINE_BYTES
from meshcache.engine.judge import judge, judged
from meshcache.engine.ranges.parts import part_of
from meshcache.engine.records import StoredResponse
from meshcache.engine.storing.rules import NOT_REPLAYED
from meshcache.engine.variants import variant_names
from meshcache.rfc.storing import storable_fields
from meshcache.rfc.vary import selecting_values

if TYPE_CHECKING:
    from meshcache.engine.judge import Judgement
    from meshcache.engine.ports import OpenSpool, Spool
    from meshcache.engine.storing.arrival import Arrival
    from meshcache.rfc.ranges import ContentRange


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


class Fill:
    """A response on its way into the cache. `release` or `finish` must follow, exactly once."""

    __slots__ = (
        "_budget",
        "_chunks",
        "_declared",
        "_head",
        "_limit",
        "_open_spool",
        "_size",
        "_spool",
        "arrival",
        "part",
        "refused",
    )

    def __init__(
        self,
        arrival: Arrival,
        budget: CopyBudget,
        part: ContentRange | None = None,
        open_spool: OpenSpool = lambda _head, _size: None,
    ) -> None:
        """`part` is what a 206 says its content is.

        A whole body that is longer than `INLINE_BYTES` goes to what `open_spool` opens; all else is gathered here.
        """
        self.arrival = arrival
        self.part = part
        self.refused: NoStoreReason | None = None
        """Why the copy was given up, once `add` has returned False or `finish` None."""
        self._budget = budget
        self._chunks: list[bytes] = []
        self._size = 0
        self._limit = arrival.target.policy.tiers.largest()
        self._declared = _length(arrival.response.headers.get("content-length"))
        self._open_spool = open_spool
        self._head: StoredResponse | None = None
        self._spool: Spool | None = None

    def fits(self) -> bool:
        """Whether some tier takes a body of the announced size."""
        return self._declared is None or self._declared <= self._limit

    @property
    def declared(self) -> int | None:
        """The bytes of the body that its head announces; None where it announces none."""
        return 0 if self.arrival.response.complete else self._declared

    def head(self) -> StoredResponse:
        """What will be stored, without the body."""
        if self._head is None:
            self._head = self._record(b"")
        return self._head

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

    def judged(self, record: StoredResponse | None = None) -> Judgement:
        """How the policy sees `record`, which this copy has become; without it, what is known before the body is."""
        stored = record or self._record(b"")
        arrival = self.arrival
        return judged(stored, arrival.reading) if arrival.is_kept else judge(stored, arrival.reading.policy)

    def _record(self, body: bytes) -> StoredResponse:
        if self._head is not None:
            return msgspec.structs.replace(self._head, body=body) if body else self._head
        arrival = self.arrival
        target, response = arrival.target, arrival.response
        headers, asked = response.headers, target.request.headers
        names = variant_names(response.status, headers, asked, target.index)
        assert names != "*"  # noqa: S101 - `unstorable` has refused it
        fields = storable_fields(headers, arrival.reading.control, response_time=arrival.time)
        return StoredResponse(
            key=target.key.material,
            selecting=selecting_values(names, asked) if names else (),
            status=response.status,
            fields=tuple([field for field in fields if field[0] not in NOT_REPLAYED]),
            request_time=target.request_time,
            response_time=arrival.time,
            initial_age=arrival.age,
            authorized="authorization" in asked.names,
            body=body,
            uri=target.request.uri,
            route=target.selection.route,
            subject=target.subject,
            revision=target.revision,
            tags=arrival.tags or (),
            personal=arrival.personal,
        )


def _length(field: str | None) -> int | None:
    """The bytes that a `content-length` announces; None when it is absent or no number."""
    if field is None or not field.isdecimal():
        return None
    digits = field.lstrip("0")
    # No body is as long as 19 digits say, and Python refuses to convert thousands of them.
    return int(digits[:19] or "0")
