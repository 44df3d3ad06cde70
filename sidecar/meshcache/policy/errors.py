"""Errors in policy documents, each with the place where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ERRORS = 100
"""How many errors one set reports; a file of garbage could otherwise give tens of thousands."""


@dataclass(frozen=True, slots=True)
class PolicyError:
    """One thing that is wrong, where, and what to write instead."""

    file: str
    line: int
    """Counted from 1; 0 when the error concerns the file as a whole."""
    column: int
    """Counted from 1, in characters; 0 together with `line`."""
    field: str
    """Path of the field, such as `spec.freshness.maxTtl` or `spec.match[0].path`; empty for the document itself."""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else f"{self.file}: "
        field = f"{self.field}: " if self.field else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{field}{self.message}{hint}"


class PolicyErrors(ValueError):  # noqa: N818 - it holds many
    """A set of policy documents was refused. `errors` is never empty, and is in order of file and position."""

    def __init__(self, errors: Iterable[PolicyError]) -> None:
        found = sorted(errors, key=lambda error: (error.file, error.line, error.column))
        self.errors: tuple[PolicyError, ...] = tuple(found[:MAX_ERRORS])
        self.left_out = len(found) - len(self.errors)
        """How many errors beyond `MAX_ERRORS` are not listed."""
        super().__init__(self.errors)

    def __str__(self) -> str:
        lines = [str(error) for error in self.errors]
        if self.left_out:
            lines.append(f"... and {self.left_out} more errors")
        return "\n".join(lines)
