"""The few bytes of protobuf that are written by hand: what is appended to a reply, and what the classes do not know."""

from __future__ import annotations


def delimited(tag: bytes, content: bytes) -> bytes:
    """A field of the type bytes, string or message: its tag, the length of its content, the content."""
    return b"".join((tag, varint(len(content)), content))


def varint(number: int) -> bytes:
    """A number, not negative."""
    if number < 0x80:
        return _SHORT[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SHORT = [bytes((number,)) for number in range(0x80)]
