"""One Envoy with its workers, the sidecar and the origin, under policies of a test's choice; every answer is checked.

A test makes requests and, for those that the filter hands on, answers: `Exchange.answer` is what sidecar and origin say
together. Whatever the filter does is held against the model and the engine's own key at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hot_filter.model import SERIAL, Model, Stored
from hot_filter.plans import LEASE, SECRET, plan_of
from hot_filter.sidecar import CLUSTER, Feed, Manner
from hot_filter.tally import Tally
from meshcache.decisions import AskedFor, BypassReason
from meshcache.engine.admission import bypass_reason, effective_method
from meshcache.engine.key import cache_key, chosen_key, resource_ids
from meshcache.envoy.filters import ASK_STATE, SKIP_STATE
from meshcache.message import Headers, Peer, Request
from meshcache.policy.identity import OPEN
from meshcache.rfc.invalidation import is_unsafe
from meshcache.wasm import marks
from meshcache.wasm.labels import Kind, label, labels_of, labels_of_resources
from proxy_wasm import Envoy, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from meshcache.engine.key import CacheKey
    from meshcache.policy.selection import Selection
    from meshcache.policy.snapshot import Snapshot
    from proxy_wasm import Pairs, Reply

ADDRESS = "127.0.0.1"
ASK, SKIP = ASK_STATE.encode(), SKIP_STATE.encode()
_BODILESS = (204, 304)
"""Statuses of answers that end with their head."""


@dataclass
class Life:
    """For how long an answer may be kept, in seconds from now."""

    fresh: float = 60.0
    stale: float = 0.0
    """After that."""
    drop: float | None = None
    """When it may not be used at all any more; None for when it is neither fresh nor to be served stale."""
    renew: float | None = None
    age: float = 0.0
    """That it has already."""
    tags: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()
    for_cookies: bool = True


@dataclass
class World:
    """`module` is the built filter, `snapshot` has the policies at the beginning."""

    module: Path
    snapshot: Snapshot
    envoy: Envoy = field(init=False)
    model: Model = field(init=False)
    feed: Feed = field(init=False)
    serial: int = 0
    replies: list[Stored] = field(default_factory=list)
    """What the filter has answered with."""
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.envoy = Envoy(self.module, clusters=frozenset({CLUSTER}))
        self.model = Model(lease_ns=int(LEASE * 1e9))
        self.feed = Feed(self.envoy, self.model)
        self._snapshots: dict[bytes, Snapshot] = {}
        self.install(self.snapshot)

    # -- plans and workers ---------------------------------------------------------------------------------------------

    def install(self, snapshot: Snapshot) -> None:
        """Have the feed give the plan of these policies from now on."""
        self.snapshot = snapshot
        self.feed.plan_id, self.feed.plan = plan_of(snapshot)
        self._snapshots[self.feed.plan_id] = snapshot

    def add_worker(self, *, ready: bool = True) -> int:
        """Start a worker; its number. One that is `ready` has the plan."""
        self.envoy.start_worker()
        number = len(self.envoy.workers) - 1
        if ready:
            self.settle(number)
        return number

    def settle(self, *numbers: int) -> None:
        """Have these workers, or all, poll and hear everything there is to hear."""
        for number in numbers or range(len(self.envoy.workers)):
            for _ in range(3):
                self.envoy.workers[number].tick()
                self.feed.answer(Manner.WELL, only=number)

    def reload(self, number: int) -> None:
        """A worker gets a new VM, as after a trap."""
        self.envoy.workers[number].reload()
        self.model.restarted(number)
        self.tally.reloaded(number)

    def check_counts(self) -> None:
        """Have all workers tell what they have counted, and see that it is what they have answered."""
        for _ in range(3):
            self.envoy.advance(1.0)
            self.settle()
        self.tally.check(self.feed.counts)

    def drop(self, labels: tuple[int, ...] | None) -> None:
        """A purge, or an invalidation that came another way: workers hear of it by the feed."""
        self.feed.drop(labels)

    def drop_tag(self, tag: str) -> None:
        """A purge of what has this tag."""
        self.drop((label(Kind.TAG, tag.encode()),))

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(
        self,
        path: str | bytes = "/",
        headers: Iterable[tuple[str, str]] = (),
        *,
        method: str = "GET",
        worker: int = 0,
        authority: str = "example.com",
        scheme: str = "http",
        end: bool = True,
    ) -> Exchange:
        """One request, as a client's that has passed the filters in front."""
        target = path if isinstance(path, bytes) else path.encode("latin-1")
        pairs: Pairs = [
            (b":method", method.encode()),
            (b":scheme", scheme.encode()),
            (b":authority", authority.encode("latin-1")),
            (b":path", target),
            *((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers),
        ]
        return self.send(pairs, worker=worker, end=end)

    def send(self, pairs: Pairs, *, worker: int = 0, end: bool = True) -> Exchange:
        """The same for any list of fields."""
        return Exchange(self, worker, list(pairs), end=end)

    def get(self, path: str = "/", headers: Sequence[tuple[str, str]] = (), life: Life | None = None) -> Exchange:
        """A request and, unless the filter answers it, a short answer that is kept as `life` says."""
        exchange = self.request(path, headers)
        if exchange.reply is None:
            exchange.answer(life=life or Life())
        return exchange

    def key(self, request: Request, plan: bytes) -> tuple[CacheKey, Selection] | None:
        """The key of a request and what is chosen for it by the policies of a plan; None where none is made."""
        snapshot = self._snapshots.get(plan)
        if snapshot is None or bypass_reason(request) is not None:
            return None
        selection = snapshot.select(request)
        policy = selection.policy
        if policy is None:
            return None
        border = snapshot.identities.border(request, policy.key) if policy.key.partitioned else OPEN
        if border is None:
            return None
        revision = snapshot.revision(request)
        if selection.by_key is not None:
            return chosen_key(request, policy.key, selection.by_key, revision=revision, border=border.parts)
        key = cache_key(request, policy.key, namespace=selection.namespace, revision=revision, border=border.parts)
        return key, selection

    def route(self, request: Request, plan: bytes) -> str:
        """The route of a request by the policies of a plan."""
        return self._snapshots[plan].select(request).route

    def resource_labels(self, request: Request) -> tuple[int, ...]:
        """What an unsafe request to this target makes invalid."""
        specs = {policy.key for snapshot in self._snapshots.values() for policy in snapshot.in_use}
        return labels_of_resources(sorted(resource_ids(request.scheme, request.authority, [request.path], specs)))


class Exchange:
    """One request through the filter of one worker."""

    def __init__(self, world: World, worker: int, pairs: Pairs, *, end: bool) -> None:
        self.world = world
        self.worker = worker
        self.began = world.model.begin()
        self.request = message(pairs, complete=end)
        properties = {b"source\0address": f"{ADDRESS}:40000".encode()}
        vm = world.envoy.workers[worker]
        self.stream = Stream(vm, pairs, end_of_stream=end, properties=properties)
        assert not vm.failed, vm.trap
        self.reply: Reply | None = self.stream.reply
        self.skipped = False
        self.ask: marks.Ask | None = None
        self.stored: Stored | None = None
        """What the filter has answered with."""
        self.plan = world.model.plans.get(worker, b"")
        self.key = world.key(self.request, self.plan)
        if self.reply is None:
            self._check_passage(pairs)
        else:
            digest = self.key[0].digest if self.key is not None else None
            assert plain(self.request), f"a request that is the sidecar's: {self.request}"
            now, steady = world.envoy.now_ms, world.envoy.monotonic_ns
            self.stored = world.model.check(self.reply, worker, self.request, digest, now=now, steady_ns=steady)
            world.replies.append(self.stored)
            assert self.key is not None
            world.tally.answered(worker, self.reply, self.key[1])

    def _check_passage(self, pairs: Pairs) -> None:
        """What is handed on is what came; what it says to the filters behind is the truth."""
        assert self.stream.forwarded == pairs, "a changed request"
        state = dict(self.stream.state)
        self.skipped = state.pop(SKIP, None) is not None
        said = state.pop(ASK, None)
        assert not state, state
        assert not (self.skipped and said)
        if self.skipped:
            # What its fields ask of a stored answer is nothing to a route that stores none.
            reason = bypass_reason(self.request)
            assert reason in (None, BypassReason.PRECONDITION), f"skipped, though the sidecar decides: {self.request}"
            assert self.key is None, f"skipped, though it may be cached: {self.request}"
            self.world.tally.passed(self.worker, self.world.route(self.request, self.plan))
        if said is None:
            return
        self.ask = marks.parse_ask(said.decode("latin-1"), SECRET)
        assert self.ask is not None, f"a mark without proof: {said!r}"
        assert self.ask.plan == self.plan
        # What cannot be read to its end may be taken for unsafe as well.
        assert self.ask.why is AskedFor.UNSAFE or not unsafe_of(self.request), self.ask
        if self.ask.why is AskedFor.UNSAFE:
            assert self.ask.digest == bytes(32)
        else:
            assert self.key is not None, f"a key where there is none: {self.request}"
            assert self.ask.digest == self.key[0].digest, "another key than the engine's"

    # -- what comes back -----------------------------------------------------------------------------------------------

    def answer(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        fields: Sequence[tuple[bytes, bytes]] = (),
        life: Life | None = None,
        chunks: Sequence[int] = (),
        trailers: Pairs | None = None,
        cut: bool = False,
        length: int | None = -1,
        keep: bytes | None = None,
        drop: bytes | None = None,
    ) -> str:
        """Sidecar and origin answer; returns the serial of the answer.

        `life` lets the filter keep it, if it has asked for that. The body goes out in pieces of so many bytes as
        `chunks` says. `length` is that of `content-length`, -1 for the true one, None for none. `keep` and `drop` are
        sent in place of the true marks.
        """
        self.begin_answer(body, status=status, fields=fields, life=life, length=length, keep=keep, drop=drop)
        return self.end_answer(chunks=chunks, trailers=trailers, cut=cut)

    def begin_answer(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        fields: Sequence[tuple[bytes, bytes]] = (),
        life: Life | None = None,
        length: int | None = -1,
        keep: bytes | None = None,
        drop: bytes | None = None,
    ) -> None:
        """The head of it."""
        world = self.world
        world.serial += 1
        self.serial = str(world.serial)
        self._body = b"" if status in _BODILESS else body or f"answer {self.serial}".encode()
        head: Pairs = [(SERIAL.encode(), self.serial.encode()), (b"etag", b'"%d"' % world.serial), *fields]
        size = len(self._body) if length == -1 else length
        if size is not None:
            head.append((b"content-length", b"%d" % size))
        self._size = size
        self._filling = self._keep(head, status, life) if keep is None else None
        if self._filling is not None:
            head.append((marks.KEEP.encode(), self._mark))
        elif keep is not None:
            head.append((marks.KEEP.encode(), keep))
        if drop is not None:
            head.append((marks.DROP.encode(), drop))
        invalid = self._invalid(head, status, forged=drop is not None)
        # Without a body the head is all.
        self._bodiless = self.request.method == "HEAD" or status in _BODILESS
        self.stream.respond_headers(status, head, end=self._bodiless)
        for labels in invalid:
            world.model.drop(labels)
        self._check_sent(head)

    def end_answer(self, *, chunks: Sequence[int] = (), trailers: Pairs | None = None, cut: bool = False) -> str:
        """The rest of it."""
        if not self._bodiless:
            self._send_body(chunks, trailers, cut=cut)
        self.stream.close()
        vm = self.world.envoy.workers[self.worker]
        assert not vm.failed, vm.trap
        # What ends with its head cannot be cut.
        if self._filling is not None and (self._bodiless or not cut) and self._size in (None, len(self._filling.body)):
            self._filling.whole = True
        return self.serial

    def abandon(self) -> None:
        """One of the ends has gone."""
        self.stream.close()

    def _send_body(self, chunks: Sequence[int], trailers: Pairs | None, *, cut: bool) -> None:
        pieces, rest = [], self._body
        for size in chunks:
            pieces.append(rest[:size])
            rest = rest[size:]
        if rest or not pieces:
            pieces.append(rest)
        if cut:
            pieces.pop()
        for number, piece in enumerate(pieces, 1):
            self.stream.respond_body(piece, end=not cut and trailers is None and number == len(pieces))
        if trailers is not None and not cut:
            self.stream.respond_trailers(trailers)

    def _keep(self, head: Pairs, status: int, life: Life | None) -> Stored | None:
        """What the sidecar lets the filter keep, as it does only for what it was asked by a proven mark."""
        if life is None or self.ask is None or self.ask.why is AskedFor.UNSAFE or self.key is None:
            return None
        key, selection = self.key
        now = self.world.envoy.now_ms
        birth = now - int(life.age * 1000)
        fresh = now + int(life.fresh * 1000)
        stale = fresh + int(life.stale * 1000)
        drop = stale if life.drop is None else now + int(life.drop * 1000)
        renew = 0 if life.renew is None else now + int(life.renew * 1000)
        revision, subject = "", b""
        labels = labels_of(
            resource=key.resource, route=selection.route, revision=revision, subject=subject, tags=life.tags
        )
        keep = marks.Keep(birth, fresh, stale, drop, renew, int(life.for_cookies), labels, life.vary)
        self._mark = marks.write_keep(self.ask, keep, SECRET).encode()
        selecting = tuple(
            tuple(value.encode("latin-1") for value in self.request.headers.get_all(name)) for name in life.vary
        )
        body = b"" if self.request.method == "HEAD" else self._body
        made = Stored(
            *(self.serial, self.worker, self.ask.plan, self.ask.digest, keep, status, list(head), body, selecting),
            began=self.began,
            arrived=now,
        )
        self.world.model.stored[self.serial] = made
        return made

    def _invalid(self, head: Pairs, status: int, *, forged: bool) -> list[tuple[int, ...] | None]:
        """What the answer makes invalid in all workers; the mark that says so is added to its head."""
        if not unsafe_of(self.request) or not 200 <= status < 400:
            return []
        if self.ask is None or forged:
            return [None]
        labels = self.world.resource_labels(self.request)
        head.append((marks.DROP.encode(), marks.write_drop(self.ask, marks.Drop(labels), SECRET).encode()))
        return [labels]

    def _check_sent(self, head: Pairs) -> None:
        """The client gets what was sent, but for what is internal, and for the `cache-status` of what is skipped."""
        sent = self.stream.sent
        assert sent is not None
        internal = b"x-meshcache-"
        had = [item for item in head if not item[0].startswith(internal)]
        gets = [item for item in sent[1:] if not item[0].startswith(internal) and item[0] != b"cache-status"]
        assert gets == [item for item in had if item[0] != b"cache-status"]
        # All that is internal is taken away by the filter in front of all; here, that which this one has read.
        if self.ask is not None:
            read = marks.DROP if self.ask.why is AskedFor.UNSAFE else marks.KEEP
            assert read.encode() not in [name for name, _ in sent], sent


def message(pairs: Pairs, *, complete: bool = True) -> Request:
    """The request as the sidecar would see it."""
    found = {name: value.decode("latin-1") for name, value in pairs if name.startswith(b":")}
    fields = Headers((k.decode("latin-1"), v.decode("latin-1")) for k, v in pairs if not k.startswith(b":"))
    return Request(
        method=found.get(b":method", ""),
        authority=found.get(b":authority", ""),
        path=found.get(b":path", ""),
        headers=fields,
        scheme=found.get(b":scheme", ""),
        peer=Peer(address=ADDRESS),
        complete=complete,
    )


def unsafe_of(request: Request) -> bool:
    """Whether it may change what the origin has."""
    return is_unsafe(effective_method(request))


_SPECIAL = frozenset({"authorization", "range", "cache-control", "pragma", "x-cache-status", "if-range"})


def plain(request: Request) -> bool:
    """Whether nothing but freshness decides about it, so that the filter may answer."""
    names = request.headers.names
    # Beside `if-none-match` a date has no meaning (RFC 9110 section 13.1.3).
    judged = {"if-none-match", "if-modified-since"} if "if-none-match" in names else set()
    conditions = {name for name in names if name.startswith("if-")} - judged
    return bypass_reason(request) is None and names.isdisjoint(_SPECIAL) and not conditions
