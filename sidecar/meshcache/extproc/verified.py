"""What Envoy has verified of the caller: the tokens in the metadata of its JWT filter.

Envoy's filter writes each verified payload under the key that its provider names: `payload` as Istio sets it up, the
issuer in older releases of Istio, anything under one's own configuration. All of them are read.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from google.protobuf.struct_pb2 import Struct

from meshcache.message import Token

if TYPE_CHECKING:
    from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

NAMESPACE: Final = "envoy.filters.http.jwt_authn"
"""As in `envoy.filters.JWT_METADATA`."""

PASSING: Final = frozenset({"aio", "at_hash", "c_hash", "exp", "iat", "jti", "nbf", "nonce", "rh", "s_hash", "uti"})
"""Claims that only number or date a token: they say nothing of who he is and what he may do."""

_LARGEST_EXACT: Final = 1 << 53
"""Numbers of JSON arrive as doubles: from here on two different ones may read the same."""
_MEMO_LONGEST: Final = 4096


def payload(message: ProcessingRequest) -> bytes:
    """The verified payloads of a request, serialised in a form that is the same for equal ones; empty for none."""
    found = message.metadata_context.filter_metadata
    if NAMESPACE not in found:
        return b""
    serialised: bytes = found[NAMESPACE].SerializeToString(deterministic=True)
    return serialised


def tokens(serialised: bytes) -> tuple[Token, ...]:
    """The tokens in what `payload` has given."""
    if not serialised:
        return ()
    # A caller comes again with the same token. What is long is read anew, so that nobody fills the memo with it.
    return _remembered(serialised) if len(serialised) <= _MEMO_LONGEST else _tokens(serialised)


def stand_in(serialised: bytes) -> str:
    """What takes the place of an `authorization` that Envoy's JWT filter has verified and taken out.

    The request carried credentials all the same, so that the rules for those bind (RFC 9111 section 3.5). Equal for
    equal payloads only.
    """
    return f"verified {blake2b(serialised, digest_size=16).hexdigest()}"


def _tokens(serialised: bytes) -> tuple[Token, ...]:
    found = Struct.FromString(serialised).fields
    return tuple(_token(found[key].struct_value) for key in sorted(found) if found[key].HasField("struct_value"))


_remembered = lru_cache(maxsize=2048)(_tokens)


def _token(claims: Struct) -> Token:
    texts: dict[str, str] = {}
    standing = blake2b(digest_size=16)
    for name in sorted(claims.fields):
        value = claims.fields[name]
        kind = value.WhichOneof("kind")
        if kind == "string_value":
            texts[name] = value.string_value
        elif kind == "number_value" and value.number_value.is_integer() and abs(value.number_value) < _LARGEST_EXACT:
            texts[name] = str(int(value.number_value))
        if name not in PASSING:
            for part in (name.encode(), value.SerializeToString(deterministic=True)):
                standing.update(b"%d:%b" % (len(part), part))
    return Token(texts.get("iss", ""), texts, standing.digest())
