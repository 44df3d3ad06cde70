"""No history takes the engine to an answer that the model does not permit, or away from one that it demands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings

from meshcache.engine import exchange, judge, lookup
from meshcache.engine.phases import request as request_phase
from meshcache.engine.purges import ALIVE
from meshcache.engine.storing import fill, keeper, rules
from meshcache.rfc import age, stale
from meshcache.tiers.purges import Purges
from model.machine import Histories
from model.running import run

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = settings().max_examples
LOOKED_FOR = 2000
"""Histories in which a fault has to be found: far fewer are enough, but which are tried depends on what is imported."""


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_the_engine_does_what_the_model_permits_and_demands() -> None:
    run(2 * EXAMPLES, Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


def _spoilt(function: Any, spoil: Callable[[Any], Any]) -> Any:
    return lambda *arguments, **named: spoil(function(*arguments, **named))


FAULTS: dict[str, tuple[object, str, Callable[[Any], Any]]] = {
    "it forgets how long a response was on its way": (age, "corrected_initial_age", lambda _: 0.0),
    "it serves anything stale": (stale, "stale_while_revalidate_window", lambda _: 60.0),
    "it gives any stale answer for an error": (stale, "stale_if_error_window", lambda _: 60.0),
    "it stores everything": (rules, "no_store_reason", lambda _: None),
    "it never finds what it has stored": (lookup.Lookup, "_is_it", lambda _: False),
    "it takes every variant for the right one": (fill, "selecting_values", lambda _: ()),
    "it validates what is fresh": (request_phase, "use", lambda _: judge.Use.VALIDATE),
    "it does not heed unsafe requests": (keeper, "invalidates", lambda _: False),
    "it keeps cookies": (fill, "storable_fields", lambda fields: (*fields, ("set-cookie", "of=1"))),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(FAULTS))
def test_the_model_notices_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, spoil = FAULTS[fault]
    monkeypatch.setattr(module, name, _spoilt(getattr(module, name), spoil))
    with pytest.raises(AssertionError):
        run(LOOKED_FOR, Phase.generate, random=False)


@pytest.mark.slow
def test_the_model_notices_that_a_body_cut_off_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange.Exchange, "close", exchange.Exchange.on_end)
    with pytest.raises(AssertionError):
        run(LOOKED_FOR, Phase.generate, random=False)


@pytest.mark.slow
def test_the_model_notices_that_a_purge_is_not_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Purges, "verdict", lambda *_, **__: ALIVE)
    with pytest.raises(AssertionError):
        run(LOOKED_FOR, Phase.generate, random=False)


@pytest.mark.slow
def test_the_model_notices_that_a_304_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper.Keeper, "freshen", lambda *arguments: (arguments[2], None))
    with pytest.raises(AssertionError):
        run(LOOKED_FOR, Phase.generate, random=False)


@pytest.mark.slow
def test_the_histories_come_to_everything() -> None:
    Histories.tally.clear()
    run(250, Phase.generate, random=False)
    for kind in ("requests", "due", "fresh", "stale", "validated", "stand-in", "background"):
        assert Histories.tally[kind] > 0, Histories.tally
