"""The tags of a response: the names by which its origin lets it be purged together with others.

No RFC knows them. `cache-tag` (tags separated by commas), `surrogate-key` (by spaces) and `xkey` (by either) are what
origins send to the caches in front of them. All three name the same set of tags. A tag is compared byte for byte, upper
and lower case apart: two tags that an origin tells apart are never purged for one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from meshcache.message import Headers

TAG_FIELDS: Final = frozenset({"cache-tag", "surrogate-key", "xkey"})
"""They are between the origin and its caches, and not passed on to clients."""

MOST_TAGS: Final = 1000
LONGEST_TAG: Final = 1024
LONGEST_FIELDS: Final = 16384
"""Characters of all three fields together."""

_SEPARATORS: Final = {"cache-tag": ",", "surrogate-key": " ", "xkey": " ,"}


def response_tags(headers: Headers) -> tuple[str, ...] | None:
    """The tags of a response, each once, in order; None when there are more or longer ones than can be kept.

    Who could not be purged by all of his tags must not be stored.
    """
    if headers.names.isdisjoint(TAG_FIELDS):
        return ()
    total = 0
    tags: dict[str, None] = {}
    for name, separators in _SEPARATORS.items():
        text = headers.get(name)
        if text is None:
            continue
        total += len(text)
        if total > LONGEST_FIELDS:
            return None
        # A repeated field reads as one that is joined by a comma (RFC 9110 section 5.3), whatever separates its tags.
        if name == "surrogate-key" and len(headers.get_all(name)) > 1:
            text = " ".join(headers.get_all(name))
        text = text.replace("\t", " ")
        if separators == " ,":
            text, separators = text.replace(",", " "), " "
        for part in text.split(separators):
            # No other blanks: a byte of a letter in UTF-8 may look like one.
            tag = part.strip(" ")
            if tag:
                tags[tag] = None
    if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tags):
        return None
    return tuple(tags)


def is_tag(text: str) -> bool:
    """Whether a response can have `text` (as of a header field: one character for each byte) as a tag."""
    plain = all(" " <= character <= "\xff" and character != "\x7f" for character in text)
    return plain and 0 < len(text) <= LONGEST_TAG and text == text.strip(" ") and "," not in text
