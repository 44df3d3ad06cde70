"""Who asks in a replay: the user of the trace, as the policies look for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worlds import asked, replayed

from meshcache.decisions import Decision
from meshcache.simulate.callers import Callers
from policy_texts import compiled, experiment, policies

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY = "identity: {subject: {jwtClaim: sub}, tenant: {jwtClaim: org}}"


def test_a_user_is_sent_where_units_are_looked_for() -> None:
    units = experiment().replace("[{header: x-user-id}]", "[{header: x-user-id}, {cookie: sid}]")
    callers = Callers.of_policies(compiled(policies(more=units)))
    headers, tokens = callers.of(asked(0, user="ann"))
    assert (headers.get("x-user-id"), headers.get("cookie"), tokens) == ("ann", "sid=ann", ())
    assert callers.of(asked(0, user="ann"))[0] is headers
    nobody, _ = callers.of(asked(0))
    assert nobody.names == {"x-forwarded-proto"}


def test_the_subject_of_an_experiment_is_a_claim() -> None:
    on = experiment().replace("{header: x-user-id}", "{subject: {}}")
    snapshot = compiled(policies(more=on, config="identity: {subject: {jwtClaim: sub}}"))
    headers, tokens = Callers.of_policies(snapshot).of(asked(0, user="somebody"))
    assert "x-user-id" not in headers
    assert [token.claims for token in tokens] == [{"sub": "somebody"}]


def test_fields_of_the_trace_are_sent_as_well() -> None:
    callers = Callers.of_policies(compiled(policies(more=experiment())))
    headers, _ = callers.of(asked(0, user="ann", fields=(("x-user-score", "0.4"),)))
    assert (headers.get("x-user-id"), headers.get("x-user-score")) == ("ann", "0.4")
    headers, _ = callers.of(asked(0, fields=(("x-user-score", "0.4"),)))
    assert headers.get("x-user-score") == "0.4"


def test_keys_that_hold_the_person_keep_users_apart(tmp_path: Path) -> None:
    text = policies(config=IDENTITY, freshness="{}", key="partition: [subject]")
    requests = [asked(0, user="ann"), asked(1, user="bob"), asked(2, user="ann"), asked(3)]
    _, outcomes = replayed(tmp_path, text, requests)
    assert [one.decision for one in outcomes] == [Decision.MISS, Decision.MISS, Decision.HIT, Decision.BYPASS]
