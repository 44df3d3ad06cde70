"""Leases that the pods of a fleet share, in the Redis or Valkey that holds the warm tier.

A lease is a key `mc1:l:<hex>` with a random token. It lives for a few seconds and is renewed while it is held, so that
that of a pod that has died is soon free; it is given back by a script that deletes it only with the right token. In
the place of a lease may stand the word that answers for the key are not for sharing.

Who gives one back when its answer is stored leaves a mark beside it, `mc1:d:<hex>`, for some seconds: whoever gets the
lease next is told how long ago that was, and knows whether it has looked the answer up before. What is left of the
mark's life is its age, so that no clock of a pod matters. Releases that know no marks neither make nor miss them.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from meshcache.decisions import TierName
from meshcache.engine.ports import FleetLease
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.breaker import Breaker
from meshcache.tiers.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from meshcache.tiers.hooks import TierHooks

_PREFIX: Final = "mc1:l:"
_MARKS: Final = "mc1:d:"
_SHUNNED: Final = b"-"
LIFE: Final = 3.0
"""Seconds for which a lease outlives its pod."""
LEAST_DEADLINE: Final = 0.05
"""Seconds that the store may take in any case: a miss is about to ask an origin, which takes longer as a rule."""
MARKED: Final = 5.0
"""Seconds for which is known that an answer was stored: longer than a look-up takes, or a busy event loop."""
_RENEW: Final = 1.0
"""Seconds between two renewals of what is held."""
_MOST_HELD: Final = 10_000
"""Leases of one process that are renewed; more end with their life."""

_RELEASE: Final = """\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2]) end
if ARGV[4] ~= '0' then redis.pcall('SET', KEYS[2], '', 'PX', ARGV[4]) end
return 1
"""
"""The mark comes second: a store that is full takes none, and is to lose the lease all the same."""
_EXTEND: Final = """\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
"""


class RedisLeases:
    """`FleetLeases` over a store. Belongs to one event loop."""

    def __init__(
        self,
        send: Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]],
        hooks: TierHooks,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        *,
        deadline: float = LEAST_DEADLINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`send` is `RedisTier.send`; a command that takes longer than `deadline` seconds counts as failed."""
        self._send = send
        self._hooks = hooks
        self._spawn = spawn
        self._deadline = deadline
        self._clock = clock
        # Its openings are not reported: the store is the warm tier's, which reports its own.
        self._breaker = Breaker(clock=clock)
        self._held: dict[bytes, tuple[FleetLease, float]] = {}
        """By token: what is to be renewed, and until when."""
        self._renewing: asyncio.Task[None] | None = None

    def allow(self, deadline: float) -> None:
        """Let the store take `deadline` seconds from now on, and `LEAST_DEADLINE` in any case."""
        self._deadline = max(LEAST_DEADLINE, deadline)

    async def acquire(self, key: bytes, seconds: float) -> FleetLease | None:
        """See `FleetLeases`. One round trip."""
        lease = FleetLease(key, secrets.token_bytes(16))
        life = _milliseconds(min(seconds, LIFE))
        name = _name(key)
        try:
            # The mark is read last: who gets the lease is to see what the one before it has left.
            replies = await self._ask(
                [("SET", name, lease.token, "NX", "PX", life), ("GET", name), ("PTTL", _MARKS + key.hex())]
            )
        except asyncio.CancelledError:
            # Whoever asked does not learn whether it was granted.
            self._spawn(self.release(lease))
            raise
        found = replies[1] if replies else None
        if not isinstance(found, bytes) or found == lease.token:
            if replies:
                lease = replace(lease, answered=_age(replies[2]))
            self._hold(lease, self._clock() + seconds)
            return lease
        return FleetLease(key, b"", shunned=True) if found == _SHUNNED else None

    async def release(self, lease: FleetLease, *, shun: float = 0.0, answered: bool = False) -> None:
        """See `FleetLeases`. One round trip."""
        if not lease.token:
            return
        self._held.pop(lease.token, None)
        told = _milliseconds(shun) if shun > 0 else 0
        mark = _milliseconds(MARKED) if answered else 0
        keys = (_name(lease.key), _MARKS + lease.key.hex())
        await self._ask([("EVAL", _RELEASE, 2, *keys, lease.token, told, _SHUNNED, mark)])

    async def close(self) -> None:
        """Renew nothing any more; what is still held ends by itself."""
        self._held.clear()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    def _hold(self, lease: FleetLease, until: float) -> None:
        if len(self._held) >= _MOST_HELD:
            return
        self._held[lease.token] = lease, until
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(_RENEW)
            now = self._clock()
            commands = []
            for token, (lease, until) in list(self._held.items()):
                if until <= now:
                    del self._held[token]
                    continue
                life = _milliseconds(min(until - now, LIFE))
                commands.append(("EVAL", _EXTEND, 1, _name(lease.key), token, life))
            if commands:
                await self._ask(commands)

    async def _ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies, or nothing, counted, when the store is away or too slow."""
        if not self._breaker.allow():
            return []
        try:
            async with Deadline(self._deadline):
                replies = await self._send(commands)
        except asyncio.CancelledError:
            self._breaker.abandoned()
            raise
        except Exception as error:
            kind = error.kind if isinstance(error, TierError) else Trouble.INTERNAL
            self._hooks.tier_error(TierName.WARM, Trouble.TIMEOUT if isinstance(error, TimeoutError) else kind)
            self._breaker.failed()
            return []
        self._breaker.succeeded()
        return replies


def _age(left: object) -> float:
    """How many seconds ago a mark was made that lasts for so many milliseconds; infinite without one."""
    return max(0.0, MARKED - left / 1000) if isinstance(left, int) and left >= 0 else math.inf


def _name(key: bytes) -> str:
    return _PREFIX + key.hex()


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))
