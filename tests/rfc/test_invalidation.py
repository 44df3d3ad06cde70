import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Headers
from meshcache.rfc.invalidation import invalidates, is_unsafe, other_targets


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "REPORT", "SEARCH"])
def test_safe_methods(method: str) -> None:
    assert not is_unsafe(method)
    assert not invalidates(method, 200)


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "search", "PROPPATCH", "FOO", "get", ""]
)
@pytest.mark.parametrize(
    ("status", "expected"),
    [(100, False), (200, True), (204, True), (303, True), (400, False), (404, False), (500, False)],
)
def test_unsafe_methods_invalidate_unless_they_fail(method: str, status: int, expected: bool) -> None:
    assert is_unsafe(method)
    assert invalidates(method, status) is expected


def targets(
    *values: str, path: str = "/a/b?q=1", authority: str = "example.com", scheme: str = "http"
) -> tuple[str, ...]:
    names = ("location", "content-location")
    headers = Headers([(names[index % 2], value) for index, value in enumerate(values)])
    return other_targets(scheme=scheme, authority=authority, path=path, response_headers=headers)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("/c", ("/c",)),
        ("c?x=1#part", ("/a/c?x=1",)),
        ("../d", ("/d",)),
        ("?x=2", ("/a/b?x=2",)),
        ("http://example.com", ("/",)),
        ("http://EXAMPLE.com:80/c", ("/c",)),
        ("//example.com/c", ("/c",)),
        # The target itself.
        ("", ()),
        ("#part", ()),
        ("/a/b?q=1", ()),
        # Other origins.
        ("https://example.com/c", ()),
        ("http://example.com:81/c", ()),
        ("http://example.org/c", ()),
        ("//example.org/c", ()),
        ("http://example.com@example.org/c", ()),
        ("http://user@example.com/c", ()),
        # No URI references.
        ("http://[", ()),
        ("http://example.com:x/c", ()),
        ("http://example.com:99999/c", ()),
        ("mailto:a@example.com", ()),
    ],
)
def test_other_targets(reference: str, expected: tuple[str, ...]) -> None:
    assert targets(reference) == expected


def test_both_fields_count_and_each_path_once() -> None:
    assert targets("/c", "/d") == ("/c", "/d")
    assert targets("/c", "/c") == ("/c",)
    assert targets() == ()


def test_ports_of_the_target() -> None:
    assert targets("https://example.com:8443/c", authority="example.com:8443", scheme="https") == ("/c",)
    assert targets("https://example.com/c", authority="example.com:443", scheme="https") == ("/c",)
    assert targets("https://example.com/c", authority="example.com:8443", scheme="https") == ()
    assert targets("/c", authority="[::1]:8080") == ("/c",)


@pytest.mark.parametrize(
    ("authority", "path"), [("[", "/"), ("", "/"), ("a:b", "/"), ("a", "*"), ("a", "@example.com/")]
)
def test_a_target_without_an_origin_has_no_others(authority: str, path: str) -> None:
    assert targets("/c", authority=authority, path=path) == ()


@given(st.text(max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_other_targets_is_total(reference: str, authority: str, path: str) -> None:
    for target in targets(reference, authority=authority, path=path):
        assert target.startswith("/")
    for target in targets(reference):
        assert target.startswith("/")
