"""The log of what filters drop: nobody who follows it misses anything, whatever he names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshcache.extproc.drop_log import KEPT, DropLog
from meshcache.wasm.feed import MOST_LABELS

steps = st.lists(st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=12)


@given(steps, st.data())
def test_who_follows_gets_all_that_came_since(before: list[list[int] | None], data: st.DataObject) -> None:
    log = DropLog(5)
    for labels in before:
        log.add(labels)
    mine = log.generation
    assert log.since(mine) == ((), True)
    after = data.draw(steps)
    for labels in after:
        log.add(labels)
    behind = log.since(mine)
    assert behind.known
    if None in after:
        assert behind.labels is None
    else:
        assert behind.labels is not None
        assert set(behind.labels) == {label for labels in after for label in labels or ()}
    assert log.since(log.generation) == ((), True)


@given(st.integers(0, (1 << 64) - 1))
def test_who_names_another_log_drops_everything(named: int) -> None:
    log = DropLog(5)
    log.add([1])
    if named != log.generation and named != log.generation - 1:
        assert log.since(named) == (None, False)
        assert log.step_of(named) == 0


def test_another_log_is_known_by_its_number() -> None:
    assert DropLog(6).since(DropLog(5).generation) == (None, False)


def test_what_is_no_longer_kept_is_everything() -> None:
    log = DropLog(5)
    first = log.generation
    for number in range(KEPT):
        log.add([number])
    labels = log.since(first).labels
    assert labels is not None
    assert len(labels) == KEPT
    log.add([1])
    assert log.since(first) == (None, True)


def test_many_labels_are_everything() -> None:
    log = DropLog(5)
    first = log.generation
    log.add(range(257))
    assert log.since(first) == (None, True)
    second = log.generation
    for number in range(MOST_LABELS // 256 + 1):
        log.add(range(256 * number, 256 * number + 256))
    assert log.since(second) == (None, True)
