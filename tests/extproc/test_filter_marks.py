"""The marks of the filter at the edge: what comes with a request, and what goes with its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from envoy_streams import Stream, body, request, response

from cache_harness import Rig
from meshcache.decisions import AskedFor
from meshcache.engine.key import cache_key
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.extproc.filter_marks import FilterMarks
from meshcache.message import Headers, Request
from meshcache.rfc.fields import format_http_date
from meshcache.wasm.labels import Kind, label
from meshcache.wasm.marks import ASK, DROP, KEEP, Ask, Drop, Keep, parse_drop, parse_keep, write_ask
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = policies(freshness="{defaultTtl: 60s, staleWhileRevalidate: 30s}")
PLAN = b"plan-one"
SECRET = bytes(range(32))


class Edge:
    """A processor over a rig, whose marks know one plan."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.told: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.marks = FilterMarks(lambda why, outcome: self.told.append((why, outcome)))
        self.marks.admit(SECRET, frozenset({PLAN}))
        self.processor = ExternalProcessor(
            rig.cache, on_error=lambda _, error: self.errors.append(str(error)), lookup_timeout=5.0, marks=self.marks
        )

    def digest(self, path: str = "/a", method: str = "GET") -> bytes:
        snapshot = self.rig.cache.snapshot
        assert snapshot is not None
        asked = Request(method, "example.com", path, Headers())
        selection = snapshot.select(asked)
        assert selection.policy is not None
        namespace = selection.namespace
        return cache_key(asked, selection.policy.key, namespace=namespace, revision=snapshot.revision(asked)).digest

    def ask(self, why: AskedFor = AskedFor.MISS, path: str = "/a", plan: bytes = PLAN) -> tuple[str, str]:
        digest = bytes(32) if why is AskedFor.UNSAFE else self.digest(path)
        return ASK, write_ask(Ask(plan, digest, why), SECRET)

    async def talk(self, *messages: Any) -> Stream:
        stream = Stream(*messages)
        await self.processor.converse(stream)
        await self.rig.settle()
        assert self.errors == []
        return stream


def fields(reply: Any) -> dict[str, str]:
    """The header fields that a reply sets."""
    kind = reply.WhichOneof("response")
    mutation = reply.immediate_response.headers if kind == "immediate_response" else None
    mutation = mutation or getattr(reply, kind).response.header_mutation
    return {item.header.key: item.header.raw_value.decode("latin-1") for item in mutation.set_headers}


def kept(reply: Any) -> Keep | None:
    text = fields(reply).get(KEEP)
    if text is None:
        return None
    found = parse_keep(text, SECRET)
    assert found is not None
    assert found[0] == PLAN
    return found[2]


DATED = {"content_type": "text/plain", "content_length": "3"}


def dated(rig: Rig) -> dict[str, str]:
    """Header fields of an answer that was made just now."""
    return DATED | {"date": format_http_date(rig.clock())}


def asked(ask: tuple[str, str], **more: Any) -> Any:
    message = request(**more)
    message.request_headers.headers.headers.add(key=ask[0], raw_value=ask[1].encode())
    return message


async def test_an_answer_that_is_stored_may_be_kept_as_it_goes_by(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        now = rig.clock()
        fresh = dated(rig)
        miss = await edge.talk(asked(edge.ask()), response(**fresh, surrogate_key="red blue"), body(b"one", end=True))
        head, answer, _ = miss.replies
        # The origin does not see the mark.
        assert ASK in head.request_headers.response.header_mutation.remove_headers
        keep = kept(answer)
        assert keep is not None
        assert keep.birth // 1000 == int(now)
        assert (keep.fresh_until - keep.birth, keep.stale_until - keep.birth) == (60_000, 90_000)
        assert keep.drop_at == keep.stale_until
        assert keep.renew_at == 0
        assert keep.vary == ()
        assert label(Kind.TAG, b"red") in keep.labels
        assert label(Kind.ROUTE, b"all") in keep.labels
        assert edge.told == [("miss", "keep")]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("bound", [100, 200])
async def test_the_mark_takes_no_room_from_what_the_client_sees(tmp_path: Path, bound: int, method: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        marked = []
        why = AskedFor.MISS if method == "GET" else AskedFor.UNSAFE
        for number in range(bound - 12, bound + 4):
            path = f"/{number}"
            answer = response(**dated(rig), **{f"x_{at}": "v" for at in range(number)})
            with_mark = await edge.talk(asked(edge.ask(why, path), path=path, method=method), answer)
            rig.forget_memory()
            without = await edge.talk(request(path=path, method=method), answer)
            said = fields(with_mark.replies[1])
            marked.append(bool({KEEP, DROP} & said.keys()))
            shown = {name: value for name, value in said.items() if name not in (KEEP, DROP)}
            assert shown == fields(without.replies[1])
        assert set(marked) == {True, False}


async def test_a_hit_may_be_kept_for_what_is_left_of_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        now = rig.clock()
        fresh = dated(rig)
        await edge.talk(request(), response(**fresh), body(b"one", end=True))
        rig.clock.pass_by(40)
        [reply] = (await edge.talk(asked(edge.ask()))).replies
        keep = kept(reply)
        assert keep is not None
        assert (keep.birth // 1000, keep.fresh_until // 1000) == (int(now), int(now) + 60)
        said = fields(reply)
        assert said["age"] == "40"
        assert reply.immediate_response.body == b"one"
        [without] = (await edge.talk(request())).replies
        assert {name: value for name, value in said.items() if name != KEEP} == fields(without)


@pytest.mark.parametrize(
    "what", ["forged", "other plan", "other secret", "other key", "twice", "no plan", "HEAD", "not modified", "long"]
)
async def test_what_is_not_asked_rightly_is_not_kept(tmp_path: Path, what: str) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        fresh = dated(rig) | {"etag": '"e"'}
        await edge.talk(request(), response(**fresh), body(b"one", end=True))
        name, value = edge.ask(plan=b"plan-two") if what == "other plan" else edge.ask()
        more: dict[str, Any] = {}
        match what:
            case "forged":
                value = value[:-1] + ("0" if value[-1] != "0" else "1")
            case "other secret":
                edge.marks.admit(bytes(32), frozenset({PLAN}))
            case "other key":
                value = edge.ask(path="/b")[1]
            case "no plan":
                edge.marks.admit(SECRET, frozenset())
            case "HEAD":
                more = {"method": "HEAD"}
            case "not modified":
                more = {"if_none_match": '"e"'}
        message = asked((name, value), **more)
        if what == "twice":
            message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
        if what == "long":
            message = asked((name, "x" * 5000))
        [reply] = (await edge.talk(message)).replies
        assert reply.WhichOneof("response") == "immediate_response"
        assert kept(reply) is None


async def test_the_mark_is_no_part_of_the_key_and_is_not_varied_on(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        fresh = dated(rig) | {"vary": ASK}
        await edge.talk(asked(edge.ask()), response(**fresh), body(b"one", end=True))
        [reply] = (await edge.talk(request())).replies
        assert reply.immediate_response.body == b"one"
        [reply] = (await edge.talk(asked((ASK, "anything")))).replies
        assert reply.immediate_response.body == b"one"


async def test_an_unsafe_request_is_told_what_it_has_made_invalid(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        heard: list[frozenset[bytes]] = []
        rig.cache.on_invalid = heard.append
        message = asked(edge.ask(AskedFor.UNSAFE), method="POST", end=False)
        stream = await edge.talk(message, response(201, location="/b", **DATED))
        drop = parse_drop(fields(stream.replies[1])[DROP], SECRET)
        assert drop is not None
        assert drop[:2] == (PLAN, bytes(32))
        labels = drop[2].labels
        assert labels is not None
        assert len(labels) == 2
        # All are told of it by way of the supervisor, too: the client may leave before his answer gets to the filter.
        stream = await edge.talk(request("POST", end=False), response(201, location="/b", **DATED))
        assert DROP not in fields(stream.replies[1])
        for resources in heard:
            assert {label(Kind.RESOURCE, resource) for resource in resources} == set(labels)
        assert len(heard) == 2


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ({"status": 404}, {}),
        ({"status": 201, "details": "no_healthy_upstream"}, {}),
        ({"status": 201}, {"path": "nowhere"}),
        ({"status": 500}, {}),
    ],
)
async def test_it_is_told_so_when_that_is_nothing(tmp_path: Path, head: dict[str, Any], more: dict[str, Any]) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        message = asked(edge.ask(AskedFor.UNSAFE), method="DELETE", **more)
        stream = await edge.talk(message, response(**head, **DATED))
        drop = parse_drop(fields(stream.replies[1])[DROP], SECRET)
        assert drop is not None
        assert drop[2] == Drop(())
        assert edge.told == [("unsafe", "nothing")]


@pytest.mark.parametrize("more", [{}, {"x_http_method_override": "GET"}, {"upgrade": "websocket"}, {"path": "*"}])
async def test_whatever_the_filter_takes_for_unsafe_is_told_what_it_has_changed(
    tmp_path: Path, more: dict[str, str]
) -> None:
    # It would drop everything otherwise, and any client can send more fields than it looks at.
    async with Rig(tmp_path, PLAIN) as rig:
        edge = Edge(rig)
        await edge.talk(request(), response(**dated(rig)), body(b"one", end=True))
        stream = await edge.talk(asked(edge.ask(AskedFor.UNSAFE), **more), response(200, **DATED))
        drop = parse_drop(fields(stream.replies[1])[DROP], SECRET)
        assert drop is not None
        assert drop[2] == Drop(())


async def test_very_much_is_everything(tmp_path: Path) -> None:
    marks = FilterMarks()
    marks.admit(SECRET, frozenset({PLAN}))
    ask = Ask(PLAN, bytes(32), AskedFor.UNSAFE)
    for count, expected in ((64, 64), (65, None)):
        field = marks.drop(ask, [number.to_bytes(16, "big") for number in range(count)])
        assert field is not None
        drop = parse_drop(field[1], SECRET)
        assert drop is not None
        assert (drop[2].labels and len(drop[2].labels)) == expected
