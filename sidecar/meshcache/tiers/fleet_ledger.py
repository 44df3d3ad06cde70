"""What pods have counted of experiments, in the Redis or Valkey that holds the warm tier: one record for each pod.

Keys (beside those of `tiers/redis.py`), for each epoch of an experiment, `<about>` being 32 hexadecimal digits:
`mc1:x:<about>:c` and `mc1:x:<about>:u` are hashes with a pod's counts and its sample of units by its id,
`mc1:x:<about>:v` is one with the versions of the two. A pod puts its cumulative record in the place of its last one, so
that nothing counts twice, whatever is sent again; and one that is gone for good leaves its last one behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

_PREFIX: Final = "mc1:x:"
_KEPT: Final = 30 * 86400
"""Seconds after the last record for which all of an epoch are kept."""
_LINGER: Final = 3600
"""The same once a later epoch has begun."""
_MOST_PODS: Final = 4096
_LONGEST: Final = 32 << 20
"""Bytes of a record; a longer one is none of ours."""
_VERSION_BYTES: Final = 8


class Versions(msgspec.Struct, frozen=True, array_like=True):
    """Of a pod's record: random, so that a pod that begins anew gives no number twice."""

    counts: bytes
    sample: bytes


class Record(msgspec.Struct, frozen=True):
    """What a pod has told last: two texts that only pods understand."""

    versions: Versions
    counts: bytes
    sample: bytes


_NOTHING: Final = Record(Versions(b"", b""), b"", b"")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Versions)


class FleetRecords:
    """Reads and writes the records. All calls raise `TierError`; they are not for a request's path."""

    def __init__(self, send: Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]], pod: str) -> None:
        """`send` is `RedisTier.send`; `pod` is this pod's id among all."""
        self._send = send
        self.pod = pod
        self._told: dict[bytes, Versions] = {}

    async def publish(self, about: bytes, *, counts: bytes | None, sample: bytes | None) -> None:
        """Put this pod's record in the place of its last one; None leaves that part as it was told last."""
        before = self._told.get(about, Versions(b"", b""))
        versions = Versions(
            secrets.token_bytes(_VERSION_BYTES) if counts is not None else before.counts,
            secrets.token_bytes(_VERSION_BYTES) if sample is not None else before.sample,
        )
        names = _names(about)
        commands: list[tuple[Any, ...]] = [
            ("HSET", name, self.pod, part)
            for name, part in zip(names, (counts, sample), strict=False)
            if part is not None
        ]
        # Last: who sees a version finds what it is of, or something newer.
        commands.append(("HSET", names[2], self.pod, _encoder.encode(versions)))
        await self._send([*commands, *(("EXPIRE", name, _KEPT) for name in names)])
        self._told[about] = versions

    async def retire(self, about: bytes) -> None:
        """A later epoch has begun: this one is not needed for long."""
        await self._send([("EXPIRE", name, _LINGER) for name in _names(about)])
        self._told.pop(about, None)

    async def read(self, about: bytes, known: Mapping[str, Record]) -> dict[str, Record]:
        """The other pods' records, by pod; those that are as in `known` are not fetched again."""
        counts, sample, versions = _names(about)
        (reply,) = await self._send([("HGETALL", versions)])
        found: dict[str, Record] = {}
        fetched: list[tuple[str, Versions]] = []
        for name, value in list(reply.items())[:_MOST_PODS] if isinstance(reply, dict) else ():
            try:
                pod, version = name.decode("utf-8", "replace"), _decoder.decode(value)
            except (AttributeError, TypeError, ValueError):
                # Of none of ours, or of a store that answers something else.
                continue
            if pod == self.pod:
                continue
            before = known.get(pod)
            if before is not None and before.versions == version:
                found[pod] = before
            else:
                fetched.append((pod, version))
        for pod, version in fetched:
            before = known.get(pod, _NOTHING)
            commands = []
            if before.versions.counts != version.counts:
                commands.append(("HGET", counts, pod))
            if before.versions.sample != version.sample:
                commands.append(("HGET", sample, pod))
            # One pod after the other: together they might be more than one answer should be.
            replies = dict(zip((command[1] for command in commands), await self._send(commands), strict=True))
            found[pod] = Record(
                version,
                _record(replies[counts]) if counts in replies else before.counts,
                _record(replies[sample]) if sample in replies else before.sample,
            )
        return found


def _record(reply: object) -> bytes:
    return reply if isinstance(reply, bytes) and len(reply) <= _LONGEST else b""


def _names(about: bytes) -> tuple[str, str, str]:
    base = f"{_PREFIX}{about.hex()}"
    return f"{base}:c", f"{base}:u", f"{base}:v"
