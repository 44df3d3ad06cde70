"""By what a policy set knows the users of a trace."""

from __future__ import annotations

from worlds import asked

from meshcache.simulate.callers import Callers
from policy_texts import compiled, experiment, policies


def test_the_subject_of_an_experiment_is_a_claim() -> None:
    on = experiment().replace("{header: x-user-id}", "{subject: {}}")
    snapshot = compiled(policies(more=on, config="identity: {subject: {jwtClaim: sub}}"))
    headers, tokens = Callers.of_policies(snapshot).of(asked(0, user="somebody"))
    assert "x-user-id" not in headers
    assert [token.claims for token in tokens] == [{"sub": "somebody"}]
