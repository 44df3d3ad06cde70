"""The epoch words in a Redis that pods share: where a resource's word is, how it is read, and the epoch it makes.

A page has 256 words of 8 bytes behind one base word; a word of all stands beside the pages. Page and base are made
together, so that an own word that was never set (zero where the page is not that long) is a word like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshcache.engine.epochs import EPOCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "mc1:"
"""Before every name of ours: the version of the scheme."""
ALL = f"{PREFIX}g"
"""The word of all."""
_WORDS_PER_PAGE = 256
_PAGES = 4096


def word_at(resource: bytes) -> tuple[str, int]:
    """Page and offset of a resource's word."""
    index = int.from_bytes(resource[:8], "little") % (_PAGES * _WORDS_PER_PAGE)
    page, word = divmod(index, _WORDS_PER_PAGE)
    return f"{PREFIX}e:{page}", EPOCH_BYTES * (1 + word)


def word_reads(resource: bytes) -> list[tuple[Any, ...]]:
    """The commands whose replies `combined_words` takes."""
    page, offset = word_at(resource)
    last = EPOCH_BYTES - 1
    return [("GETRANGE", page, 0, last), ("GETRANGE", page, offset, offset + last), ("GET", ALL)]


def combined_words(words: Sequence[Any]) -> bytes:
    """The epoch made of base word, own word (zero where the page is not that long) and word of all, or nothing."""
    base, own, world = words
    if not (is_word(base) and is_word(world)):
        return b""
    combined = int.from_bytes(base) ^ int.from_bytes(own) ^ int.from_bytes(world)
    return combined.to_bytes(EPOCH_BYTES)


def is_word(reply: object) -> bool:
    """Whether a reply is a word of our making."""
    return isinstance(reply, bytes) and len(reply) == EPOCH_BYTES
