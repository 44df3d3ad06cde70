"""The warm tier of a fleet: one Redis or Valkey server that all pods share.

Keys in the store (`mc1:` is the version of this scheme): `mc1:k:<hex>` an entry, `mc1:c:<hex>` a chunk of bodies,
`mc1:e:<page>` 256 epoch words of 8 bytes behind one base word, `mc1:g` the word of all. The epoch of a resource is
these three words combined. The words are random and made by whoever misses them, so that words lost to eviction,
expiry or a flush leave entries dead, not undead; and there is a fixed number of them (8 MiB in all), however many
resources are invalidated.
A server that comes back with an old snapshot of its data brings back the words of then, too: an invalidation since is
lost, and freshness alone bounds what is served.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from meshcache.decisions import TierName
from meshcache.engine.epochs import EPOCH_BYTES
from meshcache.tiers.base import TierError, TierRead, Trouble
from meshcache.tiers.redis_client import Pool, checked_url, is_replica, translated
from meshcache.tiers.redis_words import ALL, PREFIX, combined_words, is_word, word_at, word_reads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.engine.pools import Division

ENTRIES = f"{PREFIX}k:"
"""Before the hexadecimal storage key in the name of an entry."""
CHUNKS = f"{PREFIX}c:"
"""Before the hexadecimal digest in the name of a chunk."""
PURGES = f"{PREFIX}p:g"
"""Id of the newest rule in the log of purges (`tiers/fleet_log.py`)."""
_WORDS_KEPT = 90 * 86400
"""Seconds after which a page of epochs is forgotten, and with it (long gone) what was stored under it."""
INVALIDATED = f"{PREFIX}i"
"""A stream that tells pods what others have invalidated (`extproc/invalidation_follower.py`): which pod (`p`) and the
resource ids, one behind the other (`r`); `EVERYTHING` for all there are."""
EVERYTHING = b"*"
_TOLD = 10_000
"""Messages that are kept for pods that are cut off for a while."""
_CONNECTIONS = 32
_MOST_INVALIDATIONS = 256
"""Invalidations that wait for the store, each by itself; more are made together, a moment later."""
_MOST_OWED = 10_000
_BATCH = 256
_LONGEST_RETRY = 5.0
_PROLONG = """
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return left ~= -2
"""
"""Makes a key last for at least so many milliseconds more; 1 when it is there. (`PEXPIRE ... GT` wants Redis 7.)"""


class RedisTier:
    """Implements `Tier` over `redis://`, `rediss://` and `unix://`. Nothing is retried but invalidations.

    Those that cannot be made, or are too many at once, are remembered, up to 10,000, then as one that makes everything
    dead; they are tried again until done, at growing intervals of up to 5 s. Messages never hold the URL's credentials.
    """

    name = TierName.WARM
    on_board = False
    writes_at_once = 8

    def __init__(
        self,
        url: str,
        *,
        socket_timeout: float = 1.0,
        connect_timeout: float = 0.5,
        pod: str = "",
    ) -> None:
        """`pod` names this one among those that share the store.

        Timeouts in seconds; callers usually wait for less. Raises `ValueError` for a URL that cannot be used.
        """
        self.where = checked_url(url)
        """The store's address without credentials, for messages."""
        self._socket_timeout = socket_timeout
        self._pod = pod
        try:
            self._pool = Pool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=connect_timeout,
                socket_timeout=socket_timeout,
                socket_connect_timeout=connect_timeout,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                driver_info=None,
            )
        except (ValueError, TypeError, OSError):
            # The library's message may quote the URL, and thereby the password.
            raise ValueError(f"{self.where}: not a usable store URL") from None
        self._redis: Redis = Redis.from_pool(self._pool)
        self._owed: dict[bytes, int] = {}
        self._owes_all = 0
        self._numbers = 0
        self._invalidating = 0
        self._retrying: asyncio.Task[None] | None = None
        self._closed = False

    async def ping(self) -> None:
        """Check, for the start, that the store answers and lets us in. Raises `TierError` with a line for people."""
        try:
            await self._send([("PING",)])
            # A server of a cluster answers a ping, too, but takes no command for keys of several slots.
            await self._send([("MGET", ALL, PURGES, INVALIDATED)])
        except TierError as error:
            raise TierError(f"{self.where}: {error}", error.kind) from None

    def absent(self, key: bytes) -> bool:  # noqa: ARG002 - only a round trip can tell
        """See `Tier`."""
        return False

    def divide(self, division: Division) -> None:
        """See `Tier`. Nothing is done: the server alone knows what it holds, and other pods fill it, too."""

    async def get(self, key: bytes, resource: bytes) -> TierRead:
        """See `Tier`. One round trip, save for the first look at a page of epochs."""
        if self._owes(resource):
            return TierRead(None, b"")
        value, *words, newest = await self._send([("GET", _entry(key)), *word_reads(resource), ("GET", PURGES)])
        epoch = combined_words(words)
        if not epoch:
            # No words: whatever is stored was stored under others, which are lost.
            return TierRead(None, await self._establish(resource, words))
        if self._owes(resource):
            return TierRead(None, b"")
        return TierRead(value if isinstance(value, bytes) else None, epoch, fleet_generation(newest))

    async def send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies to `commands` of others that share the store with the tier, such as leases. Raises `TierError`.

        A reply may be the error that a key is of another type.
        """
        return await self._send(commands)

    async def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """See `Tier`."""
        await self._send([("SET", _entry(key), value, "PX", _milliseconds(ttl))])

    async def delete(self, key: bytes) -> None:
        """See `Tier`."""
        await self._send([("DEL", _entry(key))])

    async def keep(self, digest: bytes, chunk: bytes, ttl: float) -> bool:
        """See `Tier`. Two round trips, so that a chunk that is there already need not be sent."""
        if not await self.extend((digest,), ttl):
            return False
        await self._send([("SET", _chunk(digest), chunk, "PX", _milliseconds(ttl))])
        return True

    async def extend(self, digests: Sequence[bytes], ttl: float) -> frozenset[bytes]:
        """See `Tier`."""
        left = await self._send([("PTTL", _chunk(digest)) for digest in digests])
        wanted = _milliseconds(ttl)
        # -2: not there; -1: without an end, which is none of our making, and long enough.
        short = [digest for digest, found in zip(digests, left, strict=True) if 0 <= found < wanted]
        gone = {digest for digest, found in zip(digests, left, strict=True) if found < -1}
        if ttl > 0 and short:
            # What another process has made last longer meanwhile must not be cut short; what is gone meanwhile is gone.
            done = await self._send([("EVAL", _PROLONG, 1, _chunk(digest), wanted) for digest in short])
            gone.update(digest for digest, there in zip(short, done, strict=True) if not there)
        return frozenset(gone)

    async def drop(self, digests: Sequence[bytes]) -> None:
        """See `Tier`."""
        await self._send([("DEL", _chunk(digest)) for digest in digests])

    async def fetch(self, digest: bytes) -> bytes | None:
        """See `Tier`."""
        (chunk,) = await self._send([("GET", _chunk(digest))])
        return chunk if isinstance(chunk, bytes) else None

    async def invalidate(self, resource: bytes) -> None:
        """See `Tier`."""
        number = self._owe(resource)
        if self._retrying is not None and not self._retrying.done():
            raise TierError("store is away; the invalidation will follow", Trouble.UNREACHABLE)
        if self._invalidating >= _MOST_INVALIDATIONS:
            self._pay_later()
            raise TierError("many invalidations are under way; this one will follow", Trouble.BUSY)
        self._invalidating += 1
        try:
            await self._change_words({resource: number})
        except BaseException:
            self._pay_later()
            raise
        finally:
            self._invalidating -= 1

    async def close(self) -> None:
        """See `Tier`. Invalidations still owed get one last try."""
        self._closed = True
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)
        try:
            async with asyncio.timeout(self._socket_timeout):
                if self._owed or self._owes_all:
                    await self._pay()
        except (TierError, TimeoutError):
            pass
        finally:
            await self._redis.aclose()

    @property
    def owed(self) -> int:
        """Invalidations that are still to be made in the store."""
        return len(self._owed) + bool(self._owes_all)

    def _owes(self, resource: bytes) -> bool:
        return bool(self._owes_all) or resource in self._owed

    def _owe(self, resource: bytes) -> int:
        self._numbers += 1
        if len(self._owed) >= _MOST_OWED and resource not in self._owed:
            self._owed.clear()
            self._owes_all = self._numbers
        elif not self._owes_all:
            self._owed[resource] = self._numbers
        else:
            self._owes_all = self._numbers
        return self._numbers

    def _pay_later(self) -> None:
        if not self._closed and (self._retrying is None or self._retrying.done()):
            self._retrying = asyncio.get_running_loop().create_task(self._retry())

    async def _retry(self) -> None:
        pause = 0.1
        while self.owed:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads load, hides nothing
            try:
                await self._pay()
                pause = 0.1
            except TierError:
                pause = min(_LONGEST_RETRY, pause * 2)

    async def _pay(self) -> None:
        """Make all invalidations that are owed. Raises `TierError` at the first that cannot be made."""
        while self._owes_all:
            number = self._owes_all
            change = ("SET", ALL, secrets.token_bytes(EPOCH_BYTES), "EX", _WORDS_KEPT)
            await self._send([change, *self._told(EVERYTHING)], atomic=True)
            # Another one may have come while this was under way; then it is not covered.
            if self._owes_all == number:
                self._owes_all = 0
        while self._owed:
            await self._change_words(dict(list(self._owed.items())[:_BATCH]))

    async def _change_words(self, resources: dict[bytes, int]) -> None:
        """Give `resources` new epoch words, each page complete with its base, and strike them off what is owed."""
        commands: list[tuple[Any, ...]] = []
        for resource in resources:
            page, offset = word_at(resource)
            commands.append(("SET", page, secrets.token_bytes(EPOCH_BYTES), "NX", "EX", _WORDS_KEPT))
            commands.append(("SETRANGE", page, offset, secrets.token_bytes(EPOCH_BYTES)))
        commands.extend(self._told(b"".join(resources)))
        try:
            await self._send(commands, atomic=True)
        except TierError as error:
            if error.kind is not Trouble.FULL:
                raise
            # A full store takes no writes but deletions, and without their page the resources are dead as well.
            await self._send([("DEL", *{word_at(resource)[0] for resource in resources})])
        for resource, number in resources.items():
            if self._owed.get(resource) == number:
                del self._owed[resource]

    def _told(self, resources: bytes) -> tuple[tuple[Any, ...], ...]:
        """The commands that tell the other pods: what they have in their own memory asks the store for no epoch."""
        return (
            ("XADD", INVALIDATED, "MAXLEN", "~", _TOLD, "*", "p", self._pod, "r", resources),
            ("EXPIRE", INVALIDATED, _WORDS_KEPT),
        )

    async def _establish(self, resource: bytes, words: Sequence[Any]) -> bytes:
        """Make what words are missing for `resource`; its epoch, empty when they still are."""
        page, _ = word_at(resource)
        base, _, world = words
        commands: list[tuple[Any, ...]] = []
        for name, word in ((page, base), (ALL, world)):
            if word and not is_word(word):
                commands.append(("DEL", name))  # not of our making
            if not is_word(word):
                commands.append(("SET", name, secrets.token_bytes(EPOCH_BYTES), "NX", "EX", _WORDS_KEPT))
        replies = await self._send([*commands, *word_reads(resource)])
        return combined_words(replies[-3:])

    async def _send(self, commands: Sequence[tuple[Any, ...]], *, atomic: bool = False) -> list[Any]:
        """The replies to `commands`, sent together. A reply may be the error that a key is of another type.

        Raises `TierError` for any other error.
        """
        try:
            async with self._redis.pipeline(transaction=atomic) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as error:
            raise self._told_as(error) from None
        for reply in replies:
            if isinstance(reply, Exception) and not _is_foreign(reply):
                raise self._told_as(reply) from None
        return replies

    def _told_as(self, error: Exception) -> TierError:
        if is_replica(error):
            self._pool.give_up()
        return translated(error)


def fleet_generation(reply: object) -> int | None:
    """The generation of a rule by its id, `<milliseconds>-<number>`; None for what is no such id."""
    if not isinstance(reply, bytes) or len(reply) > 32:
        return None
    milliseconds, _, number = reply.partition(b"-")
    if not (milliseconds.isdigit() and number.isdigit()) or len(milliseconds) > 13 or int(number) >> 20:
        return None
    return int(milliseconds) << 20 | int(number)


def _entry(key: bytes) -> str:
    return f"{ENTRIES}{key.hex()}"


def _chunk(digest: bytes) -> str:
    return f"{CHUNKS}{digest.hex()}"


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _is_foreign(reply: Exception) -> bool:
    return isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE")
