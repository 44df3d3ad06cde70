"""Purge rules: what an operator has declared dead or stale, and which stored entries that concerns.

A purge deletes nothing by itself. It is a rule in an ordered log; every rule has a generation, and every entry carries
the generation of the newest rules that were in effect when the origin was asked for it: when it was *born*. A rule
concerns the entries that match it and were born before it, wherever they are and whenever they are written. So a fill
that began before a purge cannot bring the old answer back.

An entry is compared with what it holds itself: its key, its tags. No hash decides but digests of the whole value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

import msgspec

from meshcache.engine.key import key_parts, resource_ids
from meshcache.engine.paths import as_handed_on, without_needless_escapes
from meshcache.message import split_authority
from meshcache.rfc.tags import is_tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from meshcache.engine.records import Record
    from meshcache.policy.compiled import KeySpec


class PurgeKind(StrEnum):
    """By what entries are chosen."""

    URL = "url"
    """All that is stored for a URL: as the policies key it, in every variant and arm, over http and https."""
    PREFIX = "prefix"
    """All whose URL begins with these characters, the scheme apart; without a host, on every host."""
    TAG = "tag"
    ROUTE = "route"
    SUBJECT = "subject"
    """All that belongs to one person; the value is the hexadecimal keyed hash by which records name him."""
    REVISION = "revision"
    """All that this release of the application has answered."""
    ALL = "all"
    LOST = "lost"
    """Not for operators: rules are lost, so nothing older in the store that pods share can be trusted. To the pod that
    the value names, or, without one, to any."""


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """One purge."""

    kind: PurgeKind
    value: str
    """As `parse_value` gives it: of a URL and a prefix, host and path; empty for `ALL`."""
    soft: bool
    """Whether what matches only becomes stale; otherwise it is dead."""
    at: float
    """Unix seconds."""
    uid: str
    """Names this rule wherever it is logged."""


class Labels(msgspec.Struct, frozen=True, array_like=True):
    """What an entry can be purged by. Written in front of it, so that a sweep need not read its body."""

    spec: bytes
    """Fingerprint of the way in which its policy keys a URI."""
    resource: bytes
    """Resource id (16 bytes)."""
    host: str
    """As keyed; empty where the key leaves it out."""
    path: str
    """Path and query as keyed."""
    route: str
    revision: str
    subject: bytes
    tags: tuple[str, ...]


class Verdict(NamedTuple):
    """What the rules say of one entry."""

    dead: bool = False
    stale_since: float | None = None
    """Unix seconds from which it is stale, whatever its lifetime; None when no rule says so."""


ALIVE: Final = Verdict()
DEAD: Final = Verdict(dead=True)

LONGEST_VALUE: Final = 8192
"""Characters of a rule's value."""

_PLACES: Final = frozenset({PurgeKind.URL, PurgeKind.PREFIX})
_NO_PLACE: Final = (b"", b"", "", "")
# All that can stand in a URI as it is (RFC 3986 section 2), percent signs among it.
_URI_CHARACTERS: Final = "!#$%&'()*+,/:;=?@[]~\"<>\\^`{|}"


def labels_of(stored: Record) -> Labels:
    """The labels of a stored response, or those that all of a list of variants have."""
    parts = key_parts(stored.key)
    if parts is None:
        spec, resource, host, path = _NO_PLACE
    else:
        spec, resource, host = parts.spec, parts.resource, parts.host
        path = f"{parts.target}?{parts.query}" if parts.query else parts.target
    return Labels(spec, resource, host, path, stored.route, stored.revision, stored.subject, stored.tags)


_HOST = re.compile(r"[!$&'()*+,\-.0-9:;=\[\]_a-z~%]*")
"""RFC 3986 section 3.2.2, in lower case; empty for every host."""


def parse_value(kind: PurgeKind, text: str) -> str:
    """The value of a rule as an operator gives it, in the form in which it is compared.

    Raises `ValueError` with a sentence that says what is expected.
    """
    if kind is PurgeKind.ALL:
        return ""
    if not text or len(text) > LONGEST_VALUE:
        raise ValueError(f"{kind}: expected 1 to {LONGEST_VALUE} characters")
    if kind in _PLACES and (text != text.strip() or any(character < " " or character == "\x7f" for character in text)):
        # A line break, most often, from where it was copied: it would purge nothing, and look as if it had.
        raise ValueError(f"{kind}: expected no control characters, and no blanks around it")
    match kind:
        case PurgeKind.URL:
            if not text.startswith(("http://", "https://")):
                raise ValueError("url: expected http://HOST/PATH or https://HOST/PATH")
            host, path = _split(text)
            if not host or "#" in path:
                raise ValueError("url: expected a host, and no fragment (#), for example https://example.com/a?b=c")
            return host + path
        case PurgeKind.PREFIX:
            if not text.startswith(("http://", "https://", "/")):
                raise ValueError("prefix: expected https://HOST/PATH, or /PATH for every host")
            host, path = _split(text)
            if not host and not text.startswith("/"):
                raise ValueError("prefix: expected a host after the scheme, for example https://example.com/a/")
            return host + path
        case PurgeKind.TAG:
            tag = text.encode("utf-8", "surrogateescape").decode("latin-1")
            if not is_tag(tag):
                raise ValueError("tag: expected at most 1024 characters, without commas and spaces around it")
            return tag
        case PurgeKind.SUBJECT:
            try:
                return bytes.fromhex(text).hex()
            except ValueError:
                raise ValueError("subject: expected a hexadecimal digest") from None
        case _:
            return text


def values_of(kind: PurgeKind, text: str) -> tuple[str, ...]:
    """The values of the rules that an operator means by `text`: raises as `parse_value`.

    A path is meant as it stands, and as Envoy hands it on when a client asks for it. Of a prefix only the escapes are
    rewritten: where it ends, a segment need not.
    """
    value = parse_value(kind, text)
    if kind not in _PLACES:
        return (value,)
    host, slash, path = value.partition("/")
    rewritten = as_handed_on if kind is PurgeKind.URL else without_needless_escapes
    return tuple(dict.fromkeys((value, host + rewritten(slash + path))))


def _split(text: str) -> tuple[str, str]:
    """Host as a key has it (with a port that is not the scheme's own), and path with query.

    Raises `ValueError` for what is no host.
    """
    scheme, mark, rest = text.partition("://")
    if text.startswith("/") or not mark:
        scheme, rest = "", text
    end = min((at for at in (rest.find("/"), rest.find("?"), rest.find("#")) if at >= 0), default=len(rest))
    authority, path = rest[:end].rpartition("@")[2], rest[end:]
    host, port = split_authority(authority)
    if authority.startswith("[") and "]" not in authority:
        raise ValueError("expected an address of IPv6 in brackets, as in http://[::1]:8080/")
    if port.isdecimal() and (len(port) > 5 or int(port) > 65535):
        raise ValueError("expected a port of at most 65535")
    if not _HOST.fullmatch(host) or (port and not port.isdecimal()):
        # Other letters reach nobody as they are: whoever writes them would purge nothing, and believe he had.
        raise ValueError("expected the host as clients send it, with other letters as in xn--mnchen-3ya.example")
    if port and port != {"http": "80", "https": "443"}.get(scheme):
        host = f"{host}:{port}"
    return host, sent_path(path)


def sent_path(text: str) -> str:
    """A path with its query, as somebody has written it down, as clients send it: from `/` on, and in ASCII."""
    return quote(text if text.startswith("/") else f"/{text}", safe=_URI_CHARACTERS)


@dataclass(slots=True)
class Mark:
    """The newest rules for one value: their generations (0 for none) and when the soft one was made."""

    hard: int = 0
    soft: int = 0
    soft_at: float = 0.0

    def take(self, rule: Rule, generation: int) -> None:
        """Count `rule`, which has this generation."""
        if not rule.soft:
            self.hard = max(self.hard, generation)
        elif generation > self.soft:
            self.soft, self.soft_at = generation, rule.at

    def verdict(self, born: int) -> Verdict:
        """What it says of an entry that was born under the generation `born`."""
        if born < self.hard:
            return DEAD
        return Verdict(stale_since=self.soft_at) if born < self.soft else ALIVE


class _Prefixes:
    """Rules by prefix, on one host or on all."""

    __slots__ = ("_lengths", "_marks")

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}
        self._lengths: list[int] = []

    def mark(self, prefix: str) -> Mark:
        """The mark of a prefix, made when it is new."""
        mark = self._marks.get(prefix)
        if mark is None:
            mark = self._marks[prefix] = Mark()
            if len(prefix) not in self._lengths:
                self._lengths = sorted([*self._lengths, len(prefix)])
        return mark

    def matching(self, path: str) -> Iterator[Mark]:
        """The marks of all prefixes of `path`."""
        for length in self._lengths:
            if length > len(path):
                return
            mark = self._marks.get(path[:length])
            if mark is not None:
                yield mark


class Keying:
    """In which ways policies key a URI, by fingerprint: what tells which entries a URL means."""

    def __init__(self, specs: Iterable[KeySpec] = ()) -> None:
        self.known: Mapping[bytes, KeySpec] = {}
        self.install(specs)

    def install(self, specs: Iterable[KeySpec]) -> None:
        """These are the ways from now on. One assignment: any thread may call it."""
        self.known = {spec.fingerprint: spec for spec in specs}


class RuleTable:
    """Rules by what they match; of several for one value the newest counts. One look-up is a few of a dictionary.

    Generations are integers that grow; which numbers they are is the caller's affair.
    """

    def __init__(self, keying: Keying) -> None:
        self._keying = keying
        self._all = Mark()
        self._by_value: dict[tuple[PurgeKind, str], Mark] = {}
        self._urls: dict[str, Mark] = {}
        self._placed: dict[bytes, tuple[KeySpec, dict[bytes, list[Mark]]]] = {}
        """The same by resource id, for each way of keying that has been asked for."""
        self._prefixes: dict[str, _Prefixes] = {}
        self._kinds: set[PurgeKind] = set()

    def __len__(self) -> int:
        return len(self._by_value)

    def add(self, rule: Rule, generation: int) -> None:
        """Put a rule in effect."""
        if rule.kind is PurgeKind.LOST:
            return
        self._kinds.add(rule.kind)
        key = (rule.kind, rule.value)
        mark = self._by_value.get(key)
        if mark is None:
            mark = self._by_value[key] = self._made(rule)
        mark.take(rule, generation)

    def newest(self, labels: Labels) -> Mark:
        """The newest rules, hard and soft, that an entry with these labels matches."""
        found = Mark(self._all.hard, self._all.soft, self._all.soft_at)
        for mark in self._matching(labels):
            found.hard = max(found.hard, mark.hard)
            if mark.soft > found.soft:
                found.soft, found.soft_at = mark.soft, mark.soft_at
        return found

    def _made(self, rule: Rule) -> Mark:
        match rule.kind:
            case PurgeKind.ALL:
                return self._all
            case PurgeKind.URL:
                mark = self._urls[rule.value] = Mark()
                for spec, placed in self._placed.values():
                    _place(rule.value, mark, spec, placed)
                return mark
            case PurgeKind.PREFIX:
                host, _, _ = rule.value.partition("/")
                return self._prefixes.setdefault(host, _Prefixes()).mark(rule.value[len(host) :])
            case _:
                return Mark()

    def _for_resource(self, labels: Labels) -> Iterable[Mark]:
        """The marks of the URLs for which an entry is stored: several may be keyed alike."""
        held = self._placed.get(labels.spec)
        if held is None:
            spec = self._keying.known.get(labels.spec)
            if spec is None:
                # No policy keys like this: until one does, nobody finds the entry.
                return ()
            held = self._placed[labels.spec] = (spec, {})
            for url, mark in self._urls.items():
                _place(url, mark, *held)
        return held[1].get(labels.resource, ())

    def _matching(self, labels: Labels) -> Iterator[Mark]:
        kinds, by_value = self._kinds, self._by_value
        for kind, value in (
            (PurgeKind.ROUTE, labels.route),
            (PurgeKind.REVISION, labels.revision),
            (PurgeKind.SUBJECT, labels.subject.hex()),
        ):
            if kind in kinds and (mark := by_value.get((kind, value))) is not None:
                yield mark
        if PurgeKind.TAG in kinds:
            for tag in labels.tags:
                if (mark := by_value.get((PurgeKind.TAG, tag))) is not None:
                    yield mark
        if PurgeKind.URL in kinds:
            yield from self._for_resource(labels)
        if PurgeKind.PREFIX in kinds and labels.path:
            # What is kept for all hosts together is every host's.
            hosts = {labels.host, ""} if labels.host else self._prefixes.keys()
            for host in hosts:
                if (prefixes := self._prefixes.get(host)) is not None:
                    yield from prefixes.matching(labels.path)


def _place(url: str, mark: Mark, spec: KeySpec, placed: dict[bytes, list[Mark]]) -> None:
    host, _, path = url.partition("/")
    # Of no scheme: its own port has been taken off.
    for resource in resource_ids("", host, (f"/{path}",), (spec,)):
        placed.setdefault(resource, []).append(mark)
