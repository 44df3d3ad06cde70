"""What pods tell each other of what they have counted: signed records in the store that they share. Needs numpy.

A store that is away costs the newest counts of other pods, never one of this pod's: those are in its own files, and the
next record holds them all.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from meshcache.decisions import TierName
from meshcache.experiment import counted as texts
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.breaker import Breaker
from meshcache.tiers.deadline import Deadline
from meshcache.tiers.signing import KEY_ID_BYTES, MAC_BYTES, KeyringError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from structlog.typing import FilteringBoundLogger

    from meshcache.experiment.counted import Counted
    from meshcache.observe.metrics import Metrics
    from meshcache.tiers.fleet_ledger import FleetRecords, Record
    from meshcache.tiers.signing import Keyring
    from meshcache.tiers.threads import Threads

SAMPLES_EVERY: Final = 10.0
"""Seconds between two publications of samples: they are large, and no verdict hangs on the newest."""
TELL_AGAIN: Final = 30.0
"""Seconds after which everything is told once more."""
_DEADLINE: Final = 2.0
"""Seconds that the store may take for one epoch's records."""
_GOOD_FOR: Final = 0.5
"""Seconds for which what was read is good for whoever else asks."""
_REMEMBERED: Final = 16
"""Epochs whose other pods' counts are kept at hand."""
_COUNTS: Final = b"counts"
_SAMPLES: Final = b"samples"


@dataclass
class _Told:
    """What this pod has told last."""

    counts: Counted | None = None
    samples: Counted | None = None
    samples_at: float = -SAMPLES_EVERY
    at: float = 0.0
    """When all of it was told, whether or not it had changed. Monotonic seconds, as is the other one."""


@dataclass
class _Heard:
    """What the other pods have told of one epoch."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    records: dict[str, Record] = field(default_factory=dict)
    counts: dict[str, Counted | None] = field(default_factory=dict)
    samples: dict[str, Counted | None] = field(default_factory=dict)
    at: float = 0.0
    """Unix seconds."""
    looked: float = -_GOOD_FOR
    """Monotonic seconds."""


class SharedCounts:
    """Publishes this pod's counts and reads those of others. Raises nothing but cancellation."""

    def __init__(
        self,
        fleet: FleetRecords,
        keyring: Callable[[], Keyring],
        threads: Threads,
        metrics: Metrics,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keyring` gives the installation's keys; `clock` Unix seconds. What takes long is done in `threads`."""
        self._fleet = fleet
        self._keyring = keyring
        self._keys: Keyring | None = None
        self._threads = threads
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._breaker = Breaker()
        self._away = False
        self._strange: set[str] = set()
        self._told: dict[bytes, _Told] = {}
        self._heard: OrderedDict[bytes, _Heard] = OrderedDict()

    async def publish(self, about: bytes, found: Counted, *, hurry: bool = False) -> None:
        """Tell what this pod has counted of one epoch, if that has changed; samples now and then, or in a `hurry`."""
        told = self._told.setdefault(about, _Told())
        now = time.monotonic()
        if now - told.at >= TELL_AGAIN:
            # Unchanged as it may be: a store that was emptied has lost it.
            told.counts = told.samples = None
        new_counts = told.counts is None or not _same(found, told.counts)
        new_samples = (hurry or now - told.samples_at >= SAMPLES_EVERY) and (
            told.samples is None or not _same_samples(found, told.samples)
        )
        if not (new_counts or new_samples):
            return
        if not await self._ask(self._tell(about, found, new_counts, new_samples)):
            return
        if told.counts is None:
            told.at = now
        if new_counts:
            told.counts = found
        if new_samples:
            told.samples, told.samples_at = found, now

    async def read(self, about: bytes) -> tuple[list[Counted], float]:
        """What the other pods have told of one epoch, and when that was read, Unix seconds; 0 when it never was."""
        heard = self._heard.setdefault(about, _Heard())
        self._heard.move_to_end(about)
        while len(self._heard) > _REMEMBERED:
            self._heard.popitem(last=False)
        async with heard.lock:
            if time.monotonic() - heard.looked >= _GOOD_FOR:
                began = self._clock()
                if await self._ask(self._fetch(about, heard)):
                    heard.at = began
                heard.looked = time.monotonic()
            parts = [*heard.counts.values(), *heard.samples.values()]
        return [part for part in parts if part is not None], heard.at

    async def retire(self, epochs: Iterable[bytes]) -> None:
        """These are not needed for long any more."""
        for about in epochs:
            await self._ask(self._fleet.retire(about))

    def forget(self, kept: Iterable[bytes]) -> None:
        """Remember of no other epochs than these what was told of them."""
        keys = set(kept)
        self._told = {about: told for about, told in self._told.items() if about in keys}

    async def _tell(self, about: bytes, found: Counted, counts: bool, samples: bool) -> None:
        told = await self._threads.run(self._texts, about, found, counts, samples)
        await self._fleet.publish(about, counts=told[0], sample=told[1])

    async def _fetch(self, about: bytes, heard: _Heard) -> None:
        records = await self._fleet.read(about, heard.records)
        await self._threads.run(self._take, about, heard, records)

    def _take(self, about: bytes, heard: _Heard, records: dict[str, Record]) -> None:
        """Read the records that are new. In a thread: a pod's takes milliseconds."""
        for pod, record in records.items():
            before = heard.records.get(pod)
            if before is None or before.versions.counts != record.versions.counts:
                text = self._verified(about, pod, _COUNTS, record.counts)
                heard.counts[pod] = None if text is None else texts.load_counts(text, about)
            if before is None or before.versions.sample != record.versions.sample:
                text = self._verified(about, pod, _SAMPLES, record.sample)
                heard.samples[pod] = None if text is None else texts.load_samples(text, about)
        # What the store has lost is remembered: the pod tells it anew if it is still there.
        heard.records = heard.records | records

    def _texts(self, about: bytes, found: Counted, counts: bool, samples: bool) -> tuple[bytes | None, bytes | None]:
        return (
            self._signed(about, _COUNTS, texts.dump_counts(found, about)) if counts else None,
            self._signed(about, _SAMPLES, texts.dump_samples(found, about)) if samples else None,
        )

    # -- records are signed: what stands in a store that others write to must not decide what users get ------------

    @property
    def _key(self) -> Keyring:
        if self._keys is None:
            try:
                self._keys = self._keyring()
            except KeyringError as error:
                raise TierError(f"the keys cannot be read: {error}", Trouble.INTERNAL) from error
        return self._keys

    def _signed(self, about: bytes, kind: bytes, text: bytes) -> bytes:
        key = self._key
        return key.key_id + key.sign(_context(about, self._fleet.pod, kind), text) + text

    def _verified(self, about: bytes, pod: str, kind: bytes, record: bytes) -> bytes | None:
        """The text of another pod's record; None, and a line in the log, for one that is not of this installation."""
        if not record:
            return None
        text = record[KEY_ID_BYTES + MAC_BYTES :]
        try:
            mac = record[KEY_ID_BYTES : KEY_ID_BYTES + MAC_BYTES]
            if self._key.verify(record[:KEY_ID_BYTES], _context(about, pod, kind), text, mac):
                return text
        except KeyError:
            pass
        if pod not in self._strange and len(self._strange) < 1000:
            self._strange.add(pod)
            self._log.warning("counts of another pod are not signed by a key that is known here; left out", pod=pod)
        return None

    async def _ask(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether that came about; a store that goes away or comes back is a line in the log."""
        error: Exception | None = None
        if not self._breaker.allow():
            work.close()
            return False
        try:
            async with Deadline(_DEADLINE):
                await work
        except asyncio.CancelledError:
            self._breaker.abandoned()
            raise
        except Exception as trouble:
            # Whatever it is: this pod's own counts are worth as much without the others'.
            error = trouble
        if error is None:
            self._breaker.succeeded()
        else:
            self._breaker.failed()
            kind = Trouble.TIMEOUT if isinstance(error, TimeoutError) else Trouble.INTERNAL
            if isinstance(error, TierError):
                kind = error.kind
            self._metrics.inc("tier_errors_total", (TierName.WARM, kind))
        if (error is not None) is not self._away:
            self._away = error is not None
            if error is not None:
                self._log.warning(
                    "counts of experiments cannot be shared with other pods", error=str(error) or repr(error)
                )
            else:
                self._log.info("counts of experiments are shared again")
        return error is None


def _context(about: bytes, pod: str, kind: bytes) -> bytes:
    return b"\0".join((b"meshcache ledger", kind, about, pod.encode("utf-8", "replace")))


def _same(one: Counted, other: Counted) -> bool:
    return np.array_equal(one.counters, other.counters) and np.array_equal(one.latency, other.latency)


def _same_samples(one: Counted, other: Counted) -> bool:
    return np.array_equal(one.sample, other.sample) and np.array_equal(one.sampled, other.sampled)
