"""From documents to a snapshot: every field, every refusal with its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshcache.message import Peer, Request
from meshcache.policy import compiled as c
from meshcache.policy.compile import Surroundings, compile_documents
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.sources import read_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.policy.snapshot import Snapshot

    Compile = Callable[..., Snapshot]

SHIPPED = Path(__file__).parents[2] / "policies"


def test_the_whole_of_a_policy(compiled: Compile) -> None:
    policy = compiled(
        """
        kind: CachePolicy
        metadata: {name: full}
        spec:
          eviction: ttl
          freshness:
            mode: override
            ignore: []
            defaultTtl: 60s
            maxTtl: 1h
            staleWhileRevalidate: 30s
            staleIfError: 5m
            refreshAhead: 10%
            staleIfUnreachable: 30s
            heuristic: 20%
            targets: [Own-Cache-Control, own-cache-control, cdn-cache-control]
            negative: [{status: 404, ttl: 10s}, {status: 503, ttl: 1s}]
          tiers:
            hot: {ttl: 1s, maxObjectBytes: 1Ki, deadline: 1ms}
            warm: {ttl: 2s}
          placement: {hotAt: 70, warmAt: 30%, promotion: never}
          key:
            methods: [GET]
            host: false
            query: {include: [page, "v_*"], exclude: [utm_source], sort: true}
            headers: [Accept-Language, accept-language]
            cookies: [sid]
            body: none
            partition: [revision, {header: X-Tenant}]
          collapse: {enabled: true, maxWait: 2s500ms}
          refresh: {via: replica, maxConcurrent: 3}
        """
    ).policies["full"]
    assert policy == c.Policy(
        name="full",
        eviction="ttl",
        freshness=c.Freshness(
            "override",
            60.0,
            3600.0,
            30.0,
            300.0,
            {404: 10.0, 503: 1.0},
            0.1,
            30.0,
            0.2,
            ("own-cache-control", "cdn-cache-control"),
            cookies_keyed=True,
        ),
        tiers=c.Tiers(
            hot=c.TierLimits(1.0, 1024, 0.001),
            warm=c.TierLimits(2.0, 8 << 20, 0.020),
            cold=c.TierLimits(86400.0, 64 << 20, 0.100),
        ),
        placement=c.Placement(0.7, 0.3, promote_on_hit=False),
        key=c.KeySpec(
            methods=frozenset({"GET"}),
            host=False,
            query_include=("page", "v_*"),
            query_exclude=("utm_source",),
            query_sort=True,
            headers=("accept-language",),
            cookies=("sid",),
            partition_headers=("x-tenant",),
            fingerprint=policy.key.fingerprint,
        ),
        collapse_wait=2.5,
        refresh_max_concurrent=3,
        refresh_via="replica",
    )


def test_a_policy_with_nothing_in_it_has_defaults(compiled: Compile) -> None:
    policy = compiled("\nkind: CachePolicy\nmetadata: {name: p}\nspec: {}\n").policies["p"]
    assert policy.eviction == "lru"
    assert policy.freshness == c.Freshness()
    assert policy.tiers.hot == c.TierLimits(30.0, 1 << 20, 0.005)
    assert policy.placement == c.Placement()
    assert policy.collapse_wait == 10.0
    assert policy.key.methods == {"GET", "HEAD"}
    assert policy.key.host is True


def test_the_fingerprint_follows_the_key_and_nothing_else(compiled: Compile) -> None:
    def fingerprint(spec: str) -> bytes:
        policy = compiled(f"\nkind: CachePolicy\nmetadata: {{name: p}}\nspec: {spec}\n").policies["p"]
        return policy.key.fingerprint

    plain = fingerprint("{}")
    assert len(plain) >= 8
    assert fingerprint("{eviction: ttl, freshness: {maxTtl: 1s}}") == plain
    keys = ["host: false", "query: {sort: true}", "query: {exclude: [a]}", "headers: [a]", "cookies: [a]"]
    keys += ["partition: [{header: a}]", "query: {include: [a]}"]
    assert len({plain, *(fingerprint(f"{{key: {{{key}}}}}") for key in keys)}) == len(keys) + 1


def test_the_whole_of_the_configuration(compiled: Compile) -> None:
    config = compiled(
        """
        kind: CacheConfig
        metadata: {name: default}
        spec:
          stores: {warm: {url: "rediss://:secret@redis:6379/1"}, cold: {url: "file:///var/cold", maxBytes: 200Gi}}
          budgets: {hot: 256Mi, filter: 0}
          trust:
            canaryHeader: {from: [mesh, {addresses: [10.0.0.0/8, "::1"]}]}
            scoreHeader: {from: [any]}
          revision: {from: env, name: APP_VERSION}
          admin: {metricsListen: "127.0.0.1:9464"}
        """,
        surroundings=Surroundings(environ={"APP_VERSION": "v7"}),
    ).config
    assert config.warm_url == "rediss://:secret@redis:6379/1"
    assert (config.cold_url, config.cold_max_bytes) == ("file:///var/cold", 200 << 30)
    assert config.filter_bytes == 0
    assert (config.hot_bytes, config.metrics_listen) == (256 << 20, "127.0.0.1:9464")
    assert config.trust.canary.trusts(Peer("10.1.2.3"))
    assert config.trust.canary.trusts(Peer("192.0.2.1", mtls=True))
    assert not config.trust.canary.trusts(Peer("192.0.2.1"))
    assert config.trust.score.trusts(Peer(""))
    assert config.revision == c.RevisionSource("fixed", "v7")


def test_without_configuration_nobody_is_trusted(compiled: Compile) -> None:
    config = compiled("", surroundings=Surroundings(revision="r1")).config
    assert not config.trust.canary.trusts(Peer("127.0.0.1", mtls=True))
    assert not config.trust.score.trusts(Peer("127.0.0.1", mtls=True))
    assert config.revision.value == "r1"


@pytest.mark.parametrize(
    ("source", "surroundings", "cluster", "revision"),
    [
        ("{from: podLabel, name: version}", Surroundings(labels={"version": "v2"}), "", "v2"),
        ("{from: podLabel, name: version}", Surroundings(revision="given"), "", "given"),
        ("{from: podLabel, name: version}", None, "", ""),
        ("{from: env, name: V}", Surroundings(environ={"V": "v3"}), "c", "v3"),
        ("{from: envoyCluster}", Surroundings(revision="given"), "outbound|80|v2|svc", "outbound|80|v2|svc"),
        ("{from: envoyCluster}", Surroundings(revision="given"), "", "given"),
        ("{from: envoyCluster}", None, "", ""),
    ],
)
def test_the_revision_of_the_application(
    compiled: Compile, source: str, surroundings: Surroundings | None, cluster: str, revision: str
) -> None:
    text = f"\nkind: CacheConfig\nmetadata: {{name: c}}\nspec: {{revision: {source}}}\n"
    snapshot = compiled(text, surroundings=surroundings)
    assert snapshot.revision(Request("GET", "h", "/", cluster=cluster)) == revision


def test_a_revision_that_cannot_be_found_is_an_error_in_the_pod(compiled: Compile) -> None:
    text = "\nkind: CacheConfig\nmetadata: {name: c}\nspec: {revision: {from: podLabel, name: version}}\n"
    with pytest.raises(PolicyErrors, match=r"spec\.revision\.name: the pod label version is not set"):
        compiled(text, surroundings=Surroundings(labels={"other": "x"}))


def test_the_policies_that_are_shipped_work_as_they_are() -> None:
    snapshot = compile_documents(read_files([SHIPPED]), generation=1, secret=b"s")
    assert set(snapshot.policies) == {"ttl-only", "lru-swr"}
    assert snapshot.config.trust.canary.trusts(Peer("127.0.0.1"))
    assert snapshot.config.trust.score.trusts(Peer("::1"))
    assert not snapshot.config.trust.canary.trusts(Peer("10.0.0.1", mtls=True))
    (experiment,) = snapshot.experiments
    assert [(arm.policy.name, arm.weight) for arm in experiment.arms] == [
        ("ttl-only", 80),
        ("lru-swr", 10),
        ("ttl-only", 10),
    ]


def test_the_budget_is_that_of_the_slowest_policy(compiled: Compile) -> None:
    assert compiled("").lookup_budget() == 0.0
    tiers = "{hot: {deadline: 1ms}, warm: {deadline: 2s}, cold: {deadline: 1s}}"
    text = f"\nkind: CachePolicy\nmetadata: {{name: slow}}\nspec: {{tiers: {tiers}}}\n"
    assert compiled(text, policies=("quick",)).lookup_budget() == pytest.approx(3.001)
    assert compiled(text, policies=("quick",)).warm_deadline == 2.0


def test_the_longest_wait_is_that_of_the_most_patient_policy(compiled: Compile) -> None:
    assert compiled("").longest_wait() == 0.0
    text = "\nkind: CachePolicy\nmetadata: {name: patient}\nspec: {collapse: {maxWait: 20s}}\n"
    assert compiled(text, policies=("quick",)).longest_wait() == 20.0
    text = "\nkind: CachePolicy\nmetadata: {name: lonely}\nspec: {collapse: {enabled: false, maxWait: 20s}}\n"
    assert compiled(text).longest_wait() == 0.0


VIA = """
kind: CachePolicy
metadata: {name: x}
spec:
  refresh: {via: replica}
"""


def test_a_refresh_goes_only_to_clusters_that_were_named_at_the_start(compiled: Compile) -> None:
    snapshot = compiled(VIA, surroundings=Surroundings(refresh_clusters=frozenset({"replica", "other"})))
    assert snapshot.policies["x"].refresh_via == "replica"
    assert snapshot.config.refresh_clusters == {"replica", "other"}
    with pytest.raises(PolicyErrors) as caught:
        compiled(VIA, surroundings=Surroundings(refresh_clusters=frozenset({"replicas"})))
    (error,) = caught.value.errors
    assert str(error).endswith(
        ":6:18: spec.refresh.via: replica is none of the clusters that refreshes may go to (did you mean replicas?)"
    )
    with pytest.raises(PolicyErrors, match="start meshcache with --refresh-cluster replica, or write envoy"):
        compiled(VIA, surroundings=Surroundings())


def test_away_from_the_sidecar_any_cluster_may_be_named(compiled: Compile) -> None:
    assert compiled(VIA).policies["x"].refresh_via == "replica"
    assert compiled(VIA.replace("replica", "envoy")).policies["x"].refresh_via == ""


def test_requests_that_are_not_collapsed_do_not_wait(compiled: Compile) -> None:
    spec = "spec: {collapse: {enabled: false, maxWait: 5s}}"
    assert compiled(f"\nkind: CachePolicy\nmetadata: {{name: p}}\n{spec}\n").policies["p"].collapse_wait == 0.0
