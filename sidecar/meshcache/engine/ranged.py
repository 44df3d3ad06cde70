"""What a range request gets of a stored response (RFC 9110 sections 14 and 15.3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.engine.outcome import Excerpt
from meshcache.rfc.multipart import multipart_byteranges
from meshcache.rfc.ranges import (
    PART_OVERHEAD,
    coalesced,
    format_content_range,
    format_unsatisfied,
    if_range_holds,
    parse_range,
    satisfiable,
)

if TYPE_CHECKING:
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Request
    from meshcache.rfc.ranges import RangeSpec

# Of the whole content, and so wrong beside a part of it (RFC 9530 section 2, RFC 2616 section 14.15). All else that
# describes the representation stays, also for a client that has told by `if-range` that he knows it: a compressor or
# an inspecting filter on the way judges the part by those fields.
_OF_THE_WHOLE_CONTENT = frozenset({"content-digest", "content-length", "content-md5", "content-range"})
# What a client needs of a stored response to see that it has no such range.
_OF_A_416 = frozenset({"cache-control", "date", "etag", "expires", "last-modified", "vary"})


def wanted_ranges(request: Request) -> tuple[RangeSpec, ...] | None:
    """The ranges that a request asks for; None when it is to be answered in full.

    Only GET has ranges (RFC 9110 section 14.2).
    """
    if "range" not in request.headers or request.method != "GET":
        return None
    return parse_range(request.headers.get("range"))


def excerpt(stored: StoredResponse, wanted: tuple[RangeSpec, ...], if_range: str | None) -> Excerpt | None:
    """What is sent of a whole stored response; None when it is sent as it is.

    As it is: when it is no 200, when the client's parts are of another representation, and when parts would take more
    bytes than the whole.
    """
    if stored.status != 200 or not if_range_holds(if_range, stored.fields, response_time=stored.response_time):
        return None
    body = stored.body
    total = len(body)
    found = satisfiable(wanted, total)
    if not found:
        if any(spec.first is None and spec.last for spec in wanted):
            # The last bytes of nothing: there is no range to name, and the whole is what was asked for.
            return None
        fields = [field for field in stored.fields if field[0] in _OF_A_416]
        return Excerpt(416, (*fields, ("content-range", format_unsatisfied(total))), b"")
    kept = tuple(field for field in stored.fields if field[0] not in _OF_THE_WHOLE_CONTENT)
    ranges = coalesced(found)
    if len(ranges) == 1:
        first, last = ranges[0]
        said = format_content_range(first, last, total)
        return Excerpt(206, (*kept, ("content-range", said)), body[first : last + 1])
    if sum(one.size + PART_OVERHEAD for one in ranges) >= total:
        return None
    types = [value for name, value in kept if name == "content-type"]
    parts = [(one, body[one.first : one.last + 1]) for one in ranges]
    content_type, content = multipart_byteranges(parts, total=total, content_type=types[0] if types else None)
    fields = [field for field in kept if field[0] != "content-type"]
    return Excerpt(206, (*fields, ("content-type", content_type)), content)
