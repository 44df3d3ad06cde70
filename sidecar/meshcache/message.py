"""HTTP messages as plain values, free of protobuf and of any transport.

Names are lower case. Values are `str` decoded as ISO-8859-1, which maps every byte to one character and
back, so that bytes above 0x7f survive a round trip unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping

    from meshcache.wasm.marks import Ask

Field = tuple[str, str]


class Headers:
    """An immutable multi-map of header fields that keeps order and repeats.

    Pseudo-headers (`:path`, `:status`) never appear here: they are attributes of `Request` and `Response`.
    """

    __slots__ = ("fields", "get", "names")

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        self.fields: tuple[Field, ...] = tuple(fields)
        joined = dict(self.fields)
        if len(joined) != len(self.fields):
            joined = _joined(self.fields)
        # Dozens of questions are put to the fields of one message: the dictionary itself answers them.
        self.get: Callable[[str], str | None] = joined.get
        """All values of a name joined by a comma (RFC 9110 section 5.3), or None when it is absent."""
        self.names: KeysView[str] = joined.keys()
        """The names that are there, each once."""

    def get_all(self, name: str) -> list[str]:
        """The values of `name`, one for each field line, in order."""
        return [value for key, value in self.fields if key == name]

    def cookies(self) -> Iterator[Field]:
        """Name and value of each cookie of a request (RFC 6265 section 4.2.1), as they were sent.

        Only the blanks that separate two are left out: an origin may tell `a=1` from `a=1 `, and so does who asks here.
        One without `=` has an empty value.
        """
        if "cookie" in self.names:
            for line in self.get_all("cookie"):
                for pair in line.split(";"):
                    name, _, value = pair.lstrip(" \t").partition("=")
                    yield name, value

    def without(self, names: frozenset[str] | set[str]) -> Headers:
        """A copy that lacks every field in `names`."""
        return Headers(item for item in self.fields if item[0] not in names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        return f"Headers({list(self.fields)!r})"


def _joined(fields: Iterable[Field]) -> dict[str, str]:
    values: dict[str, list[str]] = {}
    for name, value in fields:
        values.setdefault(name, []).append(value)
    return {name: ", ".join(lines) for name, lines in values.items()}


LONGEST_AUTHORITY = 253 + 1 + len(":65535")
"""Longest DNS name (RFC 1035 section 2.3.4) with its last dot and a port."""


def split_authority(authority: str) -> tuple[str, str]:
    """Host and port of `authority`: the host in lower case, without the dot of a fully qualified name.

    An address of IPv6 keeps its brackets. The port is empty when there is none.
    """
    host = authority.lower()
    port = ""
    if ":" in host:
        if host[0] == "[":
            inside, _, rest = host.partition("]")
            host, port = f"{inside}]", rest.removeprefix(":")
        else:
            host, _, port = host.partition(":")
    return host.removesuffix("."), port


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of the downstream connection, as Envoy has established it (never from a header)."""

    address: str = ""
    """IP address without port; empty when Envoy did not say."""
    mtls: bool = False
    """Whether the peer presented a certificate that Envoy verified."""
    uri: str = ""
    """First URI among the certificate's alternative names, a SPIFFE id as a rule; empty for none."""
    dns: str = ""
    """First DNS name among them."""
    subject: str = ""
    """The certificate's subject (RFC 2253)."""


@dataclass(frozen=True, slots=True)
class Token:
    """What one token says of the caller, once Envoy has verified it (never what a header says)."""

    issuer: str
    """Its `iss`: who vouches for the claims, and within whose names they are unique. Empty for none."""
    claims: Mapping[str, str]
    """Those of its claims that are text or a whole number."""
    standing: bytes
    """Digest (16 bytes) of all it says but when and under which number it was made: two tokens of one person that
    differ in scopes, roles or client differ in it."""


@dataclass(slots=True)
class Request:
    """A request as the cache sees it."""

    method: str
    authority: str
    path: str
    """Path with query, as Envoy has normalised it."""
    headers: Headers = field(default_factory=Headers)
    scheme: str = "http"
    peer: Peer = field(default_factory=Peer)
    cluster: str = ""
    """The Envoy cluster that the route has chosen, empty when Envoy did not say."""
    complete: bool = True
    """Whether the request ended with its headers, that is, has no body."""
    tokens: tuple[Token, ...] = ()
    """The tokens that Envoy has verified for it."""
    asked: Ask | None = None
    """What the filter in Envoy has proved to ask with it; None for most requests."""

    def has_room(self, fields: Iterable[Field]) -> bool:  # noqa: ARG002 - for requests that have bounds
        """Whether it can be sent on with these fields as well: its transport may have bounds."""
        return True

    @property
    def uri(self) -> str:
        """The target URI as the client sent it: nothing is normalised."""
        return f"{self.scheme}://{self.authority}{self.path}"

    def as_get(self, headers: Headers) -> Request:
        """A GET of the same target with other header fields."""
        return Request(
            "GET", self.authority, self.path, headers, self.scheme, self.peer, self.cluster, True, self.tokens
        )


@dataclass(slots=True)
class Response:
    """The head of an origin's answer."""

    status: int
    headers: Headers = field(default_factory=Headers)
    from_origin: bool = True
    """False for Envoy's own local replies, which are never stored."""
    complete: bool = False
    """Whether the response ended with its headers, that is, has no body."""
