"""The sidecar's side of the filter's polls: plans, what is dropped, counts; well-behaved or not, as a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from meshcache.wasm import feed
from proxy_wasm import Reply

if TYPE_CHECKING:
    from hot_filter.model import Model
    from proxy_wasm import Call, Envoy

CLUSTER = "meshcache-filter"
FIRST = 1_000
"""The generation of a log in which nothing is."""


class Manner(Enum):
    """How a poll is answered."""

    WELL = auto()
    TRUNCATED = auto()
    """The right answer, but for some bytes at its end."""
    GARBAGE = auto()
    LONGER = auto()
    """The right answer with something behind it."""
    ERROR = auto()
    """Status 503."""
    GONE = auto()
    """No answer at all."""
    OLD = auto()
    """An answer that was right some time ago."""


@dataclass
class Feed:
    """The plan in force, and the log of what was dropped since the first generation."""

    envoy: Envoy
    model: Model
    plan: bytes = b""
    plan_id: bytes = b""
    generation: int = FIRST
    log: list[tuple[int, tuple[int, ...] | None]] = field(default_factory=list)
    """Generations and labels, None for everything."""
    counts: list[bytes] = field(default_factory=list)
    """Bodies of the batches of counts that were taken."""
    polls: int = 0
    said: dict[int, dict[str, str]] = field(default_factory=dict)
    """What each worker has said with its last poll."""

    def drop(self, labels: tuple[int, ...] | None) -> None:
        """Drop what has one of `labels`, or everything, in all filters, as soon as they ask."""
        self.generation += 1
        self.log.append((self.generation, labels))

    def answer(self, manner: Manner = Manner.WELL, *, only: int | None = None) -> int:
        """Answer every call that waits, or those of the worker of that number; how many there were."""
        calls = [call for call in self.envoy.calls if only is None or self.envoy.workers.index(call.worker) == only]
        for call in calls:
            self._answer(call, manner)
        return len(calls)

    def _answer(self, call: Call, manner: Manner) -> None:
        assert call.cluster == CLUSTER
        target = urlsplit(call.get(":path").decode())
        worker = self.envoy.workers.index(call.worker)
        if manner is Manner.GONE:
            call.fail()
        elif manner is Manner.ERROR:
            call.answer(Reply(503, [], b"down"))
        elif target.path == "/v1/numbers":
            assert call.get(":method") == b"POST"
            self.counts.append(call.body)
            call.answer(Reply(204))
        else:
            assert target.path == "/v1/feed", target
            assert call.get(":method") == b"GET"
            self.polls += 1
            self._poll(call, worker, {name: values[0] for name, values in parse_qs(target.query).items()}, manner)

    def _poll(self, call: Call, worker: int, query: dict[str, str], manner: Manner) -> None:
        self.said[worker] = query
        after = int(query["after"], 16)
        self.model.acknowledged(worker, after)
        in_force = call.get("if-none-match").strip(b'"')
        news = after != self.generation or in_force != self.plan_id.hex().encode()
        if not news and manner is Manner.WELL:
            self.model.heard(worker, call.sent_ns)
            call.answer(Reply(304, [(b"etag", b'"%b"' % self.plan_id.hex().encode())]))
            return
        known = after == FIRST or any(generation == after for generation, _ in self.log)
        labels: tuple[int, ...] | None = None
        if known:
            newer = [named for generation, named in self.log if generation > after]
            if None not in newer:
                labels = tuple(label for named in newer if named is not None for label in named)
        plan = b"" if in_force == self.plan_id.hex().encode() else self.plan
        body = feed.encode(self.generation, labels, plan)
        reply = Reply(200, [(b"etag", b'"%b"' % self.plan_id.hex().encode())], body)
        if manner is Manner.WELL:
            self.model.told(worker, self.generation, labels, self.plan_id if plan else b"")
            self.model.heard(worker, call.sent_ns)
        elif manner is Manner.TRUNCATED:
            reply.body = body[: len(body) // 2]
        elif manner is Manner.LONGER:
            reply.body = body + b"\0"
        elif manner is Manner.GARBAGE:
            reply.body = bytes(byte ^ 0x5A for byte in body)
        else:
            # Well-formed, and the truth some time ago. Nothing is lost by it: what came since is told again.
            before = self.log[0][0] - 1 if self.log else self.generation
            reply.body = feed.encode(before, (), b"")
            self.model.told(worker, before, (), b"")
            self.model.heard(worker, call.sent_ns)
        call.answer(reply)
