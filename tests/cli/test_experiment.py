"""`meshcache experiment`: what it prints, and its one-line errors. Against a running meshcache: tests/e2e."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

import msgspec
import pytest

from experiment_plans import RAMP, SPEC, estimate, experiment, findings
from meshcache.cli import main
from meshcache.cli.experiment import experiment as group
from meshcache.cli.experiment_text import told, told_line, told_list
from meshcache.experiment.findings import ArmNumbers, Estimate, Findings
from meshcache.experiment.orders import Order, carry_out
from meshcache.experiment.plan import begin, step
from meshcache.experiment.state import Record
from meshcache.extproc.experiment_views import ExperimentList, ExperimentView, line, view

ROLE = {"leads": True, "connected": True, "store": "unix:///s"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(("experiment", *arguments))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_test_of_a_split_prints_what_it_has_found(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "srm", "44700", "45489", "--json")
    assert status == 0
    assert json.loads(out) == {"pValue": pytest.approx(0.0086, abs=1e-4), "flagged": True}
    assert run(capsys, "srm", "44700", "45489", "--weights", "50", "50", "--json")[1] == out
    assert json.loads(run(capsys, "srm", "900", "100", "--weights", "90", "10", "--json")[1])["flagged"] is False
    assert run(capsys, "srm", "500", "501")[:2] == (0, "p = 0.9748  the split is as planned\n")
    status, out, _ = run(capsys, "srm", "44700", "45489")
    assert (status, out) == (0, "p = 0.008608  flagged: the split is not the planned one\n")


@pytest.mark.parametrize(
    ("arguments", "told_error"),
    [
        (("srm", "1"), "Missing argument 'UNITS' (see `meshcache experiment srm --help`)"),
        (("srm", "1", "-2"), "No such option: -2"),
        (("srm", "1", "2", "--weights", "0", "0"), "--weights: weights are numbers of 0 or more"),
        (("srm", "9" * 400, "1"), "UNITS: expected at most 1000000000000000 units"),
        (("stop", "e", "--reason", "\udcff"), "--reason: expected text in UTF-8, got '\\udcff'"),
        (("srm", "0", "0"), "UNITS: there is nothing to test without a unit in either arm"),
        (("show", "--data"), "Option '--data' requires an argument (see `meshcache experiment show --help`)"),
        (("show", "a/b"), "NAME: expected a name of small letters, digits, - and . such as lru-swr, got 'a/b' (see"),
        (("stop", ""), "NAME: expected a name of small letters"),
        (("halt", "x"), "No such command 'halt'"),
        (("stop",), "Missing argument 'NAME'"),
    ],
)
def test_wrong_usage_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told_error: str
) -> None:
    status, _, err = run(capsys, *arguments)
    assert (status, err.count("\n")) == (2, 1)
    assert told_error in err


@pytest.mark.parametrize("command", ["list", "show", "stop", "resume", "promote", "rollback"])
def test_without_a_meshcache_it_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    name = () if command == "list" else ("x",)
    status, out, err = run(capsys, command, *name, "--data", str(tmp_path))
    assert (status, out) == (1, "")
    assert err == f"meshcache: no meshcache answers on {tmp_path}/run/admin.sock: give its --data or --socket\n"


def test_when_it_ended_is_said_of_what_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    of = experiment(SPEC)
    record, _ = begin(of, None, 1000.0)
    assert "since 1970-01-01 00:16:40" in told(view(of, record, None, NUMBERS, 1001.0, **ROLE))  # type: ignore[arg-type]
    record, _ = carry_out(of, record, Order.STOP, 1060.0, who="root")
    assert "Stopped  stage 1 of 1  since 1970-01-01 00:17:40" in told(view(of, record, None, NUMBERS, 1061.0, **ROLE))  # type: ignore[arg-type]


def test_every_subcommand_has_an_example() -> None:
    for command in group.registered_commands:
        assert command.callback is not None
        assert "Example: meshcache experiment " in (command.callback.__doc__ or "")


WITHIN = estimate(-0.1, 0.1, relative=True)
NUMBERS = (
    ArmNumbers(800, 40_000, 0.91234, 0.0321, 0.184, 3, 3507, 7.01),
    ArmNumbers(100, 5_000, 0.9, 0.0331, 0.19, 1, 500, 0.9),
    ArmNumbers(101, 5_050, 0.82, 0.0471, 1.2, 0, 909, 0.8),
)


def shown(spec: str = SPEC, look: Findings | None = None, after: float = 6.0, **more: Estimate) -> ExperimentView:
    of = experiment(spec)
    record, _ = begin(of, None, 1000.0)
    record, _ = step(of, record, None, 1000.0 + after)
    found = look or (findings(record, **more) if record.counting else None)  # type: ignore[arg-type]
    record, _ = step(of, record, found, 1001.0 + after)
    return view(of, record, found, NUMBERS, 1002.0 + after, **ROLE)  # type: ignore[arg-type]


def test_an_experiment_is_shown_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    found = shown(hits=Estimate(False, 0.9, 0.82, 0.08, 0.05, 0.11), errors=estimate(nan, nan), latency=WITHIN)
    text = told(found)
    lines = [" ".join(row.split()) for row in text.splitlines()]
    assert lines[0].startswith("e Running stage 1 of 1 since 1970-01-01")
    assert lines[0].endswith("route r counting this pod decides")
    assert "arm policy share units requests hit ratio mean p99 errors origin saved" in lines
    assert "control old 80% 800 40000 91.23% 32.1ms 184ms 3 3507 7.01" in lines
    assert "baseline old 10% 101 5050 82.00% 47.1ms 1.2s 0 909 0.8" in lines
    assert "hitRatio primary 90.00% 82.00% +8.00pp +5.00pp to +11.00pp increase wanted Better" in lines
    assert "errorRate guardrail - - - - +1.00pp Inconclusive" in lines
    assert "latencyMean guardrail - - +0.00% -10.00% to +10.00% +20.00% Held" in lines
    assert any(row.endswith("Won PrimaryBetter by decider") for row in lines)
    assert msgspec.json.decode(msgspec.json.encode(found), type=ExperimentView) == found


def test_what_a_verdict_waits_for_is_said() -> None:
    assert "waits for  the end of the warm-up, in 2 s" in told(shown(after=1.0))
    assert "waits for  requests that are counted" in told(shown(look=None, units=0, requests=0))  # type: ignore[arg-type]
    nobody = told(shown(SPEC.replace("weight: 10}", "weight: 0}")))
    assert "waits for  a weight above 0 for the arm candidate" in nobody
    few = told(shown(units=20))  # type: ignore[arg-type]
    assert "waits for  30 more units in the arm candidate" in few
    assert "waits for  30 more units in the arm baseline" in few
    assert "waits for  the end of the stage, in 52 s" in told(shown(RAMP))
    assert "waits for  a difference in hitRatio that is beyond doubt" in told(shown())


def test_nothing_is_said_of_a_split_without_units() -> None:
    found = msgspec.structs.replace(shown(), p_value=1.0)
    assert "split      is as planned (p = 1)" in told(found)
    nobody = tuple(msgspec.structs.replace(arm, units=0) for arm in found.arms)
    assert "as planned" not in told(msgspec.structs.replace(found, arms=nobody))


def test_a_decision_is_shown_with_what_it_was_made_by() -> None:
    found = shown(latency=Estimate(True, 0.05, 0.04, 0.25, 0.22, inf))
    text = told(found)
    assert "RolledBack  GuardrailBreached  by decider" in text
    assert "latencyMean 50ms against 40ms  change +25.00% (+22.00% to -)  allowed 20.00%  units 1000 and 1000" in text
    assert told_line(found) == "e  RolledBack  control 100%, candidate 0%, baseline 0%"


def test_a_person_is_shown_with_what_he_said() -> None:
    of = experiment(SPEC)
    record, _ = begin(of, None, 1000.0)
    record, _ = carry_out(of, record, Order.STOP, 1001.0, who="sam", text="the holidays")
    found = view(of, record, None, (), 1002.0, leads=False, connected=False, store="redis://x")
    text = told(found)
    assert "Stopped     Person  by sam  'the holidays'" in text
    assert "another pod decides" in text
    assert "note  redis://x does not answer: this is what was in force last, and nothing is decided now" in text


def test_whom_a_promotion_put_everybody_on_stays_with_it() -> None:
    of = experiment(SPEC)
    record, _ = begin(of, None, 1000.0)
    record, _ = carry_out(of, record, Order.PROMOTE, 1001.0, who="sam")
    record, _ = carry_out(of, record, Order.PROMOTE, 1002.0, who="sam", arm="control")
    record, _ = carry_out(of, record, Order.RESUME, 1003.0, who="sam")
    text = told(view(of, record, None, NUMBERS, 1004.0, **ROLE))  # type: ignore[arg-type]
    assert "Promoted candidate  Person  by sam" in text
    assert "Promoted control  Person  by sam" in text
    assert "Resumed     Person  by sam" in text
    assert [one.winner for one in record.decisions] == ["", "candidate", "control", ""]


def test_experiments_are_listed_in_a_line_each() -> None:
    of = experiment(RAMP)
    record: Record | None = None
    pending = line(of, record)
    record, _ = begin(of, None, 1000.0)
    text = told_list(ExperimentList((pending, line(of, record)), leads=True, connected=True, store="s"))
    rows = [" ".join(row.split()) for row in text.splitlines()]
    assert rows[0] == "name phase stage shares route newest decision"
    assert rows[1] == "e Pending 1 of 3 control 98%, candidate 1%, baseline 1% r -"
    assert rows[2].startswith("e Warming 1 of 3 control 98%, candidate 1%, baseline 1% r 1970-01-01")
    assert rows[2].endswith("Started (NewExperiment)")
    assert told_list(ExperimentList((), leads=True, connected=True, store="s")) == "no experiment is in force"
