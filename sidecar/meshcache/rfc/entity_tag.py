"""Entity tags and how they compare (RFC 9110 sections 8.8.3 and 13.1.2)."""

from __future__ import annotations

import re
from typing import NamedTuple

from meshcache.rfc.fields import split_list

_QUOTED = re.compile(r'([Ww][/\\]?)?("[!#-~\x80-\xff]*")')
_BARE = re.compile(r"[!#-+\--~\x80-\xff]+")


class EntityTag(NamedTuple):
    """One entity tag."""

    weak: bool
    opaque: str
    """The tag with its quotes."""


def parse_entity_tag(text: str | None) -> EntityTag | None:
    """The one entity tag in `text`, or None when there is not exactly one.

    Some senders leave out the quotes, and some write the mark of a weak tag as `w/`, `W\\` or `W`. What they mean is
    plain, and a tag that is taken for another one than was sent could only be one with the same opaque part.
    """
    if not text or text == "*":
        return None
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return EntityTag(quoted[1] is not None, quoted[2])
    return EntityTag(False, f'"{text}"') if _BARE.fullmatch(text) else None


def parse_entity_tags(value: str) -> list[EntityTag]:
    """The tags in a list of them; members that are none are passed over. Backslashes do not escape in tags."""
    parsed = (parse_entity_tag(member) for member in split_list(value, escapes=False))
    return [tag for tag in parsed if tag is not None]


def strong_match(one: EntityTag, other: EntityTag) -> bool:
    """Whether both are strong and equal (RFC 9110 section 8.8.3.2)."""
    return not one.weak and not other.weak and one.opaque == other.opaque


def weak_match(one: EntityTag, other: EntityTag) -> bool:
    """Whether both are equal, weak or not (RFC 9110 section 8.8.3.2)."""
    return one.opaque == other.opaque
