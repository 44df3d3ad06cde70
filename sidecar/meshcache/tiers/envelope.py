"""The form of a stored entry outside process memory: versioned, signed, bound to its storage key.

Layout (big endian): magic `MC`, format version (1 byte), key id (8), MAC (32), written_at (8, IEEE 754 Unix
seconds), length of the epoch (1), of the labels (4), epoch, labels (msgpack of `Labels`; nothing for a list of
variants), payload (msgpack of a `Record`). The labels stand in front so that whoever looks for what a purge concerns
need not read bodies.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

import msgspec

from meshcache.engine.epochs import born_of
from meshcache.engine.purges import Labels, labels_of
from meshcache.engine.records import Record, StoredResponse, VariantIndex
from meshcache.tiers.signing import KEY_ID_BYTES, MAC_BYTES

if TYPE_CHECKING:
    from meshcache.engine.purge_state import Born
    from meshcache.tiers.signing import Keyring

VERSION = 2
"""Of the layout and of what a `Record` holds: a release that changes either has another. Magic and version keep their
place in all of them."""
LARGE = 256 * 1024
"""Bytes from which sealing and unsealing take long enough (some 0.2 ms) to be kept off an event loop."""

_MAGIC = b"MC"
_HEAD = struct.Struct(f">2sB{KEY_ID_BYTES}s{MAC_BYTES}sdBI")
_SIGNED = struct.Struct(">Bd")
_LENGTHS = struct.Struct(">BI")
_MAX_EPOCH = 255
_MOST_LABELS = 1 << 20

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)
_labels_decoder = msgspec.msgpack.Decoder(Labels)

Reason = Literal["truncated", "foreign", "version", "unknown-key", "mac", "payload"]


class BadEnvelope(Exception):  # noqa: N818  it describes the value, as `KeyError` does not
    """The value is not an entry that this process can read and trust under this key."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason

    @property
    def good_for_others(self) -> bool:
        """Whether it may be a good entry of a newer release or of one with other keys, which shares the store.

        Nobody can tell from here. Such a value is passed over and left to whoever can read it; it ends by its expiry,
        by the bound of its tier, or when something is stored in its place. All else is of no use to anyone.
        """
        return self.reason in ("version", "unknown-key")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an envelope that verified holds."""

    record: Record
    epoch: bytes
    written_at: float
    """Unix seconds by the clock of the writer."""


def seal(record: Record, *, storage_key: bytes, epoch: bytes, written_at: float, keyring: Keyring) -> bytes:
    """The envelope of `record` for `storage_key`, signed by the newest key of `keyring`."""
    if len(epoch) > _MAX_EPOCH:
        raise ValueError(f"epoch has {len(epoch)} bytes, more than {_MAX_EPOCH}")
    payload = _encoder.encode(record)
    labels = _encoder.encode(labels_of(record)) if isinstance(record, StoredResponse) else b""
    mac = keyring.sign(_context(storage_key, written_at, epoch, labels), payload)
    head = _HEAD.pack(_MAGIC, VERSION, keyring.key_id, mac, written_at, len(epoch), len(labels))
    return b"".join((head, epoch, labels, payload))


def unseal(value: bytes | memoryview, *, storage_key: bytes, keyring: Keyring) -> Envelope:
    """Open what was read under `storage_key`. Raises `BadEnvelope` for anything that does not verify."""
    if len(value) <= len(_MAGIC):
        raise BadEnvelope("truncated")
    if value[: len(_MAGIC)] != _MAGIC:
        raise BadEnvelope("foreign")
    # Before anything else is looked at: the head of another version may be shorter.
    if value[len(_MAGIC)] != VERSION:
        raise BadEnvelope("version")
    if len(value) < _HEAD.size:
        raise BadEnvelope("truncated")
    _, _, key_id, mac, written_at, epoch_length, labels_length = _HEAD.unpack_from(value)
    labels_at = _HEAD.size + epoch_length
    start = labels_at + labels_length
    if len(value) <= start:
        raise BadEnvelope("truncated")
    view = memoryview(value)
    epoch = bytes(view[_HEAD.size : labels_at])
    try:
        context = _context(storage_key, written_at, epoch, view[labels_at:start])
        genuine = keyring.verify(key_id, context, view[start:], mac)
    except KeyError:
        raise BadEnvelope("unknown-key") from None
    if not genuine:
        raise BadEnvelope("mac")
    try:
        record = _decoder.decode(view[start:])
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Signed by one of us, and of this version, yet of another shape: whoever wrote it made a mistake.
        raise BadEnvelope("payload") from None
    if not math.isfinite(written_at):
        raise BadEnvelope("payload")
    return Envelope(record, epoch, written_at)


def held_size(record: Record) -> int:
    """Bytes of memory that a record is worth while it waits to be written: without what its chunks hold."""
    match record:
        case StoredResponse():
            fields = sum(map(len, chain.from_iterable(record.fields)))
            return len(record.body) + len(record.key) + fields + sum(map(len, record.chunks))
        case VariantIndex():
            names = sum(len(name) for names in record.field_sets for name in names)
            return len(record.key) + names + sum(map(len, record.tags))


@dataclass(frozen=True, slots=True)
class Front:
    """What stands in front of a record, unverified: enough to tell whether a purge concerns it."""

    born: Born
    labels: Labels | None
    """None for a list of variants."""


def front_of(start: bytes | memoryview) -> Front | int | None:
    """The front of the envelope that begins with `start`; how many bytes it takes when they are not all there.

    None for what is no envelope of this version.
    """
    if start[: len(_MAGIC)] != _MAGIC or len(start) < _HEAD.size or start[len(_MAGIC)] != VERSION:
        return None
    *_, epoch_length, labels_length = _HEAD.unpack_from(start)
    at = _HEAD.size + epoch_length
    if labels_length > _MOST_LABELS:
        return None
    if len(start) < at + labels_length:
        return int(at + labels_length)
    labels: Labels | None = None
    if labels_length:
        try:
            labels = _labels_decoder.decode(start[at : at + labels_length])
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
    return Front(born_of(bytes(start[_HEAD.size : at])), labels)


def private_chunks(value: bytes | memoryview) -> tuple[bytes, ...]:
    """The chunks that the envelope `value` shares with no other, since they are one person's; unverified."""
    front = front_of(value)
    if not isinstance(front, Front) or front.labels is None or not front.labels.subject:
        return ()
    *_, epoch_length, labels_length = _HEAD.unpack_from(value)
    try:
        record = _decoder.decode(memoryview(value)[_HEAD.size + epoch_length + labels_length :])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
    return record.chunks if isinstance(record, StoredResponse) else ()


def _context(storage_key: bytes, written_at: float, epoch: bytes, labels: bytes | memoryview) -> bytes:
    """All that is signed besides the payload; every part but the last two has a fixed length or one in front."""
    lengths = _LENGTHS.pack(len(epoch), len(labels))
    return b"".join((_SIGNED.pack(VERSION, written_at), lengths, epoch, labels, storage_key))
