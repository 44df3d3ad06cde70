"""Which requests are looked up at all."""

from __future__ import annotations

import pytest

from meshcache.decisions import BypassReason
from meshcache.engine.admission import bypass_reason, effective_method
from meshcache.message import Headers, Request
from meshcache.rfc.invalidation import is_unsafe


def request(
    method: str = "GET", path: str = "/a", *, authority: str = "example.com", complete: bool = True, **headers: str
) -> Request:
    fields = Headers((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(method, authority, path, fields, complete=complete)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_plain_requests_are_looked_up(method: str) -> None:
    assert bypass_reason(request(method, x_http_method_override=method)) is None
    assert bypass_reason(request(method, if_none_match='"a"', authorization="x", cookie="a=b")) is None


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (request("POST"), BypassReason.METHOD),
        (request("OPTIONS"), BypassReason.METHOD),
        (request("get"), BypassReason.METHOD),
        (request("PROPFIND"), BypassReason.METHOD),
        (request(x_http_method_override="delete"), BypassReason.METHOD),
        (request(x_http_method="PUT"), BypassReason.METHOD),
        (request("HEAD", x_method_override="GET"), BypassReason.METHOD),
        (request("POST", complete=False), BypassReason.METHOD),
        (request(complete=False), BypassReason.REQUEST_BODY),
        (request(path="/static/..%2Faccount"), BypassReason.AMBIGUOUS_PATH),
        (request("HEAD", "/static/..;/account"), BypassReason.AMBIGUOUS_PATH),
        (request("POST", "/static/..;/account"), BypassReason.METHOD),
        (request(if_match='"a"'), BypassReason.PRECONDITION),
        (request(if_unmodified_since="Tue, 14 Nov 2023 22:13:20 GMT"), BypassReason.PRECONDITION),
        (request(upgrade="websocket", connection="upgrade"), BypassReason.UPGRADE),
        (request("POST", content_type="application/grpc"), BypassReason.GRPC),
        (request("POST", content_type="Application/gRPC+proto; x=1"), BypassReason.GRPC),
        (request("POST", content_type="application/grpc-web+proto"), BypassReason.METHOD),
        (request("OPTIONS", "*"), BypassReason.BAD_REQUEST),
        (request("CONNECT", ""), BypassReason.BAD_REQUEST),
        (request(authority=""), BypassReason.BAD_REQUEST),
        (request(authority="a" * 261), BypassReason.BAD_REQUEST),
    ],
)
def test_the_others_go_to_the_origin(asked: Request, reason: BypassReason) -> None:
    assert bypass_reason(asked) is reason


def overriding(*fields: tuple[str, str], method: str = "GET") -> str:
    return effective_method(Request(method, "example.com", "/a", Headers(fields)))


def test_of_several_methods_that_a_request_names_the_unsafe_one_counts() -> None:
    assert overriding(("x-http-method-override", "GET"), ("x-method-override", "delete")) == "DELETE"
    assert overriding(("x-http-method-override", "HEAD"), ("x_http_method", "PUT")) == "PUT"
    assert overriding(("x-http-method-override", "GET"), ("x-http-method", "head")) == "HEAD"
    assert overriding(("x-http-method-override", ""), ("x-http-method", "GET")) == "GET"


def test_a_method_with_anything_about_it_but_blanks_is_another_one() -> None:
    assert overriding(("x-http-method-override", " get\t")) == "GET"
    assert is_unsafe(overriding(("x-http-method-override", "GET\xa0")))
    assert is_unsafe(overriding(("x-http-method-override", "GET"), ("x-http-method-override", "GET")))
    assert is_unsafe(overriding(("x-http-method-override", "\x85")))
