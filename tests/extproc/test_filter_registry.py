from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from meshcache.extproc import filter_living
from meshcache.extproc import filter_registry as module
from meshcache.extproc.filter_registry import FilterRegistry

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_that_is_behind_is_waited_for_until_its_lease_is_over(clock: Clock) -> None:
    registry = FilterRegistry(10.0, clock)
    for name, step in (("a" * 16, 3), ("b" * 16, 2)):
        worker = registry.seen(name)
        assert worker is not None
        worker.step = step
    assert registry.standing(3) == (["envoy-" + "a" * 16], ["envoy-" + "b" * 16])
    assert registry.standing(None) == ([], ["envoy-" + "a" * 16, "envoy-" + "b" * 16])
    clock.now += 9.9
    registry.seen("a" * 16)
    clock.now += 0.2
    assert registry.standing(3) == (["envoy-" + "a" * 16], [])
    assert [one.living for one in registry.status(lambda _plan: 0)] == [True, False]
    clock.now += 60.0
    assert registry.status(lambda _plan: 0) == ()
    assert list(registry.living()) == []


def test_garbage_does_not_fill_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    registry = FilterRegistry(10.0, clock)
    for number in range(3):
        assert registry.seen(f"{number:016x}") is not None
    assert registry.seen("f" * 16) is None
    assert registry.seen(f"{1:016x}") is not None
    # Those whose leases are over make room.
    clock.now += 11.0
    assert registry.seen("f" * 16) is not None
    assert len(registry) == 1


def test_those_of_before_a_restart_are_waited_for(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "filters" / "living"
    assert filter_living.read(path) == {}
    before = FilterRegistry(10.0, clock)
    before.seen("a" * 16)
    clock.now += 5.0
    before.seen("b" * 16)
    filter_living.write(path, before.ago, now=100.0)
    clock.now = 3.0
    after = FilterRegistry(10.0, clock)
    after.restore(filter_living.read(path, now=104.0))
    # They may have asked two seconds later than was written.
    assert after.standing(1) == ([], ["envoy-" + "a" * 16, "envoy-" + "b" * 16])
    clock.now += 3.1
    assert after.standing(1) == ([], ["envoy-" + "b" * 16])
    clock.now += 5.0
    assert after.standing(1) == ([], [])
    # A clock that was set back, and a file that is none.
    assert filter_living.read(path, now=0.0) == {"a" * 16: 0.0, "b" * 16: 0.0}
    path.write_bytes(b"\xff")
    assert filter_living.read(path) == {}
