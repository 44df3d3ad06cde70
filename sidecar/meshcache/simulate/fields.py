"""What columns and JSON members of a trace are called, and how their texts make a request."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from meshcache.rfc.fields import is_token
from meshcache.simulate.trace import UNKNOWN_SIZE, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshcache.simulate.stamps import Stamps

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "time": (
        *("time", "timestamp", "@timestamp", "start_time", "ts", "msec"),
        *("time_iso8601", "time_local", "datetime", "date"),
    ),
    "method": ("method", "request_method", "verb"),
    "target": (
        *("url", "path", "uri", "request_uri", "request_url", "request_path", "target", "x_envoy_original_path"),
        *("key", "object", "id"),
    ),
    "request": ("request",),
    "host": ("host", "authority", "server_name", "http_host", "request_host"),
    "status": ("status", "response_code", "code", "status_code", "downstream_status"),
    "size": (
        *("bytes", "size", "body_bytes_sent", "bytes_sent", "response_size", "downstream_content_size", "object_size"),
    ),
    "user": (
        *("user", "user_id", "unit", "client", "remote_user", "x_forwarded_for", "remote_addr", "client_ip"),
        *("remote_ip", "client_host"),
    ),
    "cache_control": ("cache_control", "response_cache_control", "sent_http_cache_control"),
}
"""What a trace may call each, in lower case and with underscores; of several that are there the first counts."""

HEADER_PREFIX: Final = "header:"
"""A column `header:NAME` holds a header field of the request."""
_INNER_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STATUS: Final = re.compile(r"([1-5][0-9]{2})(?:\.0*)?", re.ASCII)
_WHOLE: Final = re.compile(r"[0-9]{1,15}\.0*|[0-9](?:\.[0-9]{0,12})?[eE]\+?[0-9]{1,2}", re.ASCII)
"""A whole number as programs write it that know numbers with a point only."""
_SIZE_DIGITS: Final = 15
_REMEMBERED: Final = 256
"""Characters of a URL or a name that are remembered; longer ones are too few to matter, and too large to be kept."""
_EMPTY: Final = ("", "-")


@lru_cache(maxsize=1024)
def plain_name(name: str) -> str:
    """A column's name as `NAMES` has it: `statusCode` is `status_code`, too."""
    return _INNER_CAPITAL.sub("_", name.strip()).lower().replace("-", "_").replace(" ", "_")


def places(names: list[str]) -> dict[str, int]:
    """For each part of a request, which of a table's columns holds it."""
    there = {plain_name(name): place for place, name in reversed(list(enumerate(names)))}
    return {
        part: next(there[name] for name in known if name in there)
        for part, known in NAMES.items()
        if any(name in there for name in known)
    }


def target_of(text: str, host: str) -> tuple[str, str]:
    """Host and path with query of a URL, a path, or a mere name. Raises `ValueError`.

    What a trace asks for again and again is one object each time: comparing and hashing it costs next to nothing then.
    """
    return _known_target(text, host) if len(text) <= _REMEMBERED else _target_of(text, host)


def _target_of(text: str, host: str) -> tuple[str, str]:
    if text[:1] == "/":
        return host, text
    scheme, found, rest = text.partition("://")
    if found and scheme.isalpha():
        authority, slash, path = rest.partition("/")
        if not slash:
            authority, mark, query = rest.partition("?")
            path = mark + query
        if not authority:
            raise ValueError("a URL without a host")
        return authority.rpartition("@")[2], f"/{path}"
    if not text or text == "-":
        raise ValueError("no URL")
    return host, f"/{text}"


_known_target = lru_cache(maxsize=1 << 16)(_target_of)
_known_user: Final = lru_cache(maxsize=1 << 16)(str)


def user_of(text: str) -> str:
    """Who asks, as one object for all his requests."""
    return _known_user(text) if len(text) <= _REMEMBERED else text


@lru_cache(maxsize=256)
def status_of(text: str) -> int:
    """Raises `ValueError`."""
    found = _STATUS.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is no status")
    return int(found[1])


def size_of(text: str) -> int:
    """Bytes; negative for none given. Raises `ValueError`."""
    if len(text) <= _SIZE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    if text in _EMPTY:
        return UNKNOWN_SIZE
    if _WHOLE.fullmatch(text) and float(text).is_integer() and float(text) < 10**_SIZE_DIGITS:
        return int(float(text))
    raise ValueError(f"{text[:40]!r} is no number of bytes")


@lru_cache(maxsize=256)
def method_of(text: str) -> str:
    """Raises `ValueError`."""
    if not is_token(text):
        raise ValueError(f"{text!r} is no method")
    return text


def split_request_line(text: str) -> tuple[str, str]:
    """Method and target of `GET /a HTTP/1.1`. Raises `ValueError`."""
    parts = text.split(" ")
    if len(parts) not in (2, 3):
        raise ValueError(f"{text[:40]!r} is no request line")
    return parts[0], parts[1]


def request_of(
    stamp: str,
    method: str,
    target: str,
    line: str,
    said: str,
    status: str,
    size: str,
    user: str,
    control: str,
    *,
    host: str,
    stamps: Stamps,
    fields: tuple[tuple[str, str], ...] = (),
) -> TraceRequest:
    """The request that the parts of a line make, in the order of `NAMES`; `""` and `-` stand for none.

    `host` is where it goes if the line does not say. Raises `ValueError` for what is no request.
    """
    if line not in _EMPTY:
        of_line = split_request_line(line)
        method, target = (
            mine if mine not in _EMPTY else its for mine, its in zip((method, target), of_line, strict=True)
        )
    host, path = target_of(target, said if said not in _EMPTY else host)
    return TraceRequest(
        stamps.seconds(stamp),
        path,
        size_of(size),
        status_of(status) if status not in _EMPTY else 200,
        method_of(method) if method not in _EMPTY else "GET",
        host,
        user_of(user) if user != "-" else "",
        control if control not in _EMPTY else None,
        fields,
    )


def text_of(value: object) -> str:
    """A member of a JSON object as a table would have it: a character for each byte, numbers without exponents."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogatepass").decode("latin-1")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    # What has gone through a program that knows no whole numbers may be written `200.0` or `1e3`.
    return str(int(value)) if isinstance(value, int) or value.is_integer() else format(value, "f")
