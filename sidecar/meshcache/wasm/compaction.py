"""Making a WebAssembly module smaller without changing what it does.

A linker leaves room in its code for addresses that it does not know yet: numbers of five bytes, where one to three
would do. Here every number of the code section is written as short as it can be (WebAssembly core specification, 5.2.2
and 5.4); all else stays as it is.
"""

from __future__ import annotations

from typing import Final

_CODE: Final = 10
_EMPTY, _VALUE_TYPES = 0x40, frozenset({0x7F, 0x7E, 0x7D, 0x7C, 0x7B, 0x70, 0x6F})
_ONE_NUMBER: Final = frozenset({0x0C, 0x0D, 0x10, *range(0x20, 0x27), 0xD2})
"""Branches, calls, variables, table accesses, `ref.func`."""
_BLOCKS: Final = frozenset({0x02, 0x03, 0x04})
_NOTHING: Final = frozenset({0x00, 0x01, 0x05, 0x0B, 0x0F, 0x1A, 0x1B, 0xD1, *range(0x45, 0xC5)})
_AFTER_FC: Final = {**dict.fromkeys(range(8), 0), 8: 2, 9: 1, 10: 2, 11: 1, 12: 2, 13: 1, 14: 2, 15: 1, 16: 1, 17: 1}
"""How many numbers follow an instruction behind the prefix 0xFC."""


class UnknownError(ValueError):
    """The module has something in it that is not known here."""


class _Body:
    def __init__(self, code: bytes, at: int) -> None:
        self.code, self.at, self.out = code, at, bytearray()

    def byte(self) -> int:
        found = self.code[self.at]
        self.at += 1
        self.out.append(found)
        return found

    def raw(self, count: int) -> None:
        self.out += self.code[self.at : self.at + count]
        self.at += count

    def number(self) -> int:
        value, self.at = _number(self.code, self.at)
        self.out += _unsigned(value)
        return value

    def signed(self) -> None:
        value = shift = 0
        while True:
            found = self.code[self.at]
            self.at += 1
            value |= (found & 0x7F) << shift
            shift += 7
            if not found & 0x80:
                break
        if found & 0x40:
            value -= 1 << shift
        self.out += _signed(value)

    def instruction(self) -> None:
        kind = self.byte()
        if kind in _NOTHING:
            return
        if kind in _ONE_NUMBER:
            self.number()
        elif kind in _BLOCKS:
            if self.code[self.at] == _EMPTY or self.code[self.at] in _VALUE_TYPES:
                self.byte()
            else:
                self.signed()
        elif 0x28 <= kind <= 0x3E:
            if self.number() & 0x40:
                raise UnknownError("a second memory")
            self.number()
        elif kind in (0x3F, 0x40):
            self.number()
        elif kind in (0x41, 0x42):
            self.signed()
        elif kind == 0x43:
            self.raw(4)
        elif kind == 0x44:
            self.raw(8)
        elif kind == 0x11:
            self.number()
            self.number()
        elif kind == 0x0E:
            for _ in range(self.number() + 1):
                self.number()
        elif kind == 0xFC:
            which = self.number()
            if which not in _AFTER_FC:
                raise UnknownError(f"instruction 0xFC {which}")
            for _ in range(_AFTER_FC[which]):
                self.number()
        else:
            raise UnknownError(f"instruction {kind:#x}")


def compacted(module: bytes) -> bytes:
    """The same module. Raises `UnknownError` for one with instructions that are not known here."""
    out, at = bytearray(module[:8]), 8
    while at < len(module):
        kind = module[at]
        size, start = _number(module, at + 1)
        content = module[start : start + size]
        if kind == _CODE:
            content = _code(content)
        out += bytes((kind,)) + _unsigned(len(content)) + content
        at = start + size
    return bytes(out)


def _code(section: bytes) -> bytes:
    count, at = _number(section, 0)
    out = bytearray(_unsigned(count))
    for _ in range(count):
        size, at = _number(section, at)
        body = _Body(section, at)
        for _ in range(body.number()):
            body.number()
            body.byte()
        while body.at < at + size:
            body.instruction()
        if body.at != at + size:
            raise UnknownError("an instruction across two functions")
        out += _unsigned(len(body.out)) + body.out
        at += size
    return bytes(out)


def _number(code: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        found = code[at]
        at += 1
        value |= (found & 0x7F) << shift
        if not found & 0x80:
            return value, at
        shift += 7


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(value: int) -> bytes:
    out = bytearray()
    while not -0x40 <= value < 0x40:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value & 0x7F)
    return bytes(out)
