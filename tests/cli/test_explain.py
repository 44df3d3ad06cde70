"""`meshcache explain`: the answer and its reasons."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from explaining import SHIPPED, URL, Explain

from meshcache.experiment.overlay import Overlay, Phase
from meshcache.extproc.status import ExperimentStatus
from meshcache.message import Headers, Request, Token
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.policy.sources import read_files
from meshcache.tiers.link_table import LinkTable
from meshcache.tiers.signing import Keyring


def test_a_forced_arm_and_a_score(explain: Explain) -> None:
    status, out, _ = explain(*URL, "-H", "X-Canary: v2", "-H", "x-user-score: 0.4")
    assert status == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[:9] == [
        "request    GET http://localhost:10000/v1/images/7?x=1&utm_source=y",
        "route      images (path prefix /v1/images)",
        "           not everything-else: fits too, but images names the path more exactly",
        "experiment swr-rollout",
        "arm        candidate: forced by x-canary: v2, trusted from 127.0.0.1",
        "policy     lru-swr",
        "score      0.4: x-user-score, trusted from 127.0.0.1",
        "tier       warm: the score is 40 percent (hotAt 70, warmAt 30); the answer is written to warm",
        "decision   looked up",
    ]
    assert "           host: localhost:10000" in lines
    assert "           query: x=1" in lines


def test_headers_that_are_not_trusted(explain: Explain) -> None:
    headers = ("-H", "x-canary: v2", "-H", "x-user-score: 0.4")
    _, out, _ = explain(*URL, *headers, "--from", "10.0.0.1", "--mtls", "--json")
    found = json.loads(out)
    assert (found["arm"], found["policy"], found["score"], found["tier"]) == ("control", "ttl-only", None, "hot")
    assert found["arm_why"] == (
        "the request carries no unit (header x-user-id or cookie sid), so it gets the first arm; "
        "x-canary is not trusted from 10.0.0.1 by mTLS: trust.canaryHeader names 127.0.0.0/8, ::1/128"
    )
    assert "trust.scoreHeader names" in found["score_why"]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (["x-canary: v2", "x-canary: v2"], "x-canary is ignored: it is given 2 times"),
        (["x-canary: v3"], "x-canary is ignored: 'v3' names no arm, v2 would"),
        (
            ["x-user-id: 7"],
            "chosen by the hash of the header x-user-id (weights: control 80, candidate 10, baseline 10)",
        ),
        (["cookie: sid=7"], "chosen by the hash of the cookie sid"),
    ],
)
def test_why_an_arm(explain: Explain, headers: list[str], told: str) -> None:
    _, out, _ = explain(*URL, *(part for header in headers for part in ("-H", header)), "--json")
    assert told in json.loads(out)["arm_why"]


@pytest.mark.parametrize(
    ("arguments", "route", "bypass"),
    [
        (["--url", "http://h/v1/images"], "images", ""),
        (["--url", "http://h/other"], "everything-else", "route-not-cached"),
        (["--url", "http://h/v1/images", "--method", "POST"], "images", "method"),
        (["--url", "http://h/v1/images", "-H", "upgrade: websocket"], "images", "upgrade"),
    ],
)
def test_what_is_looked_up(explain: Explain, arguments: list[str], route: str, bypass: str) -> None:
    _, out, _ = explain(*arguments, "--json")
    found = json.loads(out)
    assert (found["route"], found["bypass"]) == (route, bypass)


ROUTES = """
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: %s}
spec: {match: [%s]}
---"""


def test_routes_that_were_passed_over(explain: Explain, tmp_path: Path) -> None:
    routes = {
        "host": "{hosts: [other.example]}",
        "path": "{path: {exact: /b}}",
        "prefix": "{path: {prefix: /c}}",
        "method": "{methods: [PUT, POST]}",
        "header": "{headers: [{name: a, exact: '1'}]}",
        "many": "{path: {exact: /b}}, {methods: [PUT]}",
        "first": "{path: {exact: /a}}",
        "second": "{path: {exact: /a}}",
        "wide": "{}",
    }
    (tmp_path / "a.yaml").write_text("".join(ROUTES % route for route in routes.items()))
    _, out, _ = explain("--url", "http://h/a", "--json", policies=tmp_path)
    found = json.loads(out)
    assert (found["route"], found["route_why"], found["policy"]) == ("first", "path /a", "")
    assert {one["route"]: one["why"] for one in found["passed_over"]} == {
        "host": "the host h is not other.example",
        "path": "the path is not /b",
        "prefix": "the path is not below /c",
        "method": "the method is not POST or PUT",
        "header": "the header a is absent, not '1'",
        "many": "the path is not /b; the method is not PUT",
        "second": "fits too, but first stands first",
        "wide": "fits too, but first names the path more exactly",
    }


def test_no_route(explain: Explain, tmp_path: Path) -> None:
    status, out, _ = explain("--url", "http://h/a", policies=tmp_path)
    assert status == 0
    assert "route      none: no route fits" in out
    assert "decision   bypass; no-route" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Missing option '--url'"),
        (["--url", "/v1/images"], "expected a URL such as"),
        (["--url", "http://[::1/"], "--url: expected an address of IPv6 in brackets"),
        (["--url", "http://h/", "-H", "x-canary"], "expected `name: value`"),
        (["--url", "http://h/", "--from", "localhost"], "expected an IP address"),
        (["--url", "http://h/", "-X", "G T"], "--method: expected a method such as GET, got 'G T'"),
        (["--url", "http://h/", "--bogus"], "No such option: --bogus (see `meshcache explain --help`)"),
    ],
)
def test_wrong_usage(explain: Explain, arguments: list[str], told: str) -> None:
    status, out, err = explain(*arguments)
    assert (status, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


def test_the_secret_of_the_installation_chooses_the_arm(explain: Explain, tmp_path: Path) -> None:
    for number in range(5):
        data = tmp_path / str(number)
        secret = Keyring.load_or_create(data / "keys").assignment_secret
        _, out, _ = explain(*URL, "-H", "x-user-id: 7", "--data", str(data), "--json")
        snapshot = compile_documents(read_files([SHIPPED]), generation=1, secret=secret)
        request = Request("GET", "localhost:10000", "/v1/images/7", Headers([("x-user-id", "7")]))
        assert json.loads(out)["arm"] == snapshot.select(request).arm
    status, _, err = explain(*URL, "--data", str(tmp_path / "gone"))
    assert status == 1
    assert "no meshcache has run with the data folder" in err
    assert not (tmp_path / "gone").exists()


def test_policies_that_are_refused(explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Nothing\n")
    status, _, err = explain("--url", "http://h/", policies=tmp_path)
    assert status == 1
    assert err.splitlines()[0].startswith(f"{tmp_path}/a.yaml:1:7: kind: unknown kind")
    assert explain("--url", "http://h/", policies=tmp_path / "gone")[0] == 1


def test_why_not(explain: Explain, tmp_path: Path) -> None:
    routes = {
        "chosen": "{path: {regex: '/a.*'}, query: [{name: q, exact: '1'}]}",
        "other": "{path: {exact: /b}, methods: [PUT], query: [{name: q, regex: '[2-9]'}]}, "
        "{headers: [{name: a, regex: x}]}",
        "fits": "{path: {regex: '/a.*'}}",
    }
    routes |= {f"far-{n}": f"{{hosts: [h{n}], path: {{exact: /{n}}}}}" for n in range(9)}
    (tmp_path / "a.yaml").write_text("".join(ROUTES % route for route in routes.items()))
    url = ("--url", "http://h/a?q=1", "-H", "a: y")
    _, out, _ = explain(*url, "--why-not", "other", policies=tmp_path)
    assert out.splitlines()[1:9] == [
        "route      chosen (path like /a.*, parameter q: 1)",
        "why not    other (path /b, method PUT, parameter q like [2-9]):",
        "           - the path is not /b",
        "           - the method is not PUT",
        "           - the parameter q is '1', which does not fit [2-9]",
        "           other (path prefix /, header a like x):",
        "           - the header a is 'y', which does not fit x",
        "policy     none: the request goes to the origin",
    ]
    fits = "why not    fits: fits too, but chosen names more query parameters"
    assert fits in explain(*url, "--why-not", "fits", policies=tmp_path)[1].splitlines()
    assert "chosen is the route that is chosen" in explain(*url, "--why-not", "chosen", policies=tmp_path)[1]
    _, out, _ = explain(*url, "--why-not", "other", "--json", policies=tmp_path)
    assert json.loads(out)["why_not"][1] == {
        "match": "path prefix /, header a like x",
        "against": ["the header a is 'y', which does not fit x"],
    }
    status, _, err = explain(*url, "--why-not", "othr", policies=tmp_path)
    assert (status, err) == (1, "meshcache: there is no route othr (did you mean other?)\n")

    _, out, _ = explain(*url, policies=tmp_path)
    assert [line[15:].partition(":")[0] for line in out.splitlines()[2:7]] == [
        "fits",
        "other",
        "far-0",
        "far-1",
        "far-2",
    ]
    assert out.splitlines()[7] == "           and 6 more that are no nearer (--why-not ROUTE tells of one)"


def test_where_values_stand(explain: Explain, tmp_path: Path) -> None:
    head = "apiVersion: meshcache.dev/v1alpha1\nkind: CachePolicy\nmetadata: {name: %s}\nspec:\n"
    (tmp_path / "a.yaml").write_text(head % "base" + "  freshness: {defaultTtl: 1m}\n  key: {headers: [a]}\n")
    (tmp_path / "b.yaml").write_text(head % "p" + "  extends: {name: base}\n  freshness: {maxTtl: 1h}\n")
    route = (ROUTES % ("r", "{}")).replace("[{}]", "[{}], policyRef: {name: p}")
    (tmp_path / "c.yaml").write_text(route)
    _, out, _ = explain("--url", "http://h/", "--values", policies=tmp_path)
    assert out.splitlines()[-3:] == [
        f"values     freshness.maxTtl: 1h ({tmp_path}/b.yaml:6)",
        f"           freshness.defaultTtl: 1m ({tmp_path}/a.yaml:5)",
        f'           key.headers: ["a"] ({tmp_path}/a.yaml:6)',
    ]
    _, out, _ = explain("--url", "http://h/", "--values", "--json", policies=tmp_path)
    assert json.loads(out)["values"][0]["file"] == f"{tmp_path}/b.yaml"


ABOUT_ME = """
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: mine}
spec: {key: {partition: [subject], strip: [x-debug]}, collapse: {enabled: false}, refresh: {via: replica}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: mine}
spec: {match: [{path: {prefix: /me}}], policyRef: {name: mine}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec: {identity: {subject: {jwtClaim: sub}}, telemetry: {cacheStatus: minimal}}
"""


def test_who_waits_who_refreshes_and_what_is_shown(explain: Explain) -> None:
    _, out, _ = explain(*URL)
    assert "collapse   waits for another request that fetches the same, 10 s at most" in out
    assert "refresh    in the background, through envoy, where the origin says stale-while-revalidate\n" in out
    assert "refresh    in the background, through envoy\n" in explain(*URL, "-H", "x-canary: v2")[1]
    assert "shown      full: trust.cacheStatus names 127.0.0.0/8, ::1/128" in out
    _, out, _ = explain(*URL, "-H", "authorization: Bearer x", "-H", "cache-control: no-cache", "--from", "10.0.0.1")
    assert "collapse   goes by itself: its cache-control asks for an answer of its own" in out
    assert "refresh    by the next request: an answer to one with authorization" in out
    assert "shown      standard: not trusted from 10.0.0.1: trust.cacheStatus names 127.0.0.0/8" in out
    assert "goes by itself: HEAD" in explain(*URL, "-X", "HEAD")[1]
    assert "goes by itself: it asks for a range" in explain(*URL, "-H", "range: bytes=0-9")[1]


def test_behind_a_border(explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ABOUT_ME)
    url = ("--url", "http://h/me/cart")
    _, out, _ = explain(*url, "--claim", "sub=alice", "-H", "x-debug: 1", policies=tmp_path)
    assert "subject: alice" in out
    assert "stripped x-debug: kept from the origin" in out
    assert "collapse   goes by itself: collapse is not enabled in the policy" in out
    assert "refresh    by the next request of the same caller" in out
    assert "shown      minimal: trust.cacheStatus names nobody" in out
    assert "decision   bypass; no-identity" in explain(*url, policies=tmp_path)[1]


LAYERS = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: c}
spec: {identity: {subject: {jwtClaim: sub}}, trust: {canaryHeader: {from: [any]}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: base}
spec: {}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: long}
spec: {freshness: {defaultTtl: 2m}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: ttl}
spec: {eviction: ttl}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{}], policyRef: {name: base}}
---
"""
EXPERIMENT = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: %s}
spec:
  routeRef: {name: r}
  unit: %s
  arms:
    - {name: control, policyRef: {name: base}, weight: 0}
    - {name: candidate, policyRef: {name: %s}, weight: 1, force: [{header: x-canary, exact: '%s'}]}
---
"""


def test_several_experiments_each_with_its_reason(explain: Explain, tmp_path: Path) -> None:
    one = EXPERIMENT % ("one", "[{subject: {}}, {cookie: sid}]", "long", "1")
    two = EXPERIMENT % ("two", "[{header: x-user-id}]", "ttl", "2")
    (tmp_path / "a.yaml").write_text(LAYERS + one + two)
    _, out, _ = explain("--url", "http://h/", "--claim", "sub=7", "-H", "x-canary: 2", policies=tmp_path)
    assert out.splitlines()[2:7] == [
        "experiment one",
        "arm        candidate: chosen by the hash of the subject (weights: control 0, candidate 1); "
        "x-canary is ignored: '2' names no arm, 1 would",
        "experiment two",
        "arm        candidate: forced by x-canary: 2, trusted from 127.0.0.1",
        "policy     long+ttl",
    ]
    _, out, _ = explain("--url", "http://h/", "-H", "cookie: sid=1", "--json", policies=tmp_path)
    found = json.loads(out)
    assert (found["experiment"], found["arm"]) == ("one+two", "candidate+control")
    assert [(each["how"], each["unit"]) for each in found["experiments"]] == [("hashed", "cookie sid"), ("no-unit", "")]
    assert found["experiments"][0]["weights"] == {"control": 0, "candidate": 1}


def test_an_arm_that_follows_from_the_key(explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LAYERS + EXPERIMENT % ("one", "[{cacheKey: {}}]", "long", "1"))
    _, out, _ = explain("--url", "http://h/", policies=tmp_path)
    assert "arm        candidate: chosen by the hash of the cache key (weights: control 0, candidate 1)" in out
    assert "policy     long" in out


def test_what_was_decided_and_what_is_remembered(
    explain: Explain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies, data = tmp_path / "policies", tmp_path / "data"
    policies.mkdir()
    text = LAYERS + EXPERIMENT % ("one", "[{subject: {}}, {cookie: sid}]", "long", "1")
    (policies / "a.yaml").write_text(text)
    secret = Keyring.load_or_create(data / "keys").assignment_secret
    links = LinkTable(data / "links")
    links.open()
    snapshot = compile_documents(Documents.of([("a", text)]), generation=1, secret=secret, links=links)
    cookie = Headers([("cookie", "sid=1")])
    snapshot.select(Request("GET", "h", "/", cookie))
    snapshot.select(Request("GET", "h", "/", cookie, tokens=(Token("", {"sub": "7"}, b""),)))
    asked = ("--url", "http://h/", "--data", str(data))

    status, out, err = explain(*asked, "--claim", "sub=7", policies=policies)
    assert status == 0
    assert "chosen by the hash of another unit, with which the caller was seen before (weights:" in out
    assert err.startswith("note: what has been decided about experiments is not known: no meshcache is running")
    _, out, _ = explain(*asked, "--claim", "sub=7", "-H", "cookie: sid=1", policies=policies)
    assert "chosen by the hash of the cookie sid, with which the caller was seen before (weights:" in out
    _, out, _ = explain(*asked, "--claim", "sub=8", "-H", "cookie: sid=2", policies=policies)
    assert "chosen by the hash of the subject (weights:" in out

    (experiment,) = snapshot.experiments
    overlay = Overlay("one", experiment.spec_hash, Phase.ROLLED_BACK, (1, 1), 4, False)
    shown = ExperimentStatus("one", "r", experiment.spec_hash, ("control", "candidate"), (1, 0), overlay)
    monkeypatch.setattr(
        "meshcache.cli.status.status_of", lambda _data: SimpleNamespace(experiments=[shown], adoptions=())
    )
    _, out, err = explain(*asked, "--claim", "sub=7", "-H", "x-canary: 1", policies=policies)
    assert err == ""
    assert (
        "control: the experiment was rolled back, so that everybody gets the first arm; "
        "x-canary is ignored: it would force an arm of what was rolled back"
    ) in out


def test_where_the_values_of_several_arms_together_stand(explain: Explain, tmp_path: Path) -> None:
    one = EXPERIMENT % ("one", "[{header: x-user-id}]", "long", "1")
    two = EXPERIMENT % ("two", "[{header: x-user-id}]", "ttl", "2")
    (tmp_path / "a.yaml").write_text(LAYERS + one + two)
    _, out, _ = explain("--url", "http://h/", "-H", "x-user-id: 7", "--values", policies=tmp_path)
    assert [line.rpartition("/")[2] for line in out.splitlines()[-2:]] == ["a.yaml:14)", "a.yaml:19)"]
    assert "freshness.defaultTtl: 2m" in out
    assert "eviction: ttl" in out
