"""What the supervisor and a worker say to each other: length-prefixed msgpack over a socket pair.

Each message is four bytes of length (big endian) and one tagged struct. A peer that sends anything else is
broken: `ControlError` is raised, and the supervisor starts that worker again.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from meshcache.experiment.overlay import Adoption, Overlay
from meshcache.extproc.options import Grpc
from meshcache.observe.metrics import Snapshot

if TYPE_CHECKING:
    import socket

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The longest message that is read. Policy sets are a few KiB as a rule and may be several MiB."""

_LENGTH: Final = struct.Struct("!I")


class ControlError(Exception):
    """The other side sent what is not a message, or went away in the middle of one."""


class WorkerOptions(msgspec.Struct, frozen=True):
    """What one worker needs to know besides the policies. The same for all workers but `index` and `socket_path`."""

    index: int
    """0 for the first worker."""
    workers: int
    """How many workers share this pod's budgets."""
    socket_path: str
    """The unix socket on which this worker answers Envoy."""
    data_dir: str
    """Where the LMDB file, the board, the keys and the cold folder are kept."""
    warm_url: str = ""
    """`redis://` or `rediss://`; empty: the LMDB file in `data_dir`."""
    cold_url: str = ""
    """Object store; empty: a folder in `data_dir`."""
    cold_max_bytes: int = 0
    """Bytes that the cold folder may take; 0: `budgets.DEFAULT_COLD_BYTES`."""
    hot_bytes: int = 0
    """Bytes of process memory for the hot tiers of all workers together; 0: `budgets.DEFAULT_HOT_BYTES`."""
    keys_dir: str = ""
    """Where signing keys and the secret for assignment lie; empty: `keys` in `data_dir`, made at first start."""
    refresh_url: str = ""
    """Where background refreshes are sent: `unix:<path>` or `http://host:port`; empty: nowhere, none are made."""
    refresh_clusters: tuple[str, ...] = ()
    """The Envoy clusters that refreshes may be sent to by name."""
    shows_all: tuple[str, ...] = ()
    """Address ranges whose clients see all of `cache-status` where the policies name nobody."""
    revision: str = ""
    """The application's revision when the policies name no other source."""
    pod_labels_path: str = "/etc/podinfo/labels"
    """The pod's labels as mounted by the downward API."""
    lookup_timeout: float = 0.2
    """Seconds that Envoy waits for a reply (`message_timeout`): a look-up is given up shortly before."""
    grpc: Grpc = Grpc.NATIVE
    drain_timeout: float = 10.0
    """Seconds that requests in flight may take once the worker has been told to stop."""
    log_level: str = "info"
    log_format: str = "json"
    log_requests: bool = False
    """Whether each finished request is a line of the log."""


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """To a worker, first and once."""

    options: WorkerOptions


class Policies(msgspec.Struct, tag="policies", frozen=True):
    """To a worker: the policy documents to work by from now on (name and text of each file)."""

    generation: int
    digest: str
    files: tuple[tuple[str, str], ...]


class Overlays(msgspec.Struct, tag="overlays", frozen=True):
    """To a worker: what has been decided about experiments, in the place of all that it was told before."""

    version: int
    """Grows with each message; 0 before the first."""
    overlays: tuple[Overlay, ...]
    adoptions: tuple[Adoption, ...]
    generation: int = 0
    """Of the newest policy set when it was decided; that set may still be on its way."""


class FilterPlan(msgspec.Struct, frozen=True):
    """A plan by which filters in Envoy find keys, and what has to be in force to answer for it."""

    id: bytes
    generation: int
    """Of the policy set that it was made of."""
    version: int
    """Of the overlays in it."""


class FilterPlans(msgspec.Struct, tag="filter-plans", frozen=True):
    """To a worker: these plans are in use, in the place of all that it was told before."""

    secret: bytes
    """Proves what is asked under them."""
    plans: tuple[FilterPlan, ...]


class Drain(msgspec.Struct, tag="drain", frozen=True):
    """To a worker: take no new work, finish what is in flight within `timeout` seconds, then exit."""

    timeout: float


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """To a worker: answer with the same number."""

    number: int


class Purged(msgspec.Struct, tag="purged", frozen=True):
    """To a worker: there are new purge rules in the pod's log."""

    generation: int


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """From a worker: it listens and has a policy set."""

    pid: int


class Installed(msgspec.Struct, tag="installed", frozen=True):
    """From a worker: that policy set is in force."""

    generation: int


class OverlaysInstalled(msgspec.Struct, tag="overlays-installed", frozen=True):
    """From a worker: every request that begins from now on goes by them."""

    version: int


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """From a worker: it could not take that policy set and works on by the one before."""

    generation: int
    errors: tuple[str, ...]


class MetricsReport(msgspec.Struct, tag="metrics", frozen=True):
    """From a worker, about once a second and at its end: its counts since it began."""

    snapshot: Snapshot


class Pong(msgspec.Struct, tag="pong", frozen=True):
    """From a worker: the answer to `Ping`."""

    number: int


class Applied(msgspec.Struct, tag="applied", frozen=True):
    """From a worker: the purge rules up to that generation are in effect."""

    generation: int


class Counted(msgspec.Struct, tag="counted", frozen=True):
    """From a worker: it has looked through its memory for what the purge rules of these generations concern."""

    first: int
    last: int
    keys: tuple[bytes, ...]
    """Of the entries that it has found."""


class Invalid(msgspec.Struct, tag="invalid", frozen=True):
    """From a worker: requests have made these resource ids invalid."""

    resources: tuple[bytes, ...]
    everything: bool = False
    """They were too many to be told one by one."""


class Drained(msgspec.Struct, tag="drained", frozen=True):
    """From a worker: nothing is in flight any more; it exits now."""


ToWorker = Configure | Policies | Overlays | FilterPlans | Drain | Ping | Purged
FromWorker = (
    Ready | Installed | OverlaysInstalled | Refused | MetricsReport | Pong | Applied | Counted | Invalid | Drained
)

TO_WORKER: Final[msgspec.msgpack.Decoder[ToWorker]] = msgspec.msgpack.Decoder(ToWorker)
FROM_WORKER: Final[msgspec.msgpack.Decoder[FromWorker]] = msgspec.msgpack.Decoder(FromWorker)

Incoming = TypeVar("Incoming")
Outgoing = TypeVar("Outgoing")


class Channel(Generic[Incoming, Outgoing]):
    """One end of the control channel."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: msgspec.msgpack.Decoder[Incoming],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = decoder
        self._encoder = msgspec.msgpack.Encoder()

    @classmethod
    async def open(cls, sock: socket.socket, decoder: msgspec.msgpack.Decoder[Incoming]) -> Channel[Incoming, Outgoing]:
        """Take over one end of a stream socket pair."""
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, decoder)

    async def send(self, message: Outgoing) -> None:
        """Send one message. Raises `ControlError` when the other side is gone or the message is too long."""
        body = self._encoder.encode(message)
        if len(body) > MAX_MESSAGE_BYTES:
            raise ControlError(f"a message of {len(body)} bytes is longer than {MAX_MESSAGE_BYTES}")
        try:
            self._writer.write(_LENGTH.pack(len(body)) + body)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            # uvloop raises RuntimeError for a write to a transport that is closed.
            raise ControlError(f"the control channel is closed: {error}") from error

    def post(self, message: Outgoing) -> None:
        """Send one short message without waiting for room: to a peer that has stopped reading, this never blocks."""
        if not self._writer.is_closing():
            body = self._encoder.encode(message)
            self._writer.write(_LENGTH.pack(len(body)) + body)

    async def receive(self) -> Incoming | None:
        """The next message, or None when the other side has closed between two messages."""
        try:
            head = await self._reader.readexactly(_LENGTH.size)
            (length,) = _LENGTH.unpack(head)
            if length > MAX_MESSAGE_BYTES:
                raise ControlError(f"a message of {length} bytes is announced; the limit is {MAX_MESSAGE_BYTES}")
            body = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            if not error.partial and error.expected == _LENGTH.size:
                return None
            raise ControlError("the control channel ended in the middle of a message") from error
        except OSError:
            return None
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ControlError(f"not a control message: {error}") from error

    def close(self) -> None:
        """Close this end at once. Safe to call twice."""
        self._writer.close()
