"""How many large answers may be on their way."""

from __future__ import annotations

from meshcache.engine.flights import RATE, Flights

MIB = 1 << 20


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bytes_are_bounded_until_a_client_may_have_received_them() -> None:
    clock = Clock()
    flights = Flights(clock, limit=100 * MIB)
    assert flights.take(64 * MIB)
    flights.landed()
    assert not flights.room(64 * MIB), "Envoy has it, the client perhaps not yet"
    assert not flights.take(64 * MIB)
    assert flights.take(32 * MIB)
    flights.landed()
    clock.now += 32 * MIB / RATE
    assert flights.take(32 * MIB)
    assert not flights.room(32 * MIB)
    clock.now += 64 * MIB / RATE
    assert flights.room(100 * MIB)


def test_one_answer_may_always_begin() -> None:
    flights = Flights(Clock(), limit=MIB)
    assert flights.take(64 * MIB)
    assert not flights.room(1)


def test_answers_that_are_being_sent_are_bounded() -> None:
    clock = Clock()
    flights = Flights(clock, most_sending=2)
    assert flights.take(1)
    assert flights.take(1)
    clock.now += 3600.0
    assert not flights.take(1), "however long they take"
    flights.landed()
    assert flights.take(1)
