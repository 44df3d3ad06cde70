"""Errors that were survived: counted each time, logged once in a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog
from structlog.testing import LogCapture

from meshcache.extproc.faults import QUIET_SECONDS, FaultLog
from meshcache.observe.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable


class Faults:
    """A `FaultLog` under a clock, with what it counted and logged."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._metrics = Metrics()
        self._capture = LogCapture()
        self.log = FaultLog(self._metrics, structlog.wrap_logger(None, processors=[self._capture]))

    def monotonic(self) -> float:
        return self.now

    def report(self, stage: str, raiser: Callable[[], None]) -> None:
        try:
            raiser()
        except Exception as error:
            self.log.report(stage, error)

    @property
    def lines(self) -> list[tuple[str, str]]:
        return [(entry["stage"], entry["error"]) for entry in self._capture.entries]

    def counted(self, stage: str) -> float:
        return self._metrics.snapshot().counters["stream_errors_total"].get((stage,), 0)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    made = Faults()
    monkeypatch.setattr("meshcache.extproc.faults.time.monotonic", made.monotonic)
    return made


def one() -> None:
    raise ValueError("one")


def other() -> None:
    raise ValueError("other")


def test_one_line_for_many_errors_of_a_kind(faults: Faults) -> None:
    for _ in range(5):
        faults.report("request", one)
    assert faults.lines == [("request", "ValueError('one')")]
    assert faults.counted("request") == 5


def test_another_place_or_stage_has_a_line_of_its_own(faults: Faults) -> None:
    faults.report("request", one)
    faults.report("request", other)
    faults.report("response_body", one)
    assert len(faults.lines) == 3
    assert (faults.counted("request"), faults.counted("response_body")) == (2, 1)


def test_after_a_while_there_is_a_line_again(faults: Faults) -> None:
    faults.report("request", one)
    faults.now += QUIET_SECONDS - 0.1
    faults.report("request", one)
    assert len(faults.lines) == 1
    faults.now += 0.1
    faults.report("request", one)
    assert len(faults.lines) == 2


def test_an_error_that_was_never_raised(faults: Faults) -> None:
    faults.log.report("background", RuntimeError("no traceback"))
    assert faults.lines == [("background", "RuntimeError('no traceback')")]


def test_what_is_remembered_is_bounded(faults: Faults) -> None:
    for number in range(1000):
        kind = type(f"Kind{number}", (Exception,), {})
        faults.log.report("request", kind())
    assert len(faults.log._quiet_until) <= 256
    assert len(faults.lines) == 1000
