"""What the models of all kinds of documents are made of: the strict base, checked field types, references.

`planned` names the fields that belong to the format and are not built yet: they are refused as such, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from meshcache.policy import values as v
from meshcache.policy.units import parse_duration, parse_percent, parse_quantity

API_VERSION = "meshcache.dev/v1alpha1"

Duration = Annotated[float, BeforeValidator(parse_duration)]
Quantity = Annotated[int, BeforeValidator(parse_quantity)]
Percent = Annotated[float, BeforeValidator(parse_percent)]
Name = Annotated[str, BeforeValidator(v.name)]
HeaderName = Annotated[str, BeforeValidator(v.header_name)]
CookieName = Annotated[str, BeforeValidator(v.cookie_name)]
Deadline = Annotated[Duration, AfterValidator(v.deadline)]


def refuse(field: str | tuple[str, ...], message: str, hint: str = "") -> NoReturn:
    """Refuse the value of `field` (or of a field further in, by its path) from within a validator of its model."""
    path = (field,) if isinstance(field, str) else field
    raise PydanticCustomError("policy", "{text}", {"text": message, "at": path, "hint": hint})


class Strict(BaseModel):
    """No field but those declared, no conversion between types, camelCase names."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)
    planned: ClassVar[frozenset[str]] = frozenset()
    hints: ClassVar[Mapping[str, str]] = {}
    """What to say of names that belong to another format, or to another place of this one."""


class Worded(Strict):
    """A mapping, or one of some words in its place."""

    words: ClassVar[tuple[str, ...]]
    expected: ClassVar[str]
    """What is said of any other word."""
    nothing: ClassVar[Mapping[str, Any]]
    """The fields where a word stands."""
    _word: str = ""

    @property
    def word(self) -> str:
        """The word that stands there; empty for a mapping."""
        return self._word

    @model_validator(mode="wrap")
    @classmethod
    def _of_word(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, str):
            return handler(value)
        if value not in cls.words:
            raise ValueError(f"expected {cls.expected}, got {v.shown(value)}")
        made = cls.model_construct(**cls.nothing)
        made._word = value
        return made

    @model_serializer
    def _written(self) -> str | dict[str, Any]:
        return self._word or {name: getattr(self, name) for name in self.nothing}


class Ref(Strict):
    """A reference by name."""

    name: Name


class Metadata(Strict):
    """The document's name."""

    planned: ClassVar[frozenset[str]] = frozenset({"namespace", "labels", "annotations"})
    name: Name
    uid: Annotated[str, BeforeValidator(v.uid)] = ""


class Head(Strict):
    """What every document begins with."""

    api_version: Literal["meshcache.dev/v1alpha1"]
    metadata: Metadata
