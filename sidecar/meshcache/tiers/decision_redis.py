"""Decisions about experiments in the Redis or Valkey that holds the warm tier: one place for all pods.

Keys (beside those of `tiers/redis.py`; the braces keep them together in a cluster): `mc1:{x}:lease` who leads, for as
long as the lease lasts; `mc1:{x}:terms` how often that has changed; `mc1:{x}:token` the token of the newest leader;
`mc1:{x}:records` and `mc1:{x}:versions` the records, by hashed name; `mc1:{x}:changes` a stream with a message for each
change; `mc1:{x}:id` a word that is made once, so that a store that has lost its data is known.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from meshcache.tiers.base import TierError
from meshcache.tiers.decision_store import Stored, StoreError, decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from meshcache.experiment.state import Record

_PREFIX: Final = "mc1:{x}:"
_LEASE: Final = f"{_PREFIX}lease"
_TERMS: Final = f"{_PREFIX}terms"
_TOKEN: Final = f"{_PREFIX}token"
_RECORDS: Final = f"{_PREFIX}records"
_VERSIONS: Final = f"{_PREFIX}versions"
_CHANGES: Final = f"{_PREFIX}changes"
_ID: Final = f"{_PREFIX}id"
_TOLD: Final = 100
"""Messages that are kept: whoever has missed one reads everything anyway."""
PATIENCE: Final = 0.5
"""Seconds that the store may take for an answer."""

# The token is named in the same step in which the lease is taken: from then on the leader before is refused.
_LEAD: Final = """\
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return false end
local token = redis.call('GET', KEYS[3])
if not held or not token or string.sub(token, -string.len(ARGV[1])) ~= ARGV[1] then
  token = redis.call('INCR', KEYS[2]) .. '-' .. ARGV[1]
  redis.call('SET', KEYS[3], token)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return token
"""
_STEP_DOWN: Final = """\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
_WRITE: Final = """\
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local had = tonumber(redis.call('HGET', KEYS[3], ARGV[2]) or '0')
if had ~= tonumber(ARGV[3]) - 1 then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])
redis.call('XADD', KEYS[4], 'MAXLEN', ARGV[5], '*', 'n', ARGV[2])
return 1
"""
_OFFER: Final = """\
local had = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '0')
if had >= tonumber(ARGV[2]) and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[3], 'MAXLEN', ARGV[4], '*', 'n', ARGV[1])
return 1
"""
_FORGET: Final = """\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[3], ARGV[2]) ~= ARGV[3] then return 0 end
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('XADD', KEYS[4], 'MAXLEN', ARGV[4], '*', 'n', ARGV[2])
return 1
"""


class DecisionRedis:
    """Implements `DecisionStore`. Belongs to one event loop."""

    def __init__(
        self,
        send: Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]],
        where: str,
        *,
        patience: float = PATIENCE,
    ) -> None:
        """`send` is `RedisTier.send`; `where` names the store for people."""
        self.where = where
        self._send = send
        self._patience = patience
        self._holder = secrets.token_hex(8)
        self._mark: tuple[Any, ...] = ()
        self._stored = Stored({})

    async def lead(self, seconds: float) -> str | None:
        """See `DecisionStore`. One round trip."""
        life = max(1, int(seconds * 1000))
        (reply,) = await self._ask([("EVAL", _LEAD, 3, _LEASE, _TERMS, _TOKEN, self._holder, life)])
        return reply.decode() if isinstance(reply, bytes) else None

    async def step_down(self) -> None:
        """See `DecisionStore`."""
        await self._ask([("EVAL", _STEP_DOWN, 1, _LEASE, self._holder)])

    async def read(self) -> Stored:
        """See `DecisionStore`. One round trip, a second one when something has changed."""
        made = secrets.token_hex(8)
        _, incarnation, newest, count = await self._ask(
            [("SET", _ID, made, "NX"), ("GET", _ID), ("XREVRANGE", _CHANGES, "+", "-", "COUNT", 1), ("HLEN", _RECORDS)]
        )
        mark = (incarnation, newest[0][0] if isinstance(newest, list) and newest else None, count)
        if mark != self._mark:
            # The mark was read first: what changes meanwhile shows at the next look.
            (records,) = await self._ask([("HGETALL", _RECORDS)])
            found = [decoded(value) for value in records.values()] if isinstance(records, dict) else []
            name = incarnation.decode() if isinstance(incarnation, bytes) else ""
            self._stored = Stored({record.name: record for record in found if record is not None}, name)
            self._mark = mark
        return self._stored

    async def write(self, record: Record, token: str | None) -> bool:
        """See `DecisionStore`."""
        keys = (_TOKEN, _RECORDS, _VERSIONS, _CHANGES)
        (done,) = await self._ask(
            [("EVAL", _WRITE, 4, *keys, token or "", _field(record), record.version, encoded(record), _TOLD)]
        )
        return bool(done == 1)

    async def offer(self, records: Iterable[Record]) -> None:
        """See `DecisionStore`."""
        keys = (_RECORDS, _VERSIONS, _CHANGES)
        commands = [
            ("EVAL", _OFFER, 3, *keys, _field(record), record.version, encoded(record), _TOLD) for record in records
        ]
        if commands:
            await self._ask(commands)

    async def forget(self, record: Record, token: str) -> bool:
        """See `DecisionStore`."""
        keys = (_TOKEN, _RECORDS, _VERSIONS, _CHANGES)
        (done,) = await self._ask([("EVAL", _FORGET, 4, *keys, token, _field(record), record.version, _TOLD)])
        return bool(done == 1)

    async def wait(self, seconds: float) -> None:
        """See `DecisionStore`."""
        newest = self._mark[1] if len(self._mark) > 1 and self._mark[1] else b"0-0"
        command = ("XREAD", "COUNT", 1, "BLOCK", max(1, int(seconds * 1000)), "STREAMS", _CHANGES, newest)
        await self._ask([command], seconds)

    async def close(self) -> None:
        """See `DecisionStore`. The store's client is not this object's."""

    async def _ask(self, commands: Sequence[tuple[Any, ...]], more: float = 0.0) -> list[Any]:
        try:
            async with asyncio.timeout(self._patience + more):
                return await self._send(commands)
        except TierError as error:
            raise StoreError(f"{self.where}: {error}") from error
        except TimeoutError as error:
            raise StoreError(f"{self.where}: the store does not answer in time") from error


def _field(record: Record) -> str:
    return hashlib.blake2b(record.name.encode(), digest_size=16).hexdigest()
