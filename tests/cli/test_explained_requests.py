"""`meshcache explain`: the request that its options describe is the one that the cache would get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from explaining import URL, Explain


def test_one_file_of_policies(explain: Explain, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    route = "kind: CacheRoute\nmetadata: {name: all}\nspec: {match: [{path: {prefix: /}}]}\n"
    path.write_text(f"apiVersion: meshcache.dev/v1alpha1\n{route}")
    status, out, _ = explain(*URL, policies=path)
    assert (status, "route      all (path prefix /)" in out) == (0, True)
    path.write_text("kind: CacheRoute\n")
    status, _, err = explain(*URL, policies=path)
    assert (status, "apiVersion: required" in err) == (1, True)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("HTTP://h/v1/images/%7Ea/../\u00fc?q=\u00e4 b#top", "http://h/v1/images/%C3%BC?q=%C3%A4%20b"),
        ("https://ann:secret@[::1]:8443", "https://[::1]:8443/"),
        ("http://h?x", "http://h/?x"),
    ],
)
def test_a_url_is_explained_as_the_cache_gets_it(explain: Explain, url: str, sent: str) -> None:
    status, out, _ = explain("--url", url)
    assert (status, out.splitlines()[0]) == (0, f"request    GET {sent}")


def test_the_host_of_a_field_goes_before_that_of_the_url(explain: Explain) -> None:
    _, named, _ = explain("--url", "http://127.0.0.1/a", "-H", "Host: h.example")
    _, plain, _ = explain("--url", "http://h.example/a")
    assert named == plain


def test_fields_are_bytes(explain: Explain, tmp_path: Path) -> None:
    policy = "kind: CachePolicy\nmetadata: {name: p}\nspec: {key: {headers: [x-a]}}\n"
    route = "kind: CacheRoute\nmetadata: {name: r}\nspec: {match: [{}], policyRef: {name: p}}\n"
    version = "apiVersion: meshcache.dev/v1alpha1\n"
    (tmp_path / "p.yaml").write_text(f"{version}{policy}---\n{version}{route}")
    _, out, _ = explain("--url", "http://h/", "-H", "x-a: \u20ac", "--json", policies=tmp_path)
    assert "\u20ac".encode().decode("latin-1") in json.loads(out)["key"].values()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--url", "http://h/a\nb"), "--url: expected no control characters"),
        (("--url", "http://h /a"), "--url: expected the host as clients send it"),
        (("--url", "http://m\xfcnchen.example/"), "xn--"),
        (("--url", "http://h:70000/"), "--url: expected a port of at most 65535"),
        (("--url", "http://h/\udcff"), "--url: expected text in UTF-8"),
        ((*URL, "-H", "a b: c"), "--header: expected `name: value`, got 'a b: c'"),
        ((*URL, "-H", "a: b\nc: d"), "--header: expected `name: value`, got 'a: b\\nc: d'"),
    ],
)
def test_what_no_client_could_send_is_wrong_usage(explain: Explain, arguments: tuple[str, ...], told: str) -> None:
    status, out, err = explain(*arguments)
    assert (status, out) == (2, "")
    assert told in err
