"""What the filter may answer, told without any of its code: a list of all that was ever kept, and when it died.

Every answer of the origin is one of a kind. So what the filter answers names the one that it was kept from, and the
model only has to say whether that one may be given, here, now, to this request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from meshcache.rfc.fields import format_http_date
from meshcache.rfc.validation import not_modified, not_modified_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.message import Request
    from meshcache.wasm.marks import Keep
    from proxy_wasm import Pairs, Reply

SERIAL = "x-serial"
"""A field of every answer of the origin: which one it is."""
NOT_STORED = frozenset(
    {
        *("age", "cache-status", "connection", "content-length", "keep-alive", "proxy-authenticate", "set-cookie"),
        *("proxy-authentication-info", "proxy-authorization", "proxy-connection", "set-cookie2", "te", "trailer"),
        *("transfer-encoding", "upgrade"),
    }
)
"""Response fields that no stored answer has; besides `x-meshcache-*` and `x-envoy-*`."""
TICK_NS = 100_000_000
"""How often the filter looks at the clock that nobody sets."""
_ADDED = (b"age", b"cache-status", b"content-length")


@dataclass
class Stored:
    """An answer that one worker was allowed to keep."""

    serial: str
    worker: int
    plan: bytes
    digest: bytes
    keep: Keep
    status: int
    fields: Pairs
    """As they came, without internal ones."""
    body: bytes
    selecting: tuple[tuple[bytes, ...], ...]
    """The values of each field that the answer varies by, in the request for it."""
    began: int
    """When that request began, by the model's own count of events."""
    arrived: int
    """When its head came, in Unix milliseconds."""
    whole: bool = False
    """Whether it came to a proper end."""


@dataclass
class _Dropped:
    event: int
    worker: int | None
    """None for all workers at once."""
    labels: frozenset[int] | None


@dataclass
class Model:
    """All that was kept, in all workers of one Envoy."""

    lease_ns: int
    event: int = 0
    stored: dict[str, Stored] = field(default_factory=dict)
    plans: dict[int, bytes] = field(default_factory=dict)
    """The id of the plan by which each worker goes."""
    _drops: list[_Dropped] = field(default_factory=list)
    _heard_ns: dict[int, int] = field(default_factory=dict)
    _told: dict[int, set[int]] = field(default_factory=dict)

    def begin(self) -> int:
        """Something begins; its place in the order of all that happens."""
        self.event += 1
        return self.event

    # -- what workers are told -----------------------------------------------------------------------------------------

    def told(self, worker: int, generation: int, labels: Sequence[int] | None, plan: bytes) -> None:
        """A good answer of the feed has reached a worker."""
        self.drop(labels, worker=worker)
        self._told.setdefault(worker, set()).add(generation)
        if plan:
            self.plans[worker] = plan

    def heard(self, worker: int, sent_ns: int) -> None:
        """A worker has an answer to the poll that it sent at that time."""
        self._heard_ns[worker] = sent_ns

    def acknowledged(self, worker: int, after: int) -> None:
        """A worker says in a poll how far it has come: it must have been told all of that."""
        told = self._told.get(worker, set())
        assert after == 0 or after in told, f"worker {worker} says {after}, and was told {sorted(told)}"

    def drop(self, labels: Sequence[int] | None, *, worker: int | None = None) -> None:
        """What has one of these labels, or everything, is dead from now on, in one worker or in all."""
        self._drops.append(_Dropped(self.begin(), worker, None if labels is None else frozenset(labels)))

    def restarted(self, worker: int) -> None:
        """The VM of a worker is a new one, which knows nothing."""
        self.drop(None, worker=worker)
        self.plans.pop(worker, None)
        self._heard_ns.pop(worker, None)
        self._told.pop(worker, None)

    # -- what a worker answers -----------------------------------------------------------------------------------------

    def check(
        self, reply: Reply, worker: int, request: Request, digest: bytes | None, *, now: int, steady_ns: int
    ) -> Stored:
        """That this answer may be given. `digest` is the key's as the sidecar makes it; None where it makes none.

        `now` is Unix milliseconds, `steady_ns` by the clock that nobody sets.
        """
        serials = reply.get_all(SERIAL)
        assert len(serials) == 1, reply
        stored = self.stored.get(serials[0].decode())
        assert stored is not None, f"it was never allowed to be kept: {reply}"
        assert stored.worker == worker, "kept in another worker"
        assert stored.whole, "it had not come whole"
        assert stored.digest == digest, "for another key"
        heard = self._heard_ns.get(worker)
        assert heard is not None, "never heard of the sidecar"
        assert steady_ns <= heard + self.lease_ns + TICK_NS, "the lease is over"
        keep = stored.keep
        assert now < keep.drop_at, "to be dropped"
        assert now < max(keep.fresh_until, keep.stale_until), "too old"
        for drop in self._drops:
            if drop.event > stored.began and drop.worker in (None, worker):
                hit = drop.labels is None or not drop.labels.isdisjoint(keep.labels)
                assert not hit, f"dropped, {drop}, and kept at {stored.began}"
        selecting = tuple(tuple(_bytes(value) for value in request.headers.get_all(name)) for name in keep.vary)
        assert selecting == stored.selecting, "another variant"
        assert keep.flags & 1 or "cookie" not in request.headers, "not for who has cookies"
        self._check_message(reply, stored, request, now)
        return stored

    def _check_message(self, reply: Reply, stored: Stored, request: Request, now: int) -> None:
        age = max(0, now - stored.keep.birth) // 1000
        assert reply.get_all("age") == [b"%d" % age], (reply.get_all("age"), age)
        kept = [(name, value) for name, value in stored.fields if _is_stored(name)]
        if not any(name == b"date" for name, _ in kept):
            # RFC 9110 section 6.6.1: whoever gets an answer without a date says when that was.
            kept.append((b"date", format_http_date(stored.arrived // 1000).encode()))
        had = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in kept]
        given = _ordered(item for item in reply.headers if item[0] not in _ADDED)
        if not_modified(request.headers, had, stored.status, response_time=stored.arrived / 1000):
            assert reply.status == 304, reply
            assert reply.body == b""
            wanted = _ordered((k.encode("latin-1"), v.encode("latin-1")) for k, v in not_modified_fields(had))
            assert given == wanted, (given, wanted)
            return
        assert reply.status == stored.status
        body = b"" if request.method == "HEAD" else stored.body
        assert reply.body == body, "another body"
        # Envoy sets a type where a body has none, and takes it from what has no body.
        given = [item for item in given if item[0] != b"content-type"]
        wanted = _ordered(item for item in kept if item[0] != b"content-type")
        assert given == wanted, (given, wanted)


def _is_stored(name: bytes) -> bool:
    return name.decode("latin-1") not in NOT_STORED and not name.startswith((b"x-meshcache-", b"x-envoy-"))


def _bytes(value: str) -> bytes:
    return value.encode("latin-1")


def _ordered(fields: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """By name; the lines of one name stay in their order, which may mean something."""
    return sorted(fields, key=itemgetter(0))
