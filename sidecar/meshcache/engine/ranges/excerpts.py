"""What a range request gets of a stored response (RFC 9110 sections 14 and 15.3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.engine.outcome import Excerpt
from meshcache.engine.ranges.parts import OF_ONE_CONTENT, is_part, ranges_of, read, strong_validator_of, total_of
from meshcache.rfc.multipart import multipart_byteranges
from meshcache.rfc.ranges import (
    PART_OVERHEAD,
    coalesced,
    format_content_range,
    format_unsatisfied,
    if_range_holds,
    parse_content_range,
    parse_range,
    strong_validator,
)

if TYPE_CHECKING:
    from meshcache.engine.lookup import Lookup
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Headers, Request, Response
    from meshcache.rfc.ranges import ContentRange, RangeSpec

# They describe the content that a 416 does not have. All others are of the resource, such as those by which a browser
# lets a page of another origin see the answer.
_NOT_IN_A_416 = OF_ONE_CONTENT | {
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "digest",
    "repr-digest",
}


def wanted_ranges(request: Request) -> tuple[RangeSpec, ...] | None:
    """The ranges that a request asks for; None when it is to be answered in full.

    Only GET has ranges (RFC 9110 section 14.2).
    """
    if "range" not in request.headers.names or request.method != "GET":
        return None
    return parse_range(request.headers.get("range"))


def answers_ranges(stored: StoredResponse, wanted: tuple[RangeSpec, ...], if_range: str | None) -> bool:
    """Whether a part holds all that is asked for, of the version that is asked for."""
    return (
        if_range_holds(if_range, stored.fields, response_time=stored.response_time)
        and ranges_of(stored, wanted) is not None
    )


def part_to_keep(lookup: Lookup, request: Headers, response: Response, now: float) -> ContentRange | None:
    """What a 206 says its content is; None when it is not kept: for several ranges, or not asked for, or a bare
    continuation of something that is not held.
    """
    if lookup.wanted is None:
        return None
    said = parse_content_range(response.headers.get("content-range"))
    if said is not None and "if-range" in request:
        # Such a 206 may leave out what the client knows of the representation (RFC 9110 section 15.3.7).
        held = None if lookup.part is None else strong_validator_of(lookup.part.stored)
        if held is None or held != strong_validator(response.headers, response_time=now):
            return None
    return said


def excerpt(stored: StoredResponse, wanted: tuple[RangeSpec, ...], if_range: str | None) -> Excerpt | None:
    """What is sent of a stored response; None when it is sent as it is, which a part never is.

    As it is: when it is no 200, when the client's parts are of another representation, when parts would take more
    bytes than the whole, and when there are several of a body in chunks. Of a part, `answers_ranges` holds.
    """
    part = is_part(stored)
    if not part and (
        stored.status != 200 or not if_range_holds(if_range, stored.fields, response_time=stored.response_time)
    ):
        return None
    total = total_of(stored)
    found = ranges_of(stored, wanted)
    if not found:
        if total is None or (not total and any(spec.first is None and spec.last for spec in wanted)):
            # The last bytes of nothing: there is no range to name, and the whole is what was asked for.
            return None
        kept = [field for field in stored.fields if field[0] not in _NOT_IN_A_416]
        return Excerpt(416, (*kept, ("content-range", format_unsatisfied(total))), b"")
    # All that describes the representation stays, also for a client that has told by `if-range` that he knows it: a
    # compressor or an inspecting filter on the way judges the content by those fields.
    fields = tuple(field for field in stored.fields if field[0] not in OF_ONE_CONTENT)
    # What lies between two ranges may be missing to a part.
    ranges = coalesced(found, 1) if part else coalesced(found)
    if len(ranges) == 1:
        first, last = ranges[0]
        told = (*fields, ("content-range", format_content_range(first, last, total)))
        if stored.chunks:
            return Excerpt(206, told, b"", (first, ranges[0].size))
        return Excerpt(206, told, read(stored, ranges[0]))
    if stored.chunks or (not part and sum(one.size + PART_OVERHEAD for one in ranges) >= stored.length):
        return None
    types = [value for name, value in fields if name == "content-type"]
    content_type, content = multipart_byteranges(
        [(one, read(stored, one)) for one in ranges], total=total, content_type=types[0] if types else None
    )
    return Excerpt(
        206, (*(field for field in fields if field[0] != "content-type"), ("content-type", content_type)), content
    )
