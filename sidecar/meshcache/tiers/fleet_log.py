"""The log of purge rules that pods share, in the Redis or Valkey that holds the warm tier.

Keys (beside the entries of `tiers/redis.py`): `mc1:p:log` a stream with a rule in each message, whose ids are the
generations of the rules; `mc1:p:g` the id of the newest, read with every entry, so that a worker that has not applied
it uses none; `mc1:p:floor` the id up to which old rules have been dropped; `mc1:p:pods` who has to apply rules, and how
far each has come.

Ids are times of the store's clock and only grow, over a flush as well. A store that comes back with older data than it
had lacks rules: those who know them publish them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from meshcache.engine.purges import Rule
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.redis import PURGES, fleet_generation

_PREFIX: Final = "mc1:p:"
_LOG: Final = f"{_PREFIX}log"
_FLOOR: Final = f"{_PREFIX}floor"
_PODS: Final = f"{_PREFIX}pods"
_REPAIR: Final = f"{_PREFIX}repair"

RETENTION: Final = 30 * 86400.0
"""Seconds for which a rule is kept: nothing is kept longer in any tier."""
MOST_RULES: Final = 1 << 16
"""Rules that are kept at most; beyond, the oldest are dropped, and what was stored before them is dead."""
_FAREWELL: Final = 86400.0
_AT_ONCE: Final = 1000
_LONGEST_RULE: Final = 64 << 10

_PUBLISH: Final = """\
local id
for i = 1, #ARGV do id = redis.call('XADD', KEYS[1], '*', 'r', ARGV[i]) end
redis.call('SET', KEYS[2], id)
return id
"""
# Of what is dropped the newest id is kept: who has not read as far knows that it has missed something.
_TRIM: Final = """\
local oldest = ARGV[1]
local most = tonumber(ARGV[2])
local length = redis.call('XLEN', KEYS[1])
if length > most then
  local surplus = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', math.min(length - most + 1, 1000))
  oldest = surplus[#surplus][1]
end
local gone = redis.call('XREVRANGE', KEYS[1], '(' .. oldest, '-', 'COUNT', 1)
if #gone == 0 then return 0 end
redis.call('SET', KEYS[2], gone[1][1])
return redis.call('XTRIM', KEYS[1], 'MINID', oldest)
"""

_encoder = msgspec.msgpack.Encoder()


class PodState(msgspec.Struct, frozen=True, array_like=True):
    """What a pod says of itself to the others."""

    name: str
    applied: int
    """Generation of the fleet's log that all of its workers have applied."""
    waiting: tuple[str, ...]
    """Names of the workers that have not applied the newest."""
    keeps: float
    """Seconds for which it may go on to answer from what it holds when it is cut off."""
    seen: float = 0.0
    """Unix seconds of the store's clock at which it said so."""
    left: bool = False
    """It has ended, and answers nothing any more."""


_rule_decoder = msgspec.msgpack.Decoder(Rule)
_pod_decoder = msgspec.msgpack.Decoder(PodState)


class Standing(msgspec.Struct, frozen=True):
    """How the store's log stands."""

    newest: int | None
    """Generation of the newest rule; None when the log is not there, or was lost."""
    floor: int
    """Generation up to which rules have been dropped."""
    has: bool
    """Whether the rule that was asked about is there."""


class FleetLog:
    """Reads and writes the log. All calls raise `TierError`; they are for the supervisor, not for a request's path."""

    def __init__(self, send: Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]], pod: str) -> None:
        """`send` is `RedisTier.send`; `pod` is this pod's id among all."""
        self._send = send
        self._pod = pod

    async def publish(self, rules: Sequence[Rule]) -> list[int]:
        """Append `rules`, in this order; their generations."""
        generations: list[int] = []
        for rule in rules:
            # One by one, so that each has an id that is known; purges are few.
            (reply,) = await self._send([("EVAL", _PUBLISH, 2, _LOG, PURGES, _encoder.encode(rule))])
            generation = fleet_generation(reply)
            if generation is None:
                raise TierError("the store answered something else than an id", Trouble.PROTOCOL)
            generations.append(generation)
        return generations

    async def read(self, after: int, patience: float) -> list[tuple[int, Rule | None]]:
        """The rules after the generation `after`, oldest first; waits up to `patience` seconds for the first.

        None stands for a message that this release does not understand.
        """
        command = ("XREAD", "COUNT", _AT_ONCE, "BLOCK", max(1, int(patience * 1000)), "STREAMS", _LOG, _id(after))
        (reply,) = await self._send([command])
        return _messages(reply[0][1]) if isinstance(reply, list) and reply else []

    async def everything(self) -> list[tuple[int, Rule | None]]:
        """All rules that are kept."""
        (reply,) = await self._send([("XRANGE", _LOG, "-", "+")])
        return _messages(reply)

    async def standing(self, generation: int) -> Standing:
        """How the log stands, and whether the rule `generation` is in it."""
        asked = _id(generation)
        newest, floor, found = await self._send(
            [("GET", PURGES), ("GET", _FLOOR), ("XRANGE", _LOG, asked, asked, "COUNT", 1)]
        )
        return Standing(
            newest=fleet_generation(newest),
            floor=fleet_generation(floor) or 0,
            has=isinstance(found, list) and bool(found),
        )

    async def name_newest(self, generation: int) -> None:
        """Say again which rule is the newest, where that was lost."""
        await self._send([("SET", PURGES, _id(generation), "NX")])

    async def trim(self) -> None:
        """Drop rules that are older than `RETENTION`, and some of those that are too many."""
        oldest = f"{int((await self._time() - RETENTION) * 1000)}-0"
        await self._send([("EVAL", _TRIM, 2, _LOG, _FLOOR, oldest, MOST_RULES)])

    async def may_repair(self, seconds: float) -> bool:
        """Whether it is for this pod to publish again what the store has lost, for the next `seconds`."""
        _, holder = await self._send([("SET", _REPAIR, self._pod, "NX", "PX", int(seconds * 1000)), ("GET", _REPAIR)])
        return isinstance(holder, bytes) and holder == self._pod.encode()

    async def announce(self, state: PodState) -> None:
        """Say that this pod is there, and how far it has come."""
        now = await self._time()
        await self._send([("HSET", _PODS, self._pod, _encoder.encode(msgspec.structs.replace(state, seen=now)))])

    async def leave(self, name: str) -> None:
        """This pod ends. That is kept for a while: a pod that is merely not there may have been lost by the store."""
        await self.announce(PodState(name, 0, (), _FAREWELL, left=True))

    async def pods(self) -> dict[str, tuple[PodState, float]]:
        """The pods by id, each with the seconds since it was last heard of; those that can hold nothing any more go.

        Those that have left are among them.
        """
        (seconds, micros), reply = await self._send([("TIME",), ("HGETALL", _PODS)])
        now = int(seconds) + int(micros) / 1e6
        found: dict[str, tuple[PodState, float]] = {}
        gone: list[bytes] = []
        for pod, value in reply.items() if isinstance(reply, dict) else ():
            try:
                state = _pod_decoder.decode(value)
            except (msgspec.DecodeError, ValueError):
                continue
            silent = max(0.0, now - state.seen)
            if silent > state.keeps:
                gone.append(pod)
            else:
                found[pod.decode("utf-8", "replace")] = (state, silent)
        if gone:
            await self._send([("HDEL", _PODS, *gone)])
        return found

    async def _time(self) -> float:
        ((seconds, micros),) = await self._send([("TIME",)])
        return int(seconds) + int(micros) / 1e6


def _id(generation: int) -> str:
    return f"{generation >> 20}-{generation & 0xFFFFF}"


def _messages(reply: Any) -> list[tuple[int, Rule | None]]:
    found: list[tuple[int, Rule | None]] = []
    for message in reply if isinstance(reply, list) else ():
        generation = fleet_generation(message[0])
        fields = message[1]
        if generation is None:
            raise TierError("the log of purges has an id that is none", Trouble.PROTOCOL)
        found.append((generation, _rule(fields)))
    return found


def _rule(fields: Any) -> Rule | None:
    # The client library makes a dictionary of the fields of a message.
    value = fields.get(b"r") if isinstance(fields, dict) else None
    if not isinstance(value, bytes) or len(value) > _LONGEST_RULE:
        return None
    try:
        return _rule_decoder.decode(value)
    except (msgspec.DecodeError, ValueError):
        return None
