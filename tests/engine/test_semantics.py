"""Rules of HTTP caching as a client sees them: only-if-cached, HEAD, targeted fields, codings, private fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from meshcache.rfc.fields import format_http_date
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from cache_origin import Reply
    from meshcache.message import Request

PLAIN = policies(freshness="{mode: rfc9111}")


async def test_only_if_cached_fetches_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        only = {"cache-control": "only-if-cached"}
        got = await rig.get("/a", only)
        assert (got.status, got.body, got.decision) == (504, b"", "only-if-cached")
        assert "age" not in got.headers
        assert got.headers.get("cache-status") == 'meshcache; detail="only-if-cached policy=p"'
        assert rig.origin.asked == []
        assert rig.meter.requests[-1][:3] == ("only-if-cached", "uri-miss", "")
        await rig.get()
        assert (await rig.get("/a", only)).body == b"one"
        rig.clock.pass_by(61)
        assert (await rig.get("/a", only)).status == 504
        assert (await rig.get("/a", {"cache-control": "only-if-cached, max-stale=10"})).body == b"one"
        assert len(rig.origin.asked) == 1


async def test_head_brings_a_stale_answer_up_to_date(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"four", headers={"x-a": "1", "x-b": "1"}, cache_control="max-age=10")
        await rig.get()
        rig.clock.pass_by(11)
        rig.origin.says("/a", b"four", headers={"x-a": "2", "content-length": "4"}, cache_control="max-age=60")
        got = await rig.ask("HEAD")
        assert (got.status, got.body, got.decision, got.age) == (200, b"", "revalidated", 0)
        assert (got.headers.get("x-a"), got.headers.get("x-b")) == ("2", "1")
        assert "fwd=stale; fwd-status=200; stored" in (got.headers.get("cache-status") or "")
        rig.clock.pass_by(30)
        got = await rig.get()
        assert (got.decision, got.body, got.headers.get("x-a"), got.age) == ("hit", b"four", "2", 30)


async def test_head_that_does_not_fit_drops_the_stored_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"four", headers={"etag": '"1"'}, cache_control="max-age=600")
        await rig.get()
        rig.origin.says("/a", b"fives", headers={"etag": '"2"'}, cache_control="max-age=600")
        got = await rig.ask("HEAD", "/a", {"cache-control": "no-cache"})
        assert (got.decision, got.headers.get("etag")) == ("revalidate", '"2"')
        assert (await rig.get()).body == b"fives"


@pytest.mark.parametrize("validator", [{"etag": '"1"'}, {"last-modified": "Sun, 06 Nov 1994 08:49:37 GMT"}])
@pytest.mark.parametrize("asked", [{"if-none-match": '"1"'}, {}])
async def test_a_head_that_the_origin_answers_in_spite_of_the_stored_validator_gets_that_answer(
    tmp_path: Path, validator: dict[str, str], asked: dict[str, str]
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"four", headers=validator, cache_control="max-age=10")
        await rig.get()
        rig.clock.pass_by(11)
        # What is stored is no longer what is there, says the origin; what is there has no validator.
        rig.origin.says("/a", b"five", headers={"content-length": "4"}, cache_control="max-age=60")
        got = await rig.ask("HEAD", "/a", asked)
        assert (got.status, got.headers.get("etag")) == (200, None)
        assert (await rig.get()).body == b"five"


async def test_a_head_that_names_nothing_of_what_is_stored_but_another_type_renews_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"{}", headers={"content-type": "application/json"}, cache_control="max-age=10")
        await rig.get()
        rig.clock.pass_by(11)
        rig.origin.says("/a", b"<p>", headers={"content-type": "text/html"}, cache_control="max-age=60")
        got = await rig.ask("HEAD")
        assert (got.status, got.decision, got.headers.get("content-type")) == (200, "miss", "text/html")
        got = await rig.get()
        assert (got.body, got.headers.get("content-type")) == (b"<p>", "text/html")


async def test_a_good_head_is_not_answered_by_a_stored_error(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"four", status=500, headers={"etag": '"1"'}, cache_control="max-age=600")
        await rig.get()
        rig.origin.says("/a", b"four", headers={"etag": '"1"'}, cache_control="max-age=600")
        assert (await rig.ask("HEAD", "/a", {"cache-control": "no-cache"})).status == 200
        got = await rig.get()
        assert (got.status, got.decision) == (200, "miss")


async def test_head_of_an_authorized_caller_changes_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"four", headers={"x-a": "all"}, cache_control="max-age=60")
        await rig.get()
        rig.origin.says("/a", b"four", headers={"x-a": "bob"}, cache_control="max-age=60")
        got = await rig.ask("HEAD", "/a", {"authorization": "Bearer bob"})
        assert (got.decision, got.headers.get("x-a")) == ("miss", "bob")
        assert (await rig.get()).headers.get("x-a") == "all"


async def test_a_head_that_forbids_to_store_ends_the_stored_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"four", cache_control="max-age=10")
        await rig.get()
        rig.clock.pass_by(11)
        rig.origin.says("/a", b"four", cache_control="no-store")
        await rig.ask("HEAD")
        rig.origin.says("/a", b"two", cache_control="max-age=10")
        assert (await rig.get()).body == b"two"


async def test_what_is_for_this_cache_goes_before_what_is_for_all(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", headers={"cdn-cache-control": "max-age=60"}, cache_control="no-store")
        await rig.get()
        got = await rig.get()
        assert (got.decision, got.headers.get("cache-control")) == ("hit", "no-store")
        assert got.headers.get("cdn-cache-control") == "max-age=60", "it is passed on"
        [asked] = rig.origin.asked
        assert asked.headers.get("surrogate-capability") == 'meshcache="Surrogate/1.0"'


def compressing(vary: str | None) -> object:
    """An origin that compresses for whoever names gzip, and says `vary` or forgets to."""

    def reply(request: Request) -> Reply:
        from cache_origin import Reply

        zipped = "gzip" in (request.headers.get("accept-encoding") or "")
        headers = [("cache-control", "max-age=60")]
        headers += [("content-encoding", "gzip")] if zipped else []
        headers += [] if vary is None else [("vary", vary)]
        return Reply(200, headers, b"zipped" if zipped else b"plain")

    return reply


async def test_a_coding_is_kept_from_clients_that_do_not_take_it(tmp_path: Path) -> None:
    for vary in (None, "accept-encoding"):
        async with Rig(tmp_path / str(vary), PLAIN) as rig:
            rig.origin.does("/a", compressing(vary))  # type: ignore[arg-type]
            zips = {"accept-encoding": "gzip, br"}
            assert (await rig.get("/a", zips)).body == b"zipped"
            assert (await rig.get("/a", {"accept-encoding": "br, gzip"})).decision == "hit"
            for plain in ({"accept-encoding": "identity"}, {"accept-encoding": "gzip;q=0"}, {}):
                rig.origin.does("/a", compressing(vary))  # type: ignore[arg-type]
                first = await rig.get("/a", plain)
                assert first.decision == "miss"
                assert "content-encoding" not in first.headers or "gzip" in str(plain)
            again = await rig.get("/a", zips)
            assert (again.decision, again.body) == ("hit", b"zipped"), "variants do not push each other out"


async def test_a_coding_that_nobody_asked_for_is_not_given_to_who_refuses_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"zipped", headers={"content-encoding": "gzip"}, cache_control="max-age=60")
        refuses = {"accept-encoding": "identity"}
        await rig.get("/a", refuses)
        assert (await rig.get("/a", refuses)).decision == "miss"
        rig.forget_memory()
        assert (await rig.get("/a", refuses)).decision == "miss"
        await rig.get("/a")
        assert (await rig.get("/a")).decision == "hit", "without the field a client takes any coding"


async def test_private_fields_are_left_out_of_what_others_get(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        headers = {"x-user": "bob", "x-b": "1"}
        rig.origin.says("/a", b"one", headers=headers, cache_control='max-age=60, private="x-user"')
        assert (await rig.get()).headers.get("x-user") == "bob"
        got = await rig.get()
        assert (got.decision, got.headers.get("x-user"), got.headers.get("x-b")) == ("hit", None, "1")


async def test_what_changed_long_ago_is_taken_to_stay_for_a_while(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        changed = format_http_date(rig.clock() - 1000)
        rig.origin.says("/a", b"one", headers={"last-modified": changed})
        rig.origin.says("/lost", b"none", status=404, headers={"last-modified": changed})
        for path in ("/a", "/lost"):
            await rig.get(path)
            assert (await rig.get(path)).decision == "hit"
        rig.clock.pass_by(101)
        assert (await rig.get("/a")).decision == "revalidate"
        assert (await rig.get("/lost")).decision == "miss"


async def test_what_comes_stale_is_for_those_who_take_it_so(tmp_path: Path) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        rig.origin.says("/a", b"one", headers={"age": "2000"}, cache_control="max-age=1500")
        rig.origin.says("/b", b"two", headers={"age": "2000"}, cache_control="max-age=1500, must-revalidate")
        for path in ("/a", "/b"):
            await rig.get(path)
            assert (await rig.get(path)).decision == "miss"
        assert rig.meter.stores == ["stored", "stored", "no-freshness", "no-freshness"]
        takes = {"cache-control": "max-stale=1000"}
        assert (await rig.get("/a", takes)).body == b"one"
        assert (await rig.get("/a", takes)).decision == "hit"
        assert (await rig.get("/a", {"cache-control": "max-stale=400"})).decision == "miss"
        assert (await rig.get("/b", takes)).decision == "miss"
