"""What columns and JSON members of a trace are called, and how their texts make a request."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from meshcache.rfc.fields import is_token
from meshcache.simulate.stamps import scaled, unix_seconds
from meshcache.simulate.trace import UNKNOWN_SIZE, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("time", "timestamp", "@timestamp", "start_time", "ts", "date", "time_iso8601", "msec"),
    "method": ("method", "request_method", "verb"),
    "target": ("url", "path", "uri", "request_uri", "target", "x_envoy_original_path", "key", "object", "id"),
    "request": ("request",),
    "host": ("host", "authority", "server_name", "http_host"),
    "status": ("status", "response_code", "code", "status_code"),
    "size": ("bytes", "size", "bytes_sent", "body_bytes_sent", "response_size", "object_size"),
    "user": ("user", "user_id", "unit", "client", "remote_user", "x_forwarded_for", "remote_addr", "client_ip"),
    "cache_control": ("cache_control", "response_cache_control", "sent_http_cache_control"),
}
"""What a trace may call each, in lower case and with underscores; of several that are there the first counts."""

HEADER_PREFIX: Final = "header:"
"""A column `header:NAME` holds a header field of the request."""
_STATUS: Final = re.compile(r"[1-5][0-9]{2}", re.ASCII)
_SIZE_DIGITS: Final = 15
_EMPTY: Final = ("", "-")


def plain_name(name: str) -> str:
    """A column's name as `NAMES` has it."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def places(names: list[str]) -> dict[str, int]:
    """For each part of a request, which of a table's columns holds it."""
    there = {plain_name(name): place for place, name in reversed(list(enumerate(names)))}
    return {
        part: next(there[name] for name in known if name in there)
        for part, known in NAMES.items()
        if any(name in there for name in known)
    }


def target_of(text: str, host: str) -> tuple[str, str]:
    """Host and path with query of a URL, a path, or a mere name. Raises `ValueError`."""
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


@lru_cache(maxsize=256)
def status_of(text: str) -> int:
    """Raises `ValueError`."""
    if not _STATUS.fullmatch(text):
        raise ValueError(f"{text!r} is no status")
    return int(text)


def size_of(text: str) -> int:
    """Bytes; negative for none given. Raises `ValueError`."""
    if len(text) <= _SIZE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    if text in _EMPTY:
        return UNKNOWN_SIZE
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


def request_of(given: Mapping[str, Any], host: str, when: float, fields: tuple[tuple[str, str], ...]) -> TraceRequest:
    """The request that the parts of a line make, each a text, a number or None.

    `when` is its time where the line has none. Raises `ValueError` for what is no request.
    """
    method, target = None, _text(given.get("target"))
    line = given.get("request")
    if line:
        method, of_line = split_request_line(str(line))
        target = target or of_line
    if target is None:
        raise ValueError("no URL")
    host, path = target_of(target, _text(given.get("host")) or host)
    stamp = given.get("time")
    if stamp:
        when = scaled(float(stamp)) if isinstance(stamp, (int, float)) else unix_seconds(str(stamp))
    if not 0.0 <= when < 1e11:
        raise ValueError(f"{stamp!r} is no time")
    return TraceRequest(
        when,
        path,
        size_of(_text(given.get("size")) or ""),
        status_of(_text(given.get("status")) or "200"),
        method_of(_text(given.get("method")) or method or "GET"),
        host,
        _text(given.get("user")) or "",
        _text(given.get("cache_control")),
        fields,
    )


def _text(value: object) -> str | None:
    """None for what is empty, or stands for nothing in logs."""
    if type(value) is str:
        return None if value in _EMPTY else value
    if value is None or value in _EMPTY or isinstance(value, (dict, list, bool)):
        return None
    return str(value)
