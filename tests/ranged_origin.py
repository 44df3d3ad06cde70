"""An origin that answers ranges of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cache_origin import Reply
from meshcache.rfc.ranges import format_content_range, if_range_holds, parse_range, satisfiable

if TYPE_CHECKING:
    from meshcache.message import Request

BODY = bytes(range(100))
FRESH = ("cache-control", "max-age=60")


@dataclass
class Ranged:
    """An origin that knows single ranges, `if-range` and `if-none-match`."""

    body: bytes = BODY
    fields: tuple[tuple[str, str], ...] = (FRESH, ("etag", '"1"'))
    in_parts: tuple[tuple[str, str], ...] = ()
    """More fields of a 206."""
    seen: list[tuple[str | None, str | None, str | None]] = field(default_factory=list)
    """`range`, `if-range` and `if-none-match` of each request."""

    def __call__(self, request: Request) -> Reply:
        said = [request.headers.get(name) for name in ("range", "if-range", "if-none-match")]
        wanted, if_range, if_none_match = said
        self.seen.append((wanted, if_range, if_none_match))
        if if_none_match is not None and if_none_match == dict(self.fields).get("etag"):
            return Reply(304, self.fields)
        specs = parse_range(wanted)
        if specs is None or not if_range_holds(if_range, self.fields, response_time=0):
            return Reply(200, self.fields, self.body)
        found = satisfiable(specs, len(self.body))
        if not found:
            return Reply(416, (*self.fields, ("content-range", f"bytes */{len(self.body)}")))
        first, last = found[0]
        said_range = ("content-range", format_content_range(first, last, len(self.body)))
        return Reply(206, (*self.fields, *self.in_parts, said_range), self.body[first : last + 1])
