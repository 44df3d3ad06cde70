"""The soak, as short as it can still tell something, and what it calls a failure."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from soak.misbehaving import Settings, Soak
from soak.mix import End, Mix
from soak.resident import Resident, resident
from soak.started import Started

SETTINGS = Settings(requests=100, seconds=1, clients=1, warmup=0.5, growth=0.05)
MIB = 1 << 20


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_grows_while_clients_and_origin_misbehave() -> None:
    soak = Started(REQUESTS="20000", SECONDS="200", GROWTH="0.2")
    output, errors = soak.process.communicate(timeout=280)
    assert soak.process.returncode == 0, errors
    found = json.loads(output.splitlines()[-1])
    assert found["requests"] == 20_000
    answers = found["answers"]
    for kind in ("200", "204", "206", "304", "left before an answer", "left half-way"):
        assert answers[kind] > 0, answers
    assert any(kind.startswith("cut by the origin") for kind in answers), answers
    assert set(found["memory"]) == {"supervisor", "worker-0", "worker-1", "envoy"}
    assert soak.running() == set()


@pytest.mark.e2e
@pytest.mark.slow
def test_an_interrupted_soak_says_how_far_it_came_and_leaves_nothing_running() -> None:
    soak = Started(REQUESTS="1000000")
    soak.wait_for("Asking")
    time.sleep(2)
    assert "envoy" in soak.running()
    soak.process.send_signal(signal.SIGINT)
    output, errors = soak.process.communicate(timeout=60)
    assert soak.process.returncode == 130, errors
    found = json.loads(output.splitlines()[-1])
    assert found["interrupted"]
    assert 0 < found["requests"] < 1_000_000
    assert soak.running() == set()


def looked_at(first: float, last: float) -> Soak:
    soak = Soak(SETTINGS, 0, {"worker-0": 1}, asked=100)
    soak.first = {"worker-0": Resident(int(2 * first * MIB), int(first * MIB))}
    soak.looks = {"worker-0": [Resident(int(2 * last * MIB), int(last * MIB))] * 7}
    return soak


def test_growth_is_a_problem() -> None:
    assert looked_at(100, 104).summary(1.0)["problems"] == []
    assert looked_at(100, 106).summary(1.0)["problems"] == ["worker-0 grew by 6.0%"]


def test_envoy_may_grow() -> None:
    soak = Soak(SETTINGS, 0, {"envoy": 1}, asked=100, first={"envoy": Resident(MIB, MIB)})
    soak.looks = {"envoy": [Resident(2 * MIB, 2 * MIB)]}
    assert soak.summary(1.0)["problems"] == []


def test_wrong_answers_and_too_few_requests_are_problems() -> None:
    soak = looked_at(100, 100)
    soak.asked = 99
    soak.seen["wrong: status 500"] = 2
    soak.seen["wrong, for example: GET / status 500"] = 1
    assert soak.summary(1.0)["problems"] == ["2 wrong answers", "only 99 of 100 requests were made"]


def test_an_end_before_the_warm_up_proves_nothing() -> None:
    soak = looked_at(100, 100)
    soak.first = {}
    assert soak.summary(1.0)["problems"] == ["the end came before the warm-up was over"]


@pytest.mark.parametrize("text", ["0", "-1", "many", "inf", "nan"])
def test_settings_must_be_positive_numbers(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    from bench.processes import MeasurementError

    monkeypatch.setenv("REQUESTS", text)
    with pytest.raises(MeasurementError, match="REQUESTS"):
        Settings.from_environment()


def test_the_mix_has_everything_in_it() -> None:
    mix = Mix(seed=1)
    asks = [mix.next() for _ in range(5000)]
    assert {ask.end for ask in asks} == set(End)
    assert {ask.method for ask in asks} == {"GET", "HEAD", "POST"}
    assert len({ask.path for ask in asks if ask.path.startswith("/miss/")}) > 500


def test_the_kernel_tells_what_a_process_has() -> None:
    found = resident(os.getpid())
    assert 0 < found.own <= found.total
