"""Which requests are looked up at all."""

from __future__ import annotations

import pytest

from meshcache.decisions import BypassReason
from meshcache.engine.admission import bypass_reason
from meshcache.message import Headers, Request


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
