"""Access logs of web servers and Envoy, line by line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from meshcache.simulate.fields import (
    NAMES,
    method_of,
    plain_name,
    request_of,
    size_of,
    split_request_line,
    target_of,
    text_of,
)
from meshcache.simulate.lines import BadLines, text_lines
from meshcache.simulate.stamps import Stamps, common_log_time, unix_seconds
from meshcache.simulate.trace import TraceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMON: Final = re.compile(
    # In front of all, Apache's `vhost_combined` has the host; a name of a user may be of several words.
    r"(?:(\S+) (?=(?!- )\S+ - ))?(\S+) \S+ ([^\s\[]\S*(?: [^\s\[]\S*){0,7}) \[([^\]]{1,64})\]"
    r' "((?:[^"\\]|\\.)*)" ([1-5][0-9]{2}) ([0-9]{1,15}|-)(?: |\r?$)',
    re.ASCII,
)
"""The common log format, and the combined one, which goes on behind it."""

ENVOY: Final = re.compile(
    r'\[([^\]]+)\] "(\S+) (\S+) [^"]*" ([0-9]{1,3}) \S+'
    # Istio has three fields more in its default.
    r'(?: \S+ \S+ (?:"[^"]*"|-))?'
    r' [0-9]+ ([0-9]{1,15}|-) (?:[0-9]+|-) (?:[0-9]+|-) "([^"]*)" "[^"]*" "[^"]*" "([^"]*)"',
    re.ASCII,
)
"""Envoy's default format."""

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def read_common(stream: BinaryIO, host: str, bad: BadLines) -> Iterator[TraceRequest]:
    """A log in the common or the combined format. `host` is where requests go."""
    for number, text in text_lines(stream, bad):
        found = COMMON.match(text)
        if found is None:
            bad.add(number, "is not in the common or combined log format")
            continue
        named, client, user, stamp, line, status, size = found.groups()
        try:
            method, target = split_request_line(line)
            where, path = target_of(target, named or host)
            yield TraceRequest(
                common_log_time(stamp),
                path,
                size_of(size),
                int(status),
                method_of(method),
                where,
                client if user == "-" else user,
            )
        except ValueError as error:
            bad.add(number, str(error))


def read_envoy(stream: BinaryIO, host: str, bad: BadLines) -> Iterator[TraceRequest]:
    """A log in Envoy's default format, or Istio's. `host` stands in where a line names none."""
    for number, text in text_lines(stream, bad):
        found = ENVOY.match(text)
        if found is None:
            bad.add(number, "is not in Envoy's default format")
            continue
        stamp, method, target, status, size, forwarded_for, authority = found.groups()
        try:
            where, path = target_of(target, authority if authority not in ("", "-") else host)
            client = forwarded_for.partition(",")[0].strip()
            if status == "0":
                raise ValueError("the request had no answer")
            yield TraceRequest(
                unix_seconds(stamp),
                path,
                size_of(size),
                int(status),
                method_of(method),
                where,
                "" if client == "-" else client,
            )
        except ValueError as error:
            bad.add(number, str(error))


def _flat(members: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Members by name, those of objects among them first: what stands at the top counts where both have one."""
    for value in members.values():
        if isinstance(value, dict):
            yield from value.items()
    yield from ((name, value) for name, value in members.items() if not isinstance(value, dict))


def read_json(stream: BinaryIO, host: str, bad: BadLines, *, rate: float) -> Iterator[TraceRequest]:
    """One JSON object a line; what its members may be called is in `NAMES`. Without times `rate` come in a second."""
    stamps = Stamps(rate)
    for number, text in text_lines(stream, bad):
        try:
            members = _decode(text.encode("latin-1"))
            there = {plain_name(name): text_of(value) for name, value in _flat(members)}
            parts = (
                next((there[name] for name in known if there.get(name) not in (None, "", "-")), "")
                for known in NAMES.values()
            )
            yield request_of(*parts, host=host, stamps=stamps)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            bad.add(number, str(error))
