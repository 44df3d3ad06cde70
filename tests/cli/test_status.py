import json

import pytest
from running import BAD, GOOD, until

from meshcache.cli.status import _filter
from meshcache.extproc.status import FilterStatus

pytestmark = pytest.mark.e2e


def test_shows_the_running_sidecar(place):
    command = place.serve("--workers", "2")
    place.ready(command)
    shown = place.run("status", "--data", "data")
    assert shown.wait() == 0
    assert f"ready  pid {command.pid}" in shown.stdout
    assert "policies: plain" in shown.stdout
    assert "worker 1  ready" in shown.stdout
    assert "tier warm" in shown.stdout
    as_json = place.run("status", "--data", "data", "--json")
    assert as_json.wait() == 0
    body = json.loads(as_json.stdout)
    assert body["policies"]["generation"] == 1
    assert [worker["ready"] for worker in body["workers"]] == [True, True]
    assert [tier["name"] for tier in body["tiers"]] == ["hot", "warm", "cold"]


def test_a_refused_edit_is_shown_and_is_not_well(place):
    command = place.serve()
    place.ready(command)
    place.write(BAD)
    until(lambda: (status := place.status()) and status.policies.refusal)
    shown = place.run("status", "--data", "data")
    assert shown.wait() == 1
    assert "policies/a.yaml:4:" in shown.stdout
    assert "generation 1" in shown.stdout
    place.write(GOOD)
    until(lambda: (status := place.status()) and status.policies.refusal is None)
    assert place.run("status", "--data", "data").wait() == 0


def test_nobody_there_is_one_line(place):
    shown = place.run("status", "--data", "elsewhere")
    assert shown.wait() == 1
    assert shown.stdout == ""
    (line,) = shown.stderr.splitlines()
    assert "no meshcache is running with the data folder elsewhere" in line


def test_secrets_of_stores_are_not_shown(place):
    command = place.run(
        *("serve", "--data", "data", "--metrics-listen", "127.0.0.1:0"),
        environment={"MESHCACHE_WARM": "redis://:hunter2@127.0.0.1:1/0"},
    )
    place.ready(command)
    shown = place.run("status", "--data", "data", "--json")
    shown.wait()
    assert "redis://:***@127.0.0.1:1/0" in shown.stdout
    assert "hunter2" not in shown.stdout + command.stdout + command.stderr


@pytest.mark.parametrize(
    ("living", "plan", "keeps", "state"),
    [
        (True, "a", True, "ok"),
        (True, "a", False, "keeps nothing (budgets.filter)"),
        (True, "", True, "passive"),
        (False, "a", True, "gone"),
    ],
)
def test_of_a_filter_it_says_whether_it_answers(living, plan, keeps, state):
    one = FilterStatus("envoy-1", "1", living, plan, 2, 0.5, 0, 0, keeps)
    assert _filter(one).startswith(f"filter envoy-1  {state}  generation 2  ")
