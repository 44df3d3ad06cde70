"""YAML text to plain values with the position of every key and value.

The text is read event by event, never by a recursive composer, so that depth, size and aliases are bounded before
anything is built. Plain scalars follow the YAML 1.2 core schema: `off` and `1:30` are text, not a boolean and a
number as they were in YAML 1.1.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import yaml

from meshcache.policy.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FILE_BYTES = 1024 * 1024
MAX_FILES = 500
MAX_DEPTH = 32
"""Deepest nesting of lists and mappings; the deepest that a policy needs is 7."""
MAX_NODES = 20_000
"""Most keys and values in one file."""

_LOADER: type[yaml.CSafeLoader | yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,20}\.[0-9]{0,20}|\.[0-9]{1,20}|[0-9]{1,20})(?:[eE][-+]?[0-9]{1,2})?", re.ASCII)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

Path = tuple[str | int, ...]


class Position(NamedTuple):
    """A place in a file; both numbers count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Documents:
    """The text of a set of policy files, as read at one moment."""

    files: tuple[tuple[str, str], ...]
    """Name (as errors shall show it) and text of each file, in order of name."""
    digest: str
    """Changes whenever a name, a byte or a problem changes."""
    problems: tuple[PolicyError, ...] = ()
    """Files that could not be read; a set with problems is refused by the compiler."""

    @classmethod
    def of(cls, files: Iterable[tuple[str, str]], problems: Iterable[PolicyError] = ()) -> Documents:
        """A set in order of name, with the digest of its contents."""
        ordered = tuple(sorted(files))
        problems = tuple(problems)
        digest = hashlib.blake2b(digest_size=16)
        for part in (*(text for pair in ordered for text in pair), *map(str, problems)):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
        return cls(ordered, digest.hexdigest(), problems)


class Place(NamedTuple):
    """A position, and the file that it is in."""

    file: str
    position: Position


@dataclass
class Document:
    """One YAML document: plain values and where they stand."""

    file: str
    data: dict[str, object]
    keys: dict[Path, Position] = field(default_factory=dict)
    """Position of the key, for every path that ends in a key."""
    values: dict[Path, Position] = field(default_factory=dict)
    """Position of the value, for every path; `()` is the document."""
    places: dict[Path, str] = field(default_factory=dict)
    """The file of every path that stands in another one: what was inherited."""
    bases: tuple[str, ...] = ()
    """The policies from which it inherits, the nearest first."""

    def place(self, path: Path) -> Place:
        """Where the value at `path` stands, or its nearest parent that is there."""
        while path not in self.values:
            path = path[:-1]
        return Place(self.places.get(path, self.file), self.values[path])

    def error(self, path: Path, message: str, hint: str = "", *, at_key: bool = False) -> PolicyError:
        """An error at `path`, or at the nearest parent that is there."""
        file, spot = self.place(path)
        if at_key and path in self.keys:
            spot = self.keys[path]
        return PolicyError(file, spot.line, spot.column, dotted(path), message, hint)

    def inherits_at(self, error: PolicyError) -> bool:
        """Whether `error` stands at something inherited."""
        spot = (error.line, error.column)
        return any(
            file == error.file and spot in (self.values.get(path), self.keys.get(path))
            for path, file in self.places.items()
        )


def dotted(path: Path) -> str:
    """`("spec", "match", 0, "path")` as `spec.match[0].path`."""
    text = ""
    for part in path:
        # A key is any text: one of several lines would break the line of the error.
        name = part if isinstance(part, int) or part.isprintable() else repr(part)[1:-1]
        text += f"[{name}]" if isinstance(name, int) else f".{name}" if text else name
    return text


class _RefusedError(Exception):
    def __init__(self, position: Position, message: str, path: Path = (), hint: str = "") -> None:
        self.position = position
        self.message = message
        self.path = path
        self.hint = hint
        super().__init__(message)


def parse_file(name: str, text: str) -> tuple[list[Document], list[PolicyError]]:
    """The documents of one file, or the errors for which it is refused (then there are no documents).

    Empty documents (nothing but comments between two `---`) are passed over. Never raises.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return [], [PolicyError(name, 0, 0, "", "not valid UTF-8 text")]
    if size > MAX_FILE_BYTES:
        return [], [PolicyError(name, 0, 0, "", f"larger than {MAX_FILE_BYTES} bytes")]
    documents: list[Document] = []
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            done = builder.feed(event)
            if done is not None:
                documents.append(done)
    except _RefusedError as error:
        line, column = error.position
        return [], [PolicyError(name, line, column, dotted(error.path), error.message, error.hint)]
    except yaml.MarkedYAMLError as error:
        return [], [_syntax_error(name, text, error)]
    except yaml.reader.ReaderError as error:
        return [], [_bad_character(name, text, error)]
    except yaml.YAMLError as error:
        return [], [PolicyError(name, 1, 1, "", f"not valid YAML: {str(error).splitlines()[0]}")]
    return documents, []


_SYNTAX = (
    ("scanning an alias", 'text that begins with * goes in quotes: "*"'),
    ("scanning an anchor", "text that begins with & goes in quotes"),
    ("block mapping did not find expected key", "the fields of one mapping begin in the same column"),
    ("block collection did not find expected '-'", "the members of one list begin in the same column"),
    ("mapping values are not allowed", "text that holds a colon and a blank goes in quotes"),
    ("cannot start any token", "text that begins with @, ` or % goes in quotes"),
    ("flow mapping did not find", "a { is not closed, or a comma is missing"),
    ("flow sequence did not find", "a [ is not closed, or a comma is missing"),
    ("quoted scalar found unexpected end", "a quotation mark is not closed"),
    ("did not find expected <document start>", "--- goes between two documents"),
    ("found incompatible YAML document", "leave the line out, or write %YAML 1.2"),
)
_BLANKS = re.compile(r"[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000\ufeff]")
"""What looks like a blank or like nothing, and is neither to YAML; it comes with text from a web page or a chat."""


def _syntax_error(name: str, text: str, error: yaml.MarkedYAMLError) -> PolicyError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    lines = text.split("\n")
    here = lines[line - 1] if line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return PolicyError(name, line, column, "", "a tab is used for indentation", "YAML wants spaces")
    unseen = next((found for at in (mark, error.context_mark) if at and (found := _unseen(name, lines, at.line))), None)
    if unseen is not None:
        return unseen
    problem = " ".join(part for part in (error.context, error.problem) if part)
    hint = next((hint for mark, hint in _SYNTAX if mark in problem), "")
    return PolicyError(name, line, column, "", f"not valid YAML: {problem}", hint)


def _unseen(name: str, lines: list[str], line: int) -> PolicyError | None:
    found = _BLANKS.search(lines[line]) if line < len(lines) else None
    if found is None:
        return None
    message = f"the character U+{ord(found[0]):04X}, which looks like a blank, is none to YAML"
    return PolicyError(name, line + 1, found.start() + 1, "", message, "put a plain blank in its place, or nothing")


def _bad_character(name: str, text: str, error: yaml.reader.ReaderError) -> PolicyError:
    # libyaml gives the offset in bytes, the reader in Python in characters: where they differ, the line may be the
    # next one, which is near enough for a character that cannot be shown.
    before = text.encode()[: int(error.position)].decode(errors="replace")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return PolicyError(name, line, column, "", "a control character stands here, which YAML does not allow")


def _at(event: yaml.Event) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1) if mark is not None else Position(1, 1)


class _Open:
    """A list or mapping whose end has not come yet."""

    __slots__ = ("key", "key_at", "path", "value")

    def __init__(self, value: dict[str, object] | list[object], path: Path) -> None:
        self.value = value
        self.path = path
        self.key: str | None = None
        self.key_at = Position(1, 1)


class _Builder:
    def __init__(self, file: str) -> None:
        self._file = file
        self._nodes = 0
        self._open: list[_Open] = []
        self._document: Document | None = None

    def feed(self, event: yaml.Event) -> Document | None:
        """Take the next event; the finished document when this was its last."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._document = None
        elif isinstance(event, yaml.DocumentEndEvent):
            return self._document
        elif isinstance(event, yaml.AliasEvent):
            raise _RefusedError(_at(event), "aliases (*name) are not allowed", self._here(), "write the value out")
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._open.pop()
        return None

    def _here(self) -> Path:
        if not self._open:
            return ()
        top = self._open[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return top.path if top.key is None else (*top.path, top.key)

    def _count(self, event: yaml.NodeEvent) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _RefusedError(_at(event), f"more than {MAX_NODES} keys and values in one file")

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        self._count(event)
        path = self._here()
        if event.tag not in (None, "!"):
            raise _RefusedError(_at(event), f"the tag {event.tag!r} is not allowed", path)
        if len(self._open) >= MAX_DEPTH:
            raise _RefusedError(_at(event), f"nested deeper than {MAX_DEPTH} levels")
        value: dict[str, object] | list[object] = {} if isinstance(event, yaml.MappingStartEvent) else []
        if not self._open:
            if not isinstance(value, dict):
                raise _RefusedError(_at(event), "expected a mapping with apiVersion, kind, metadata and spec")
            self._document = Document(self._file, value)
        elif self._awaits_key():
            raise _RefusedError(
                _at(event), "a key must be plain text", path, "text that begins with { or [ goes in quotes"
            )
        self._place(value, _at(event))
        self._open.append(_Open(value, path))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._count(event)
        path = self._here()
        if self._awaits_key():
            top = self._open[-1]
            key = event.value
            if isinstance(top.value, dict) and key in top.value:
                raise _RefusedError(_at(event), "this key is given twice", (*path, key), "keep one of the two")
            top.key, top.key_at = key, _at(event)
            return
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise _RefusedError(_at(event), f"the tag {event.tag!r} is not allowed", path, "only !!str is")
        plain = event.style in (None, "") and event.tag is None
        if not self._open:
            if plain and event.value == "":
                return
            raise _RefusedError(_at(event), "expected a mapping with apiVersion, kind, metadata and spec")
        if plain and event.value in _NULLS:
            raise _RefusedError(_at(event), "has no value", path, "give one, or remove the line")
        self._place(resolve_plain(event.value) if plain else event.value, _at(event))

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _place(self, value: object, position: Position) -> None:
        document = self._document
        assert document is not None  # noqa: S101 - for the type checker: a first node makes the document
        path = self._here()
        document.values[path] = position
        if not self._open:
            return
        top = self._open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is not None:
            document.keys[path] = top.key_at
            top.value[top.key] = value
            top.key = None


def resolve_plain(text: str) -> object:
    """A plain scalar by the YAML 1.2 core schema: boolean, whole number, finite number or text."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not text.isdecimal():
        return float(text)
    return text


def parse_documents(documents: Documents) -> tuple[list[Document], list[PolicyError]]:
    """All documents of a set in order, and all errors."""
    errors = list(documents.problems)
    found: list[Document] = []
    for name, text in documents.files:
        parsed, refused = parse_file(name, text)
        found += parsed
        errors += refused
    return found, errors
