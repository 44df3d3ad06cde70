"""What is refused in policy documents, and that every refusal names its place, its field and what to write instead."""

from __future__ import annotations

import pytest

from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.policy.errors import PolicyError, PolicyErrors
from meshcache.policy.values import warm_url
from meshcache.tiers.redis_client import checked_url

HEAD = "apiVersion: meshcache.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n"
ROUTE = "apiVersion: meshcache.dev/v1alpha1\nkind: CacheRoute\nmetadata: {name: r}\nspec: {match: [{}]}\n"
POLICY = "apiVersion: meshcache.dev/v1alpha1\nkind: CachePolicy\nmetadata: {name: p}\nspec: {}\n"
ARMS = "arms: [{name: a, policyRef: {name: p}, weight: 1}, {name: b, policyRef: {name: p}, weight: 1%s}%s]\n"


def errors_of(text: str, *others: tuple[str, str]) -> list[str]:
    with pytest.raises(PolicyErrors) as caught:
        compile_documents(Documents.of([("a.yaml", text), *others]), generation=1, secret=b"")
    return str(caught.value).splitlines()


def spec_errors(kind: str, spec: str) -> list[str]:
    """Errors of one document whose spec begins on line 5, indented by two."""
    return errors_of(HEAD.format(kind=kind) + "".join(f"  {line}\n" for line in spec.splitlines()))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("trusts: {}", "a.yaml:5:3: spec.trusts: unknown field (did you mean trust?)"),
        ("stores: {warm: {url: 'http://x'}}", "spec.stores.warm.url: expected a URL such as redis://"),
        ("stores: {warm: {url: 'redis://h:99999999'}}", "spec.stores.warm.url: expected a URL such as redis://"),
        (
            "stores: {warm: {url: 'redis://h:1/0?password=x'}}",
            "url: the URL has the option 'password'; only db and ssl_*",
        ),
        ("stores: {warm: {cluster: true}}", "a.yaml:5:19: spec.stores.warm.cluster: not supported yet"),
        ("stores: {cold: {url: 's3://b'}}", "spec.stores.cold.url: s3://: not supported yet"),
        ("stores: {cold: {url: 'file://host/a'}}", "spec.stores.cold.url: expected a folder or a URL such as file:///"),
        ("stores: {cold: {url: 'a:b'}}", "spec.stores.cold.url: expected a folder or a URL such as file:///"),
        ('stores: {cold: {url: "/a\\tb"}}', "spec.stores.cold.url: expected a URL such as file:///"),
        ("stores: {cold: {maxBytes: 0}}", "spec.stores.cold.maxBytes: expected more than 0, got 0"),
        ("budgets: {memory: 25%}", "spec.budgets.memory: not supported yet"),
        ("budgets: {hot: 25%}", "spec.budgets.hot: expected a quantity of bytes"),
        ("budgets: {filter: 25%}", "spec.budgets.filter: expected a quantity of bytes"),
        ("budgets: {filter: -1}", "spec.budgets.filter: a quantity of bytes cannot be negative"),
        ("trust: {canaryHeader: {from: [meshy]}}", "spec.trust.canaryHeader.from[0]: expected mesh, any or"),
        ("trust: {canaryHeader: {from: mesh}}", "spec.trust.canaryHeader.from: expected a list, got the text 'mesh'"),
        ("trust: {canaryHeader: {from: [{addresses: [10.0.0.1/8]}]}}", "write 10.0.0.0/8"),
        ("trust: {canaryHeader: {from: [{addresses: []}]}}", "expected at least 1 in the list"),
        ("trust: {canaryHeader: {from: [{addreses: ['::1']}]}}", "did you mean addresses?"),
        ("revision: {from: podLabel}", "spec.revision.name: is required with `from: podLabel`"),
        ("revision: {from: envoyCluster, name: x}", "spec.revision.name: has no meaning"),
        ("revision: {from: magic}", "spec.revision.from: expected 'podLabel', 'envoyCluster' or 'env'"),
        (
            "notify: {webhook: {url: 'ftp://x/hunter2'}}",
            "spec.notify.webhook.url: expected a URL such as https://hooks",
        ),
        ("notify: {webhook: {timeout: 1s}}", "spec.notify.webhook.url: required field is missing"),
        ("notify: {webhook: {url: 'https://x', timeout: 2m}}", "spec.notify.webhook.timeout: expected at most 60"),
        ("admin: {metricsListen: 9464}", "spec.admin.metricsListen: expected an address"),
        ("admin: {metricsListen: 'a:70000'}", "spec.admin.metricsListen: expected HOST:PORT"),
        ("admin: {socket: /a}", "spec.admin.socket: not supported yet"),
        ("identity: {claims: [role]}", "a.yaml:5:14: spec.identity.claims: not supported yet"),
        ("identity: {subject: {}}", "spec.identity.subject: expected one of jwtClaim and mtlsPeer"),
        ("identity: {subject: {jwtClaim: sub, mtlsPeer: uri}}", "expected one of jwtClaim and mtlsPeer"),
        (
            "identity: {subject: {header: x-user}}",
            ".header: unknown field (there are jwtClaim, mtlsPeer)",
        ),
        ("identity: {subject: {jwtClaim: ''}}", "spec.identity.subject.jwtClaim: expected the name of a claim"),
        ("identity: {tenant: {mtlsPeer: ip}}", "expected 'uri', 'dns' or 'subject', got the text 'ip'"),
        ("identity: {tenant: {cookie: t}}", "spec.identity.tenant.cookie: unknown field"),
        ("identity: {session: {mtlsPeer: uri}}", "spec.identity.session.mtlsPeer: unknown field"),
        ("identity: {session: {cookie: 'a b'}}", "spec.identity.session.cookie: expected a cookie name"),
        ("telemetry: {serverTiming: off}", "spec.telemetry.serverTiming: not supported yet"),
        ("telemetry: {cacheStatus: full}", "expected 'standard', 'minimal' or 'off', got the text 'full'"),
        ("trust: {cacheStatus: {from: [meshy]}}", "spec.trust.cacheStatus.from[0]: expected mesh, any or"),
        ("signing: {keysRef: {name: keys}}", "spec.signing: not supported yet"),
    ],
)
def test_configuration_that_is_refused(spec: str, told: str) -> None:
    (error,) = spec_errors("CacheConfig", spec)
    assert told in error
    assert error.startswith("a.yaml:5:")


@pytest.mark.parametrize(
    "url", ["redis://ann:s3cr/et@h:1", "redis://ann:s3cr\u2100et@h:1", "redis://h:s3cret", "redis://ann:s3cret@[::1"]
)
@pytest.mark.parametrize("store", ["warm", "cold"])
def test_no_part_of_a_url_that_is_refused_is_told(url: str, store: str) -> None:
    (error,) = spec_errors("CacheConfig", f"stores: {{{store}: {{url: '{url}'}}}}")
    assert "s3c" not in error
    assert "%2F" in error


@pytest.mark.parametrize("query", ["db=1", "ssl_ca_certs=/a&db=", "foo", "db=1&foo=2", "DB=1", ""])
def test_a_url_of_a_store_has_the_options_that_the_store_takes(query: str) -> None:
    url = f"rediss://h:1/0?{query}"
    refused = []
    for check in (warm_url, checked_url):
        try:
            check(url)
        except ValueError:
            refused.append(check)
    assert len(refused) in (0, 2)


def test_a_workload_is_no_person_whose_answers_may_be_kept() -> None:
    config = HEAD.format(kind="CacheConfig") + "  identity: {subject: {mtlsPeer: uri}}\n"
    policy = POLICY.replace("spec: {}", "spec: {freshness: {ignore: [private]}, key: {partition: [subject]}}")
    (error,) = errors_of(policy, ("b.yaml", config))
    assert error.startswith("a.yaml:4:28: spec.freshness.ignore: needs spec.identity.subject of the CacheConfig to be")
    compile_documents(
        Documents.of([("a", policy), ("b", config.replace("mtlsPeer: uri", "jwtClaim: sub"))]), generation=1, secret=b""
    )


def test_a_password_is_never_repeated() -> None:
    for url in ("redis://:hunter2@/", "http://u:hunter2@h", "redis://u:hunter2@h:x"):
        assert "hunter2" not in "".join(spec_errors("CacheConfig", f"stores: {{warm: {{url: '{url}'}}}}"))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("eviction: lru-k", "a.yaml:5:13: spec.eviction: lru-k: not supported yet"),
        ("eviction: lruu", "spec.eviction: expected 'lru' or 'ttl', got the text 'lruu' (did you mean lru?)"),
        ("extends: {name: base}", "a.yaml:5:19: spec.extends.name: there is no CachePolicy named base"),
        ("extends: base", "a.yaml:5:12: spec.extends: expected a mapping, got the text 'base'"),
        (
            "extends: {name: x}",
            "a.yaml:5:19: spec.extends.name: extends itself: x -> x (take one of these extends out)",
        ),
        ("freshness: {maxTtl: 60}", "spec.freshness.maxTtl: a duration needs a unit"),
        ("freshness: {maxTtl: -1s}", "spec.freshness.maxTtl: a duration cannot be negative"),
        ("freshness: {maxTtl: 1s, defaultTtl: 2s}", "spec.freshness.defaultTtl: is longer than maxTtl"),
        ("freshness: {mode: override}", "spec.freshness.defaultTtl: is required with `mode: override`"),
        ("freshness: {ignore: [no-store]}", "a.yaml:5:23: spec.freshness.ignore: needs the key to hold the person"),
        ("freshness: {ignore: [private]}\nkey: {partition: [revision]}", "(add key: {partition: [subject]})"),
        ("freshness: {ignore: [vary]}", "spec.freshness.ignore[0]: expected 'no-store', 'private', 'no-cache' or"),
        ("freshness: {typeMismatch: allow}", "spec.freshness.typeMismatch: expected 'refuse' or 'store'"),
        ("freshness: {refreshAhead: 51%}", "a.yaml:5:29: spec.freshness.refreshAhead: is above 50%"),
        ("freshness: {refreshAhead: 5s}", "spec.freshness.refreshAhead: expected a percentage"),
        ("freshness: {negative: [{status: 200, ttl: 1s}]}", "negative[0].status: expected at least 400, got 200"),
        ("freshness: {negative: [{status: 0404, ttl: 1s}]}", "got the text '0404' (write 404)"),
        ("freshness: {negative: [{status: 404}]}", "spec.freshness.negative[0].ttl: required field is missing"),
        ("freshness: {negative: [{status: 404, ttl: 1s}, {status: 404, ttl: 2s}]}", "names a status twice"),
        ("freshness:\n  maxTtll: 1s", "a.yaml:6:5: spec.freshness.maxTtll: unknown field (did you mean maxTtl?)"),
        ("freshness: fast", "spec.freshness: expected a mapping, got the text 'fast'"),
        ("tiers: {hot: {deadline: 0s}}", "spec.tiers.hot.deadline: expected a duration above 0s"),
        ("tiers: {hot: {deadline: 1m}}", "spec.tiers.hot.deadline: expected a duration above 0s and at most 10s"),
        ("tiers: {hot: {maxObjectBytes: lots}}", "spec.tiers.hot.maxObjectBytes: expected a quantity"),
        ("tiers: {tepid: {}}", "spec.tiers.tepid: unknown field (there are hot, warm, cold)"),
        ("placement: {hotAt: 20, warmAt: 30}", "a.yaml:5:22: spec.placement.hotAt: is below warmAt"),
        ("placement: {hotAt: 130}", "spec.placement.hotAt: expected a percentage"),
        ("key: {methods: [POST]}", "spec.key.methods[0]: POST: not supported yet"),
        ("key: {methods: [PUT]}", "spec.key.methods[0]: expected GET or HEAD"),
        ("key: {methods: []}", "spec.key.methods: expected at least 1 in the list"),
        ("key: {body: json}", "spec.key.body: json: not supported yet"),
        ("key: {body: xml}", "spec.key.body: expected 'none'"),
        ("key: {bodyOptions: {}}", "spec.key.bodyOptions: not supported yet"),
        ("key: {host: yes}", "spec.key.host: expected true or false, got the text 'yes'"),
        ("key: {query: {include: ['a*b']}}", "spec.key.query.include[0]: expected a parameter name"),
        ("key: {headers: ['bad name']}", "spec.key.headers[0]: expected a header name"),
        ("key: {headers: [x-meshcache-a]}", "internal"),
        (
            "key: {partition: [revision, tenant]}",
            "a.yaml:5:31: spec.key.partition[1]: the CacheConfig does not say in spec.identity.tenant who that is",
        ),
        (
            "key: {strip: [authorization]}",
            "a.yaml:5:17: spec.key.strip[0]: authorization cannot be kept from the origin",
        ),
        ("key: {strip: [X-Envoy-Retry-On]}", "spec.key.strip[0]: x-envoy-retry-on cannot be kept"),
        ("key: {strip: [x-a], headers: [X-A]}", "spec.key.strip: x-a is part of the key"),
        ("key: {strip: [cookie], cookies: [sid]}", "spec.key.strip: cookie is part of the key"),
        ("key: {partition: [subject]}", "(for example identity: {subject: {jwtClaim: sub}})"),
        ("key: {partition: [session]}", "(for example identity: {session: {jwtClaim: sid}})"),
        (
            "key: {partition: [tenants]}",
            "spec.key.partition[0]: expected one of tenant, subject, session, revision, or",
        ),
        ("key: {partition: [{cookie: a}]}", "spec.key.partition[0].cookie: unknown field"),
        ("refresh: {via: 'http://10.0.0.1?x'}", "spec.refresh.via: expected a name, got"),
        ("refresh: {via: 'a b'}", "spec.refresh.via: expected envoy or the name of an Envoy cluster"),
        ("refresh: {via: ''}", "spec.refresh.via: expected envoy or the name of an Envoy cluster"),
        ("refresh: {via: [a]}", "spec.refresh.via: expected envoy or the name of an Envoy cluster"),
        ("refresh: {maxConcurrent: 0}", "spec.refresh.maxConcurrent: expected at least 1, got 0"),
        ("refresh: {maxConcurrent: '8'}", "spec.refresh.maxConcurrent: expected a whole number, got the text '8'"),
        ("refresh: {maxConcurrent: true}", "spec.refresh.maxConcurrent: expected a whole number, got true"),
        ("semantic: {enabled: true}", "spec.semantic: not supported yet"),
        ("admission: {}", "spec.admission: not supported yet"),
        (
            "collapse: {maxWait: 61s}",
            "a.yaml:5:23: spec.collapse.maxWait: expected a duration above 0s and at most 60s",
        ),
        ("collapse: {maxWait: 0s}", "spec.collapse.maxWait: expected a duration above 0s and at most 60s"),
        ("collapse: {maxWait: 10}", "spec.collapse.maxWait: a duration needs a unit"),
        ("collapse: {enabled: yes}", "spec.collapse.enabled: expected true or false, got the text 'yes'"),
        (
            "refresh: {via: 'http://replica:80'}",
            "via: expected a name, got 'http://replica:80'",
        ),
        ("collapse: {waits: 1s}", "spec.collapse.waits: unknown field"),
        ("cost: {currency: USD}", "spec.cost.perOriginRequest: required field is missing"),
        (
            "cost: {perOriginRequest: -1, currency: USD}",
            "spec.cost.perOriginRequest: expected an amount of money such as 0.002, got -1",
        ),
        (
            "cost: {perOriginRequest: 0.002, currency: dollars}",
            "spec.cost.currency: expected the code of a currency such as USD, got 'dollars'",
        ),
        ("confidence: {}", "spec.confidence: not supported yet"),
    ],
)
def test_policies_that_are_refused(spec: str, told: str) -> None:
    (error,) = spec_errors("CachePolicy", spec)
    assert told in error


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("match: []", "spec.match: expected at least 1 in the list"),
        ("policyRef: {name: p}", "spec.match: required field is missing"),
        ("match: [{path: {regex: '/a('}}]", "a.yaml:5:26: spec.match[0].path.regex: not a regular expression of RE2"),
        ("match: [{path: {regex: '/(?=a)'}}]", "RE2 has no look-ahead: name the path by prefix"),
        ("match: [{path: {regex: '/a{2000}'}}]", "RE2 repeats at most 1000 times"),
        ("match: [{path: {regex: '/.{1000}.{1000}.{1000}'}}]", "the regular expression is too large once"),
        (f"match: [{{path: {{regex: '/{'a' * 1024}'}}}}]", "a regular expression has 1 to 1024 characters"),
        ("match: [{path: {regex: ''}}]", "path.regex: a regular expression has 1 to 1024 characters"),
        ("match: [{path: {regex: '^v1/.*'}}]", "path.regex: fits no path: a path begins with /"),
        ("match: [{path: {exact: /a, prefix: /b}}]", "spec.match[0].path: expected one of exact, prefix and regex"),
        ("match: [{path: {}}]", "spec.match[0].path: expected one of exact, prefix and regex"),
        ("match: [{path: {type: PathPrefix}}]", "path.type: unknown field (write {exact: /a}, {prefix: /a} or"),
        ("match: [{path: {prefix: a}}]", "spec.match[0].path.prefix: expected a path that begins with /"),
        ("match: [{path: {exact: '/a?b'}}]", "spec.match[0].path.exact: a path is given without query"),
        ("match: [{hosts: ['*']}]", "spec.match[0].hosts[0]: leave hosts out"),
        ("match: [{hosts: ['a:80']}]", "spec.match[0].hosts[0]: a host is given without port"),
        ("match: [{hosts: ['a*.b']}]", "spec.match[0].hosts[0]: expected a host"),
        ("match: [{methods: [get]}]", "spec.match[0].methods[0]: expected one of GET, HEAD"),
        ("match: [{headers: [{name: a, regex: 'b['}]}]", "spec.match[0].headers[0].regex: not a regular expression of"),
        ("match: [{headers: [{name: a, regex: b, exact: b}]}]", "match[0].headers[0]: expected one of exact and regex"),
        ("match: [{headers: [{name: a, value: b}]}]", "headers[0].value: unknown field (write exact or regex)"),
        ("match: [{query: [{name: a}]}]", "match[0].query[0]: expected one of exact and regex, for example"),
        (
            "match: [{query: [{name: 'a=b', exact: c}]}]",
            "query[0].name: expected the name of a query parameter as it is",
        ),
        ("match: [{query: [{name: a, exact: 'b c'}]}]", "query[0].exact: expected a value as it is sent, with %20 for"),
        ("match: [{query: [{name: a, exact: b}, {name: a, regex: c}]}]", "match[0].query: names a parameter twice"),
        ("match: [{queryParams: []}]", "match[0].queryParams: unknown field (it is called query here)"),
        ("match: [{method: GET}]", "match[0].method: unknown field (write methods: [GET])"),
        (f"match: [{{headers: [{'{name: a, exact: b}, ' * 17}]}}]", "headers: expected at most 16 in the list"),
        ("match: [{headers: [{name: a, exact: 2}]}]", "headers[0].exact: expected text, got 2 (put it in quotes)"),
        (
            "match: [{headers: [{name: a, exact: b}, {name: A, exact: c}]}]",
            "spec.match[0].headers: names a header twice",
        ),
        ("match: [{}]\ntargetRefs: []", "a.yaml:6:3: spec.targetRefs: not supported yet"),
        ("match: [{}]\npartitions: []", "spec.partitions: not supported yet"),
        ("match: [{}]\nprewarm: []", "spec.prewarm: not supported yet"),
        ("match: [{}]\noriginBudget: {}", "spec.originBudget: not supported yet"),
        (
            "match: [{}]\npolicyRef: {name: nope}",
            "a.yaml:6:21: spec.policyRef.name: there is no CachePolicy named nope",
        ),
    ],
)
def test_routes_that_are_refused(spec: str, told: str) -> None:
    (error,) = spec_errors("CacheRoute", spec)
    assert told in error


def test_the_expressions_of_all_routes_are_bounded_together() -> None:
    routes = "---\n".join(
        ROUTE.replace("name: r", f"name: r{n}").replace("[{}]", f"[{{path: {{regex: '/{n}.{{1000}}'}}}}]")
        for n in range(120)
    )
    (error,) = errors_of(routes)
    assert "spec.match[0]: with this match the regular expressions of all routes are too large together" in error


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("unit: []\n" + ARMS % ("", ""), "spec.unit: expected at least 1 in the list"),
        (
            "unit: [{header: a}, {subject: {}}]\n" + ARMS % ("", ""),
            "a.yaml:6:33: spec.unit[1].subject: the CacheConfig does not say in spec.identity.subject who that is",
        ),
        ("unit: [{cacheKey: {}}, {header: a}]\n" + ARMS % ("", ""), "spec.unit: cacheKey stands alone"),
        (
            "unit: [{subject: {}, cookie: a}]\n" + ARMS % ("", ""),
            "expected one of subject, header, cookie and cacheKey",
        ),
        ("unit: [{header: a, cookie: b}]\n" + ARMS % ("", ""), "spec.unit[0]: expected one of subject, header"),
        ("unit: [{header: a}]\narms: []", "spec.arms: expected at least 2 in the list"),
        ("unit: [{header: a}]\n" + (ARMS % ("", "")).replace("weight: 1", "weight: 0"), "spec.arms: every weight is 0"),
        ("unit: [{header: a}]\n" + (ARMS % ("", "")).replace("weight: 1}, ", "weight: -1}, "), "at least 0, got -1"),
        (
            "unit: [{header: a}]\n" + (ARMS % ("", "")).replace("weight: 1}, ", "weight: 1000001}, "),
            "at most 1000000, got 1000001",
        ),
        (
            "unit: [{header: a}]\n" + (ARMS % ("", "")).replace("weight: 1}, ", "weight: 1.5}, "),
            "whole number, got 1.5",
        ),
        (
            "unit: [{header: a}]\n" + (ARMS % ("", "")).replace("name: b", "name: a"),
            "arms[1].name: there is an arm named a",
        ),
        (
            "unit: [{header: a}]\n" + (ARMS % ("", "")).replace("name: b", "name: B!"),
            "expected a name of small letters",
        ),
        (
            "unit: [{header: a}]\n" + (ARMS % ("", "")).replace("name: p", "name: q", 1),
            "spec.arms[0].policyRef.name: there",
        ),
        (
            "unit: [{header: a}]\n" + ARMS % (", force: [{header: x, exact: 'a, b'}]", ""),
            "arms[1].force[0].exact: expected",
        ),
        (
            "unit: [{header: a}]\n" + ARMS % (", force: [{header: x, regex: a}]", ""),
            "force[0].regex: not supported yet",
        ),
        (
            "unit: [{header: a}]\n"
            + ARMS
            % (
                ", force: [{header: x, exact: v}]",
                ", {name: c, policyRef: {name: p}, weight: 1, force: [{header: X, exact: v}]}",
            ),
            "spec.arms[2].force[0]: x: v forces the arm b already",
        ),
        *(
            ("unit: [{header: a}]\n" + ARMS % ("", "") + text, told)
            for text, told in (
                ("compare: {candidate: z}", "a.yaml:8:24: spec.compare.candidate: there is no arm named z"),
                ("compare: {candidate: a}", "the first arm is control, and cannot be the candidate"),
                ("compare: {candidate: b, against: b}", "an arm cannot be compared with itself"),
                ("primary: {metric: hits, direction: increase}", "a.yaml:8:21: spec.primary.metric: expected"),
                ("guardrails: [{metric: errorRate}]", "expected one of maxIncrease and maxDecrease"),
                (
                    "guardrails: [{metric: latencyP99, maxIncrease: {absolute: 5}}]",
                    "spec.guardrails[0].maxIncrease.absolute: a duration needs a unit",
                ),
                ("guardrails: [{metric: latencyP99, maxIncrease: {relative: 5}}]", "expected a percentage such as 20%"),
                (
                    "ramp: [{weight: 0.00004%, for: 1m}]",
                    "spec.ramp[0].weight: nobody at all: expected at least 0.0001%",
                ),
                ("ramp: [{weight: 60, for: 1m}]", "spec.ramp[0].weight: candidate and baseline are of one size"),
                ("ramp: [{weight: 5, for: 1m}, {weight: 1, for: 1m}]", "the weights have to grow from step to step"),
                ("confidence: 20%", "spec.confidence: expected at least 50 and less than 100"),
                ("onBreach: stop", "spec.onBreach: expected 'rollback' or 'pause'"),
            )
        ),
    ],
)
def test_experiments_that_are_refused(spec: str, told: str) -> None:
    text = (
        HEAD.format(kind="CacheExperiment") + "  routeRef: {name: r}\n" + "".join(f"  {x}\n" for x in spec.splitlines())
    )
    (error,) = errors_of(text, ("r.yaml", ROUTE), ("p.yaml", POLICY))
    assert told in error


def test_the_status_of_an_experiment_is_not_for_files() -> None:
    text = HEAD.format(kind="CacheExperiment") + "  routeRef: {name: r}\n  unit: [{header: a}]\n  " + ARMS % ("", "")
    assert errors_of(text + "status: {}\n", ("r.yaml", ROUTE), ("p.yaml", POLICY)) == [
        "a.yaml:8:1: status: not supported yet"
    ]
    assert "unknown field" in errors_of(POLICY + "status: {}\n")[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\n", "a.yaml:1:1: kind: required field is missing"),
        ("kind: CachePolicy\n", "a.yaml:1:1: apiVersion: required field is missing"),
        ("kind: CachePolice\n", "a.yaml:1:7: kind: unknown kind 'CachePolice' (did you mean CachePolicy?)"),
        ("kind: [1]\n", "a.yaml:1:7: kind: unknown kind [1]"),
        (POLICY.replace("v1alpha1", "v1"), "a.yaml:1:13: apiVersion: unknown version"),
        (POLICY.replace("{name: p}", "{name: p, namespace: n}"), "a.yaml:3:21: metadata.namespace: not supported yet"),
        (POLICY.replace("{name: p}", "{name: P_}"), "a.yaml:3:18: metadata.name: expected a name"),
        (POLICY.replace("{name: p}", "{name: 7}"), "put it in quotes"),
        (POLICY.replace("{name: p}", "x"), "a.yaml:3:11: metadata: expected a mapping"),
        (POLICY.replace("spec: {}", ""), "spec: required field is missing"),
    ],
)
def test_the_head_of_a_document(text: str, told: str) -> None:
    assert any(told in line for line in errors_of(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (POLICY.replace("kind", "Kind"), "kind: required field is missing (write kind, not Kind)"),
        (POLICY.replace("apiVersion: meshcache.dev/v1alpha1\n", ""), "(write apiVersion: meshcache.dev/v1alpha1)"),
        (POLICY.replace("spec: {}", "freshness: {}"), "a.yaml:4:1: freshness: unknown field (it belongs to spec)"),
        (POLICY.replace("{}", "{maxTtl: 1s}"), "spec.maxTtl: unknown field (it belongs to spec.freshness)"),
        (POLICY.replace("{}", "{status: 404}"), "(it belongs to spec.freshness.negative[])"),
        (POLICY.replace("{}", "{match: []}"), "spec.match: unknown field (it belongs to a CacheRoute, this is a Ca"),
        (
            POLICY.replace("{}", "\n  freshness:\n    maxTtl:1h\n"),
            "6:5: spec.freshness: expected a mapping, got the text",
        ),
        (POLICY.replace("{}", "\n  freshness:\n    maxTtl:1h\n"), "(put a blank behind the colon)"),
        (POLICY.replace("{}", "\n  freshness:\n\tmaxTtl: 1h\n"), "a.yaml:6:1: a tab is used for indentation"),
        (POLICY.replace("{}", "\n  a:\n    b: 1h\n   c: 1\n"), "(the fields of one mapping begin in the same column)"),
        (POLICY.replace("{}", "{key: {query: {include: [*]}}}"), '(text that begins with * goes in quotes: "*")'),
        (
            POLICY.replace("{}", "{key: {host: 'no'}}"),
            "spec.key.host: expected true or false, got the text 'no' (write false)",
        ),
        (
            POLICY.replace("{}", "{key: {headers: a}}"),
            "spec.key.headers: expected a list, got the text 'a' (write [a])",
        ),
        (POLICY.replace("{}", "{key: {headers: {a: b}}}"), "(put - in front of each member, or [ ] around them)"),
        (
            POLICY.replace("{}", "{tiers: [hot]}"),
            "spec.tiers: expected a mapping, got a list (its fields are hot, warm, cold)",
        ),
        (POLICY.replace("{}", "{freshness: {maxTtl: 5 min}}"), "with no blank: write 5m"),
        (POLICY.replace("{}", "{freshness: {maxTtl: 10sec}}"), "with no blank: write 10s"),
        (POLICY.replace("{}", "{freshness: {maxTtl: 20MS}}"), "with no blank: write 20ms"),
        (POLICY.replace("{}", "{refresh: {maxConcurrent: '8'}}"), "got the text '8' (write 8)"),
        (ROUTE.replace("{match: [{}]}", "{}"), "spec.match: required field is missing (write match: [...])"),
        (
            ROUTE.replace("[{}]", "[{}], policyRef: p"),
            "spec.policyRef: expected a mapping, got the text 'p' (write {name: p})",
        ),
        (ROUTE.replace("[{}]", "[{path: /a}]"), "got the text '/a' (its fields are exact, prefix, regex)"),
    ],
)
def test_mistakes_that_are_often_made_have_a_hint(text: str, told: str) -> None:
    (error,) = errors_of(text)
    assert told in error


def test_names_are_unique_within_a_kind() -> None:
    assert errors_of(POLICY, ("b.yaml", POLICY)) == [
        "b.yaml:3:18: metadata.name: a CachePolicy named p is already defined at a.yaml:3"
    ]
    compile_documents(
        Documents.of([("a", POLICY), ("b", ROUTE.replace("name: r", "name: p"))]), generation=1, secret=b""
    )


def test_there_is_one_configuration() -> None:
    config = HEAD.format(kind="CacheConfig").replace("spec:\n", "spec: {}\n")
    (error,) = errors_of(config, ("b.yaml", config.replace("name: x", "name: y")))
    assert error.startswith("b.yaml:2:7: kind: there is a CacheConfig already, in a.yaml")


def test_all_errors_are_told_at_once_and_follow_ups_are_not() -> None:
    route = ROUTE.replace("spec: {match: [{}]}", "spec: {match: [{}], policyRef: {name: p}}")
    lines = errors_of(POLICY.replace("spec: {}", "spec: {a: 1, b: 2}"), ("b.yaml", route), ("c.yaml", "- 1\n"))
    assert [line.partition(" ")[0] for line in lines] == ["a.yaml:4:8:", "a.yaml:4:14:", "c.yaml:1:1:"]


def test_garbage_gives_a_bounded_number_of_errors() -> None:
    lines = errors_of("---\na: 1\n" * 5000)
    assert len(lines) == 101
    assert lines[-1] == "... and 4900 more errors"


def test_problems_of_reading_refuse_the_set() -> None:
    problem = PolicyError("b.yaml", 0, 0, "", "cannot be read: Permission denied")
    with pytest.raises(PolicyErrors, match=r"b\.yaml: cannot be read: Permission denied"):
        compile_documents(Documents.of([("a.yaml", POLICY)], [problem]), generation=1, secret=b"")


def test_a_file_that_cannot_be_read_is_not_blamed_on_the_others() -> None:
    good = """apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: r}
spec: {match: [{path: {prefix: /}}], policyRef: {name: in-the-broken-file}}
"""
    with pytest.raises(PolicyErrors) as refused:
        compile_documents(Documents.of([("a.yaml", good), ("b.yaml", "foo: [")]), generation=1, secret=b"")
    assert [error.file for error in refused.value.errors] == ["b.yaml"]
