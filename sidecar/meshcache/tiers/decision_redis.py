"""Decisions about experiments in the Redis or Valkey that holds the warm tier: one place for all pods.

Keys (beside those of `tiers/redis.py`), for each installation, `<id>` being a keyed digest that only those with its
secrets can tell; the braces keep them together in a cluster. `mc1:{x<id>}:lease` who leads, for as long as the lease
lasts; `mc1:{x<id>}:terms` how often that has changed; `mc1:{x<id>}:token` the token of the newest leader;
`mc1:{x<id>}:records` the records, by hashed name, each as `<version> <id of the key><MAC><JSON>`; `mc1:{x<id>}:changes`
a stream with a message for each change; `mc1:{x<id>}:id` a word that is made once, so that a store that has lost its
data is known.
"""

from __future__ import annotations

import asyncio
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from meshcache.tiers.base import TierError
from meshcache.tiers.decision_store import Stored, StoreError, decoded, encoded
from meshcache.tiers.signing import KEY_ID_BYTES, MAC_BYTES, KeyringError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from meshcache.experiment.state import Record
    from meshcache.tiers.signing import Keyring

_PARTS: Final = ("lease", "terms", "token", "records", "changes", "id")
_CONTEXT: Final = b"decision about an experiment\0"
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
_VERSION: Final = """\
local function version(value) return tonumber(string.match(value or '', '^(%d+) ') or '0') end
"""
_WRITE: Final = f"""\
{_VERSION}
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if version(redis.call('HGET', KEYS[2], ARGV[2])) ~= version(ARGV[3]) - 1 then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('XADD', KEYS[3], 'MAXLEN', ARGV[4], '*', 'n', ARGV[2])
return 1
"""
_OFFER: Final = f"""\
{_VERSION}
if version(redis.call('HGET', KEYS[1], ARGV[1])) >= version(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[3], '*', 'n', ARGV[1])
return 1
"""
_FORGET: Final = f"""\
{_VERSION}
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if version(redis.call('HGET', KEYS[2], ARGV[2])) ~= tonumber(ARGV[3]) then return 0 end
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[3], 'MAXLEN', ARGV[4], '*', 'n', ARGV[2])
return 1
"""


class DecisionRedis:
    """Implements `DecisionStore`. Belongs to one event loop."""

    def __init__(
        self,
        send: Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]],
        where: str,
        keyring: Callable[[], Keyring],
        *,
        patience: float = PATIENCE,
    ) -> None:
        """`send` is `RedisTier.send`; `where` names the store for people; `keyring` gives the installation's keys."""
        self.where = where
        self._send = send
        self._keyring = keyring
        self._patience = patience
        self._holder = secrets.token_hex(8)
        self._secrets: _Secrets | None = None
        self._mark: tuple[Any, ...] = ()
        self._stored = Stored({})

    async def lead(self, seconds: float) -> str | None:
        """See `DecisionStore`. One round trip."""
        name = self._known.names
        life = max(1, int(seconds * 1000))
        (reply,) = await self._ask(
            [("EVAL", _LEAD, 3, name["lease"], name["terms"], name["token"], self._holder, life)]
        )
        return reply.decode("ascii", "replace") if isinstance(reply, bytes) else None

    async def step_down(self) -> None:
        """See `DecisionStore`."""
        await self._ask([("EVAL", _STEP_DOWN, 1, self._known.names["lease"], self._holder)])

    async def read(self) -> Stored:
        """See `DecisionStore`. One round trip, a second one when something has changed."""
        known = self._known
        name = known.names
        _, incarnation, newest, count = await self._ask(
            [
                ("SET", name["id"], secrets.token_hex(8), "NX"),
                ("GET", name["id"]),
                ("XREVRANGE", name["changes"], "+", "-", "COUNT", 1),
                ("HLEN", name["records"]),
            ]
        )
        mark = (incarnation, _newest(newest), count)
        if mark != self._mark:
            # The mark was read first: what changes meanwhile shows at the next look.
            (records,) = await self._ask([("HGETALL", name["records"])])
            found = [known.opened(field, value) for field, value in _items(records)]
            word = incarnation.decode("ascii", "replace") if isinstance(incarnation, bytes) else ""
            self._stored = Stored({record.name: record for record in found if record is not None}, word)
            self._mark = mark
        return self._stored

    async def write(self, record: Record, token: str | None) -> bool:
        """See `DecisionStore`."""
        known = self._known
        keys = [known.names[part] for part in ("token", "records", "changes")]
        field, value = known.sealed(record)
        (done,) = await self._ask([("EVAL", _WRITE, 3, *keys, token or "", field, value, _TOLD)])
        return bool(done == 1)

    async def offer(self, records: Iterable[Record]) -> None:
        """See `DecisionStore`."""
        known = self._known
        keys = [known.names[part] for part in ("records", "changes")]
        commands = [("EVAL", _OFFER, 2, *keys, *known.sealed(record), _TOLD) for record in records]
        if commands:
            await self._ask(commands)

    async def forget(self, record: Record, token: str) -> bool:
        """See `DecisionStore`."""
        known = self._known
        keys = [known.names[part] for part in ("token", "records", "changes")]
        (done,) = await self._ask([("EVAL", _FORGET, 3, *keys, token, known.field(record), record.version, _TOLD)])
        return bool(done == 1)

    async def wait(self, seconds: float) -> None:
        """See `DecisionStore`."""
        newest = self._mark[1] if len(self._mark) > 1 and self._mark[1] else b"0-0"
        stream = self._known.names["changes"]
        command = ("XREAD", "COUNT", 1, "BLOCK", max(1, int(seconds * 1000)), "STREAMS", stream, newest)
        await self._ask([command], seconds)

    async def close(self) -> None:
        """See `DecisionStore`. The store's client is not this object's."""

    @property
    def _known(self) -> _Secrets:
        if self._secrets is None:
            try:
                self._secrets = _Secrets(self._keyring())
            except KeyringError as error:
                raise StoreError(f"the keys of this installation cannot be read: {error}") from error
        return self._secrets

    async def _ask(self, commands: Sequence[tuple[Any, ...]], more: float = 0.0) -> list[Any]:
        try:
            async with asyncio.timeout(self._patience + more):
                return await self._send(commands)
        except TierError as error:
            raise StoreError(f"{self.where}: {error}") from error
        except TimeoutError as error:
            raise StoreError(f"{self.where}: the store does not answer in time") from error
        except Exception as error:
            # The client takes apart what it expects, and raises whatever comes of something else.
            raise StoreError(f"{self.where}: the store answers something else: {type(error).__name__}") from error


class _Secrets:
    """What the secrets of the installation are for here: whoever has them not reads, and decides, nothing."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        # Installations of different secrets may share a store, and each has experiments of its own.
        self._key = keyring.assignment_secret[:64]
        own = blake2b(b"experiments", digest_size=8, key=self._key).hexdigest()
        self.names = {part: f"mc1:{{x{own}}}:{part}" for part in _PARTS}

    def field(self, record: Record) -> str:
        """The name under which a record stands."""
        return blake2b(record.name.encode(), digest_size=16, key=self._key).hexdigest()

    def sealed(self, record: Record) -> tuple[str, bytes]:
        """A record as it is stored, and the name under which it stands."""
        field, text = self.field(record), encoded(record)
        mac = self._keyring.sign(_CONTEXT + field.encode(), text)
        return field, b"%d %b%b%b" % (record.version, self._keyring.key_id, mac, text)

    def opened(self, field: bytes, value: bytes) -> Record | None:
        """The record in `value`; None for what is not ours, or what this release does not understand."""
        number, _, sealed = value.partition(b" ")
        key_id, rest = sealed[:KEY_ID_BYTES], sealed[KEY_ID_BYTES:]
        mac, text = rest[:MAC_BYTES], rest[MAC_BYTES:]
        try:
            if not self._keyring.verify(key_id, _CONTEXT + field, text, mac):
                return None
        except KeyError:
            return None
        record = decoded(text)
        return record if record is not None and number == b"%d" % record.version else None


def _newest(reply: object) -> bytes | None:
    """The id of the newest message, by what XREVRANGE answers; None for none."""
    match reply:
        case [[bytes(message), _], *_]:
            return message
        case _:
            return None


def _items(reply: object) -> Iterable[tuple[bytes, bytes]]:
    for field, value in reply.items() if isinstance(reply, dict) else ():
        if isinstance(field, bytes) and isinstance(value, bytes):
            yield field, value
