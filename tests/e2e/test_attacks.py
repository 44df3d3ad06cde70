"""Attempts to get another caller's answer, through real Envoy with its JWT filter.

The origin answers each caller with a secret of his own, and says that it may be kept. Nobody may ever see another's.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import time

import pytest
import pytest_asyncio
from own_envoy import behind_envoy
from running_mesh import PATIENCE, verdict
from scripted_origin import Wire, reply
from tokens import FIRST, KEYS, PAYLOAD, SECOND, bearer, claims_of, signed, token, verifying

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POLICIES = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec:
  identity: {subject: {jwtClaim: sub}, tenant: {jwtClaim: org}}
  trust: {cacheStatus: {from: [any]}}
"""

POLICY = """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {{name: {name}}}
spec:
  tiers: {{warm: {{deadline: 900ms}}, cold: {{deadline: 900ms}}}}
  freshness: {{staleWhileRevalidate: 1h, staleIfError: 1h}}
  key: {{partition: [{partition}]}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {{name: {name}}}
spec: {{match: [{{path: {{prefix: /{name}}}}}], policyRef: {{name: {name}}}}}
"""
POLICIES += POLICY.format(name="tenant", partition="tenant")
POLICIES += POLICY.format(name="person", partition="tenant, subject")
POLICIES += POLICY.format(name="open", partition="")
POLICIES += POLICY.replace("{{staleWhile", "{{ignore: [private, authorization], staleWhile").format(
    name="own", partition="subject"
)

ALICE, EVE = ("alice", "acme"), ("eve", "evil")
# Whoever says so may be kept, although the request is authorized (RFC 9111 section 3.5).
KEPT = ("cache-control", "public, max-age=60")


def secret(sub: object, org: object) -> bytes:
    return f"secret of {sub} at {org}".encode()


@contextlib.asynccontextmanager
async def running(folder, origin, policies=POLICIES, **filter_options):
    """`meshcache serve` behind an Envoy that verifies tokens."""
    more = {"filters_before": (verifying(**filter_options),)}
    async with behind_envoy(folder, origin, "--lookup-timeout", "2", policies=policies, **more) as mesh:
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(make_folder, origin):
    async with running(make_folder(), origin) as mesh:
        yield mesh
        assert await mesh.metric("stream_errors_total") == 0, mesh.log


def tells_secrets(origin, path, *fields, status=200):
    """From now on `path` is answered with the secret of whom the verified token names."""

    async def step(asked, wire: Wire):
        claims = claims_of(asked.get(PAYLOAD))
        body = b"" if asked.method == "HEAD" else secret(claims.get("sub"), claims.get("org"))
        await wire.send(reply(status, fields or (KEPT, ("etag", '"1"')), body))

    origin.script(path, step)


async def keep(mesh, origin, path, who=ALICE, *fields):
    """Have the answer to `who` stored, and see that it is."""
    tells_secrets(origin, path, *fields)
    first = await mesh.get(path, bearer(*who))
    assert first.content == secret(*who)
    assert verdict(first).stored, first.headers
    again = await mesh.get(path, bearer(*who))
    assert verdict(again).hit
    assert again.content == secret(*who)


def forged(name: str) -> dict[str, str] | list[tuple[str, str]]:
    """Ways to pass for alice without her token."""
    good = token(*ALICE)
    head, claims, mac = good.split(".")
    mine = bearer(*EVE)
    lie = base64.urlsafe_b64encode(json.dumps({"sub": "alice", "org": "acme"}).encode()).decode()
    alice: dict[str, object] = {"iss": FIRST, "sub": "alice", "org": "acme"}
    ways: dict[str, dict[str, str] | list[tuple[str, str]]] = {
        "nothing": {},
        "claims in headers": mine | {"sub": "alice", "org": "acme", "x-tenant": "acme", "x-user-id": "alice"},
        "the payload's header": mine | {PAYLOAD: lie},
        "the payload's header alone": {PAYLOAD: lie, "x-envoy-jwt-payload": lie},
        "internal headers": mine | {"x-meshcache-subject": "alice", "x-meshcache-tenant": "acme"},
        "metadata headers": mine | {"x-envoy-dynamic-metadata": lie, "envoy.filters.http.jwt_authn": lie},
        "a forwarded certificate": mine | {"x-forwarded-client-cert": "URI=alice;Subject=CN=acme"},
        "no signature": {"authorization": f"Bearer {signed(alice, b'', 'none')}"},
        "no mac": {"authorization": f"Bearer {head}.{claims}."},
        "another key": {"authorization": f"Bearer {signed(alice, b'x' * 32)}"},
        "the other issuer's key": {"authorization": f"Bearer {signed(alice, KEYS[SECOND])}"},
        "an old token": {"authorization": f"Bearer {signed(alice | {'exp': int(time.time()) - 600}, KEYS[FIRST])}"},
        "her mac on my claims": {"authorization": f"Bearer {head}.{token(*EVE).split('.')[1]}.{mac}"},
        "a name of many": bearer("eve", "evil", sub2="alice") | {},
        "two names": {
            "authorization": f"Bearer {signed(alice | {'sub': ['alice', 'eve'], 'org': ['acme']}, KEYS[FIRST])}"
        },
        "the same name elsewhere": bearer("alice", "acme", issuer=SECOND),
        "a name with blanks": bearer(" alice", " acme"),
        "another case": bearer("ALICE", "ACME"),
        "a name that is cut off": bearer("alice\u0000", "acme\u0000eve"),
        "another scheme": {"authorization": f"bearer {token(*EVE)}", "Authorization2": f"Bearer {good}"},
        "hers in a cookie": mine | {"cookie": f"token={claims}; authorization={claims}"},
    }
    return ways[name]


WAYS = [
    "nothing",
    "claims in headers",
    "the payload's header",
    "the payload's header alone",
    "internal headers",
    "metadata headers",
    "a forwarded certificate",
    "no signature",
    "no mac",
    "another key",
    "the other issuer's key",
    "an old token",
    "her mac on my claims",
    "a name of many",
    "two names",
    "the same name elsewhere",
    "a name with blanks",
    "another case",
    "a name that is cut off",
    "another scheme",
    "hers in a cookie",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("border", ["tenant", "person"])
async def test_nobody_passes_for_another(guarded, origin, name, border, way):
    path = f"/{border}/{name}"
    await keep(guarded, origin, path)
    kept = secret(*ALICE)
    headers = forged(way)
    for method in ("HEAD", "GET", "GET"):
        asked = origin.count(path)
        answer = await guarded.get(path, headers, method=method)
        # Refused by Envoy, or sent to the origin, which knows who asks; the last may find what the one before has left.
        assert answer.status_code == 401 or origin.count(path) > asked or answer.content == b"" or verdict(answer).hit
        if method == "HEAD":
            assert not verdict(answer).hit
        elif way != "the same name elsewhere":
            assert kept not in answer.content
    assert (await guarded.get(path, bearer(*ALICE))).content == kept


async def test_two_tokens_in_one_request_name_nobody_wrongly(guarded, origin, name):
    path = f"/person/{name}"
    await keep(guarded, origin, path)
    mine, hers = token(*EVE), f"{token(*ALICE)[:-4]}AAAA"
    for headers in (
        [("authorization", f"Bearer {mine}"), ("authorization", f"Bearer {hers}")],
        [("authorization", f"Bearer {hers}"), ("authorization", f"Bearer {mine}")],
        [("authorization", f"Bearer {mine}, Bearer {hers}")],
    ):
        assert secret(*ALICE) not in (await guarded.get(path, headers)).content
    assert secret(*ALICE) not in (await guarded.get(f"{path}?access_token={hers}", bearer(*EVE))).content


@pytest.mark.parametrize(
    "extra",
    [
        {"range": "bytes=0-99"},
        {"range": "bytes=0-5", "if-range": '"1"'},
        {"if-none-match": '"1"'},
        {"if-none-match": "*"},
        {"if-modified-since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"cache-control": "only-if-cached"},
        {"cache-control": "max-stale"},
        {"cache-control": "max-stale, only-if-cached"},
        {"vary": "authorization"},
        {"accept": "secret/*"},
        {"x-http-method-override": "HEAD"},
        {"connection": "authorization"},
        {"host": "EXAMPLE.com."},
    ],
    ids=str,
)
@pytest.mark.parametrize("who", [EVE, None], ids=["eve", "nobody"])
async def test_no_condition_or_range_opens_a_border(guarded, origin, name, extra, who):
    path = f"/person/{name}"
    await keep(guarded, origin, path)
    for method in ("HEAD", "GET"):
        answer = await guarded.get(path, (bearer(*who) if who else {}) | extra, method=method)
        assert b"alice" not in answer.content
        assert not verdict(answer).hit
        assert answer.headers.get("content-length") != str(len(secret(*ALICE)))
        # A stored entry of another would make this 304 without the origin.
        assert answer.status_code in (200, 206, 504)


async def test_a_token_of_the_same_person_that_may_see_less_is_another_caller(guarded, origin, name):
    path = f"/person/{name}"

    async def by_scope(asked, wire: Wire):
        await wire.send(reply(200, [KEPT], str(claims_of(asked.get(PAYLOAD)).get("scope")).encode()))

    origin.script(path, by_scope)
    for scope in ("read admin", "read", "admin read"):
        for _ in range(2):
            answer = await guarded.get(path, bearer(*ALICE, scope=scope))
            assert answer.text == scope
        assert verdict(answer).hit


async def test_a_new_token_of_the_same_kind_finds_what_the_old_one_has_left(guarded, origin, name):
    path = f"/person/{name}"
    await keep(guarded, origin, path)
    await asyncio.sleep(1.1)  # another iat and exp
    assert verdict(await guarded.get(path, bearer(*ALICE))).hit


async def test_a_stale_answer_stays_behind_its_border(guarded, origin, name):
    path = f"/person/{name}"
    stale = [("cache-control", "public, max-age=60"), ("age", "100"), ("etag", '"1"')]
    tells_secrets(origin, path, *stale)
    assert (await guarded.get(path, bearer(*ALICE))).content == secret(*ALICE)
    async with origin.down():
        own = await guarded.get(path, bearer(*ALICE))
        assert own.content == secret(*ALICE)
        for headers in (bearer(*EVE), {}):
            assert (await guarded.get(path, headers)).status_code == 503
    assert (await guarded.get(path, bearer(*EVE))).content == secret(*EVE)


async def test_who_waits_for_another_gets_his_own(guarded, origin, name):
    path = f"/person/{name}"
    arrived, go = asyncio.Semaphore(0), asyncio.Event()

    async def slowly(asked, wire: Wire):
        claims = claims_of(asked.get(PAYLOAD))
        arrived.release()
        await go.wait()
        await wire.send(reply(200, [KEPT], secret(claims.get("sub"), claims.get("org"))))

    origin.script(path, slowly)
    people = [ALICE, EVE, ("bob", "acme"), ("alice", "evil")]
    waiting = [asyncio.create_task(guarded.get(path, bearer(*who))) for who in people * 3]
    anonymous = asyncio.create_task(guarded.get(path))
    async with asyncio.timeout(PATIENCE):
        for _ in range(len(people) + 1):
            await arrived.acquire()
    go.set()
    for who, task in zip(people * 3, waiting, strict=True):
        assert (await task).content == secret(*who)
    assert (await anonymous).content == secret(None, None)


async def test_a_write_by_a_stranger_takes_away_and_gives_nothing(guarded, origin, name):
    path = f"/person/{name}"
    await keep(guarded, origin, path)
    assert (await guarded.get(path, bearer(*EVE), method="POST")).content == secret(*EVE)
    answer = await guarded.get(path, bearer(*ALICE))
    assert not verdict(answer).hit
    assert answer.content == secret(*ALICE)


@pytest.mark.parametrize("forward", [True, False], ids=["kept", "taken out"])
async def test_credentials_bind_whether_or_not_envoy_forwards_them(make_folder, origin, name, forward):
    path = f"/open/{name}"
    plain = ("cache-control", "max-age=60")
    async with running(make_folder(), origin, forward=forward, metadata="") as mesh:
        tells_secrets(origin, path, plain)
        for _ in range(2):
            answer = await mesh.get(path, bearer(*ALICE))
            assert answer.content == secret(*ALICE)
            assert not verdict(answer).stored
            assert "authorization" in verdict(answer).detail
        assert ("authorization" in dict(origin.asked(path)[0].fields)) is forward
        # What is stored for strangers is not given to whom the origin may know.
        assert verdict(await mesh.get(path)).stored
        assert verdict(await mesh.get(path)).hit
        assert (await mesh.get(path, bearer(*ALICE))).content == secret(*ALICE)
        # The payload stands under the issuer's name in this one, as older releases of Istio have it.
        await keep(mesh, origin, f"/tenant/{name}")
        assert (await mesh.get(f"/tenant/{name}", bearer(*EVE))).content == secret(*EVE)
        # An answer that all may see is stored once.
        tells_secrets(origin, f"{path}-public", KEPT)
        await mesh.get(f"{path}-public", bearer(*ALICE))
        assert verdict(await mesh.get(f"{path}-public", bearer(*EVE))).hit


@pytest.mark.parametrize("said", ["private, max-age=60", "max-age=60"])
async def test_what_a_policy_keeps_for_a_person_is_his_alone(guarded, origin, name, said):
    path = f"/own/{name}"
    await keep(guarded, origin, path, ALICE, ("cache-control", said), ("etag", '"1"'))
    for way in WAYS:
        answer = await guarded.get(path, forged(way))
        if way != "the same name elsewhere":
            assert secret(*ALICE) not in answer.content, way
    # Alice of another tenant is another person only to policies that mind the tenant: the token differs all the same.
    other = await guarded.get(path, bearer("alice", "evil"))
    assert other.content == secret("alice", "evil")
    assert (await guarded.get(path, bearer(*ALICE))).content == secret(*ALICE)


async def test_a_purge_by_person_reaches_all_that_is_his_and_nothing_else(guarded, origin, name):
    paths = [f"/person/{name}", f"/own/{name}"]
    for path in paths:
        for who in (ALICE, ("alice", "evil"), EVE):
            await keep(guarded, origin, path, who)
    purge = ("purge", "--subject", "alice", "--data", str(guarded.data), "--wait", "10")
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "meshcache", *purge)
    assert await process.wait() == 0
    for path in paths:
        assert verdict(await guarded.get(path, bearer(*EVE))).hit
        for who in (ALICE, ("alice", "evil")):
            answer = await guarded.get(path, bearer(*who))
            assert not verdict(answer).hit
            assert answer.content == secret(*who)


@pytest.mark.parametrize("level", ["standard", "off"])
async def test_strangers_are_told_what_the_configuration_says(make_folder, origin, name, level):
    told = POLICIES.replace("trust: {cacheStatus: {from: [any]}}", f"telemetry: {{cacheStatus: {level}}}")
    path = f"/open/{name}"
    inner = ("cache-status", "inner; hit; detail=secret")
    origin.script(path, reply(200, [KEPT, inner], b"x"))
    async with running(make_folder(), origin, told) as mesh:
        said = [(await mesh.get(path)).headers.get("cache-status") for _ in range(2)]
        said.append((await mesh.get(path, {"cache-control": "no-cache"})).headers.get("cache-status"))
        said.append((await mesh.get(path, method="POST")).headers.get("cache-status"))
        if level == "off":
            assert said == [None] * 4
        else:
            assert not any("policy=" in (text or "detail=") or "tier=" in (text or "") for text in said)
            assert (said[1] or "").startswith("meshcache; hit; ttl=")
