from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tier_helpers import key, response

from meshcache.engine.epochs import Epochs
from meshcache.engine.purges import labels_of
from meshcache.engine.records import StoredResponse, VariantIndex
from meshcache.tiers import envelope as module
from meshcache.tiers.envelope import BadEnvelope, Front, front_of, held_size, seal, unseal
from meshcache.tiers.signing import Keyring

KEYRING = Keyring([b"k" * 32], b"s" * 32)
EPOCH = b"epoch678"

_latin = st.text(st.characters(max_codepoint=255), max_size=12)
_pairs = st.lists(st.tuples(_latin, _latin), max_size=4).map(tuple)
_records = st.one_of(
    st.builds(
        StoredResponse,
        key=st.binary(max_size=40),
        selecting=st.lists(st.tuples(_latin, st.none() | _latin), max_size=3).map(tuple),
        status=st.integers(100, 599),
        fields=_pairs,
        request_time=st.floats(allow_nan=False, allow_infinity=False),
        response_time=st.floats(allow_nan=False, allow_infinity=False),
        initial_age=st.floats(0, 1e9),
        authorized=st.booleans(),
        body=st.binary(max_size=200),
    ),
    st.builds(
        VariantIndex,
        key=st.binary(max_size=40),
        field_sets=st.lists(st.lists(_latin, max_size=3).map(tuple), max_size=3).map(tuple),
    ),
)


def sealed(record: object = None, number: int = 1, epoch: bytes = EPOCH) -> bytes:
    return seal(
        response() if record is None else record,  # type: ignore[arg-type]
        storage_key=key(number),
        epoch=epoch,
        written_at=1234.5,
        keyring=KEYRING,
    )


@given(record=_records, epoch=st.binary(max_size=255), written_at=st.floats(0, 1e12))
def test_round_trip(record: StoredResponse | VariantIndex, epoch: bytes, written_at: float) -> None:
    value = seal(record, storage_key=key(7), epoch=epoch, written_at=written_at, keyring=KEYRING)
    opened = unseal(value, storage_key=key(7), keyring=KEYRING)
    assert (opened.record, opened.epoch, opened.written_at) == (record, epoch, written_at)
    assert type(opened.record) is type(record)


def test_fields_are_only_ever_added_at_the_end() -> None:
    """Any other change of form needs another `VERSION`: releases that share a store must not mistake entries."""
    assert module.VERSION == 2
    assert StoredResponse.__struct_fields__[:9] == (
        "key",
        "selecting",
        "status",
        "fields",
        "request_time",
        "response_time",
        "initial_age",
        "authorized",
        "body",
    )
    assert VariantIndex.__struct_fields__[:2] == ("key", "field_sets")


def test_what_was_written_before_a_field_was_added_is_read() -> None:
    record = response()
    shape = [getattr(record, name) for name in StoredResponse.__struct_fields__[:9]]
    older = msgspec.msgpack.encode(["r", *shape])
    assert msgspec.msgpack.decode(older, type=StoredResponse) == record


def test_the_front_tells_birth_and_labels_without_the_rest() -> None:
    record = response(b"b" * 5000, tags=("t", "u"), route="images", revision="r", subject=b"someone")
    epoch = Epochs(b"b" * 8, b"f" * 8, (1 << 62, 1 << 61)).sealed()
    value = sealed(record, epoch=epoch)
    front = front_of(value[:1000])
    assert isinstance(front, Front)
    assert (front.born, front.labels) == ((1 << 62, 1 << 61), labels_of(record))
    needed = front_of(value[:90])
    assert isinstance(needed, int)
    assert front_of(value[:needed]) == front_of(memoryview(value)) == front
    assert front_of(value[: needed - 1]) == needed
    assert front_of(sealed(VariantIndex(b"k", (("accept",),)), epoch=epoch)) == Front((1 << 62, 1 << 61), None)
    assert front_of(b"MC\x07" + value[3:]) is front_of(value[:20]) is front_of(b"") is None


def test_every_flipped_bit_of_every_byte_is_refused() -> None:
    value = sealed()
    for position in range(len(value)):
        for bit in range(8):
            bad = bytearray(value)
            bad[position] ^= 1 << bit
            with pytest.raises(BadEnvelope):
                unseal(bytes(bad), storage_key=key(1), keyring=KEYRING)


def test_every_truncation_and_extension_is_refused() -> None:
    value = sealed()
    for length in range(len(value)):
        with pytest.raises(BadEnvelope):
            unseal(value[:length], storage_key=key(1), keyring=KEYRING)
    with pytest.raises(BadEnvelope, match="mac"):
        unseal(value + b"\x00", storage_key=key(1), keyring=KEYRING)


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_is_raised(garbage: bytes) -> None:
    for value in (garbage, b"MC\x02" + garbage):
        with pytest.raises(BadEnvelope):
            unseal(value, storage_key=key(1), keyring=KEYRING)


def test_an_entry_moved_to_another_key_is_refused() -> None:
    with pytest.raises(BadEnvelope, match="mac"):
        unseal(sealed(number=1), storage_key=key(2), keyring=KEYRING)


def test_reasons() -> None:
    value = sealed()
    other = Keyring([b"o" * 32], b"s" * 32)
    for bad, keyring, reason in (
        (value[:10], KEYRING, "truncated"),
        (b"XX" + value[2:], KEYRING, "foreign"),
        (b"XX", KEYRING, "truncated"),
        (value[:2] + b"\x07" + value[3:], KEYRING, "version"),
        (b"MC\x07", KEYRING, "version"),
        (value, other, "unknown-key"),
        (value[:-1] + b"!", KEYRING, "mac"),
    ):
        with pytest.raises(BadEnvelope) as caught:
            unseal(bad, storage_key=key(1), keyring=keyring)
        assert caught.value.reason == reason
        assert caught.value.good_for_others == (reason in ("version", "unknown-key"))


def test_a_record_of_another_release_is_refused_as_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherEncoder:
        def encode(self, _: object) -> bytes:
            return b"\x93\xa1z\x01\x02"

    monkeypatch.setattr(module, "_encoder", OtherEncoder())
    with pytest.raises(BadEnvelope, match="payload"):
        unseal(sealed(), storage_key=key(1), keyring=KEYRING)


def test_an_old_key_still_opens() -> None:
    rotated = Keyring([b"k" * 32, b"n" * 32], b"s" * 32)
    assert unseal(sealed(), storage_key=key(1), keyring=rotated).record == response()


def test_an_epoch_that_does_not_fit_is_a_fault() -> None:
    with pytest.raises(ValueError, match="256"):
        sealed(epoch=bytes(256))


def test_sizes_count_what_is_held() -> None:
    assert held_size(response(bytes(1000))) > 1000 + len("content-type")
    assert held_size(VariantIndex(b"key", (("accept", "range"),))) == 3 + 6 + 5
