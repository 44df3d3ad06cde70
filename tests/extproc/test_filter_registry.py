from __future__ import annotations

import pytest

from meshcache.extproc import filter_registry as module
from meshcache.extproc.filter_registry import FilterRegistry


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
    assert registry.left() == pytest.approx(0.1)
    clock.now += 0.2
    assert registry.standing(3) == (["envoy-" + "a" * 16], [])
    assert [one.living for one in registry.status(lambda _plan: 0)] == [True, False]
    clock.now += 60.0
    assert registry.status(lambda _plan: 0) == ()
    assert registry.left() == 0.0


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
