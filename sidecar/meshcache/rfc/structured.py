"""Structured fields (RFC 9651): the library's parser, made total and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import http_sf

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 8192
"""Characters of a field that are parsed; what is longer counts as malformed."""

Value = bool | int | str | None
"""What a member of a dictionary says: a boolean, an integer, or the text of a string or token. None for any other
type, inner lists among them: no directive is defined with one."""


def dictionary(field: str) -> Mapping[str, Value] | None:
    """The members of a dictionary by name, without their parameters; None when it is malformed or too long."""
    if len(field) > LONGEST:
        return None
    try:
        parsed = http_sf.parse(field.encode("latin-1"), tltype="dictionary")
    except (ValueError, ArithmeticError, LookupError, TypeError, AssertionError):
        # The first is the library's own error, and that of a character beyond Latin-1; the others guard against what
        # it may have overlooked.
        return None
    if not isinstance(parsed, dict):
        return None
    return {name: _bare(member) for name, member in parsed.items()}


def _bare(member: object) -> Value:
    value = member[0] if isinstance(member, tuple) else member
    if isinstance(value, http_sf.Token):
        return str(value)
    return value if isinstance(value, bool | int | str) else None
