"""How a body is cut, and what its chunks are called."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.engine.chunks import digest, owner_of, pieces
from meshcache.engine.records import StoredResponse


def stored(body: bytes, step: int, **changes: Any) -> StoredResponse:
    cut = tuple(body[at : at + step] for at in range(0, len(body), step))
    # The chunks themselves in place of their digests: what `pieces` names can be put together.
    values: dict[str, Any] = {"chunks": cut, "size": len(body), "chunk_bytes": step} | changes
    return StoredResponse(b"key", (), 200, (), 0.0, 0.0, 0.0, False, b"", **values)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 40), st.data())
def test_any_part_is_made_of_the_pieces_that_are_named(body: bytes, step: int, data: st.DataObject) -> None:
    record = stored(body, step)
    offset = data.draw(st.integers(0, len(body)))
    length = data.draw(st.integers(0, len(body) - offset))
    found = list(pieces(record, offset, length))
    assert b"".join(piece.digest[piece.start : piece.stop] for piece in found) == body[offset : offset + length]
    assert all(piece.start < piece.stop <= step for piece in found)
    assert len(found) <= length // step + 2


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 11), (10, 1), (5, -1), (11, 0)])
def test_bytes_that_are_not_there(offset: int, length: int) -> None:
    with pytest.raises(ValueError, match="of a body of 10"):
        list(pieces(stored(b"0123456789", 4), offset, length))


def test_names_of_chunks() -> None:
    assert digest(b"a") == digest(b"a")
    assert len({digest(b"a"), digest(b"b"), digest(b"a", b"o" * 32), digest(b"a", b"p" * 32)}) == 4
    assert len(digest(b"")) == 32


def test_whose_chunks_they_are() -> None:
    assert owner_of(stored(b"a", 1)) == b""
    his = stored(b"a", 1, subject=b"s" * 32)
    assert len(owner_of(his)) == 32
    assert owner_of(his) == owner_of(stored(b"b", 1, subject=b"s" * 32)), "of one person and key: kept by a validation"
    assert owner_of(his) != owner_of(stored(b"a", 1, subject=b"t" * 32))
    assert owner_of(stored(b"a", 1, subject=b"s" * 100)), "of any length"


def test_an_older_record_has_no_chunks() -> None:
    record = StoredResponse(b"key", (), 200, (), 0.0, 0.0, 0.0, False, b"body")
    assert (record.chunks, record.length) == ((), 4)
    assert stored(b"0123456789", 4).length == 10
