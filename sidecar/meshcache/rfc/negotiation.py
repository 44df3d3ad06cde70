"""The request fields of content negotiation: `accept` and its relatives (RFC 9110 sections 12.4 and 12.5)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from meshcache.rfc.fields import split_list

NEGOTIATED: Final = frozenset({"accept", "accept-charset", "accept-encoding", "accept-language"})
"""Lists of preferences whose order says nothing: the weights do (section 12.4.2)."""

REGISTERED_CODINGS: Final = frozenset(
    {"aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "zstd"}
)
"""Content codings that the registry of IANA knows, without `identity`."""

DICTIONARY_CODINGS: Final = frozenset({"dcb", "dcz"})
"""Those that only a client with the same dictionary can read, which he names in `available-dictionary` (RFC 9842)."""

_ALIASES = {"x-gzip": "gzip", "x-compress": "compress"}  # section 8.4.1

# One member: what is preferred, parameters of a media range, a weight.
_MEMBER = re.compile(
    r"([!#$%&'*+\-.^_`|~0-9A-Za-z/]+)"
    r"((?:[ \t]*;[ \t]*[!#$%&'*+\-.^_`|~0-9A-Za-z]+=[!#$%&'*+\-.^_`|~0-9A-Za-z]+)*)"
)
_WEIGHT = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")

_MOST_MEMBERS = 64
_MEMO_LONGEST = 300


def canonical(name: str, value: str) -> str:
    """A form of the field `name` (one of `NEGOTIATED`) that is the same for values of the same meaning.

    Members are in lower case but for the values of parameters, sorted, each once, their weights without zeros at the
    end and without `q=1`. A value that is malformed or says two things of the same member keeps its order and case.
    """
    return _remembered(name, value) if len(value) <= _MEMO_LONGEST else _canonical(name, value)


def _canonical(name: str, value: str) -> str:
    members = split_list(value)
    as_it_is = ",".join(members)
    if len(members) > _MOST_MEMBERS:
        return as_it_is
    weights: dict[str, str] = {}
    for member in members:
        parsed = _weighted(member)
        if parsed is None:
            return as_it_is
        preferred, weight = parsed
        if name == "accept-encoding":
            preferred = _ALIASES.get(preferred, preferred)
        if weights.setdefault(preferred, weight) != weight:
            return as_it_is
    return ",".join(sorted(f"{preferred};q={weight}" if weight else preferred for preferred, weight in weights.items()))


_remembered = lru_cache(maxsize=1024)(_canonical)


def _weighted(member: str) -> tuple[str, str] | None:
    """What is preferred (with parameters of its own) and its weight, empty for 1; None when it is malformed."""
    match = _MEMBER.fullmatch(member)
    if match is None:
        return None
    preferred, weight = match[1].lower(), ""
    for parameter in match[2].split(";")[1:]:
        name, _, argument = parameter.strip(" \t").partition("=")
        name = name.lower()
        if weight:
            # Extensions behind the weight are no longer defined, and nobody knows what they mean.
            return None
        if name != "q":
            preferred = f"{preferred};{name}={argument}"
        elif _WEIGHT.fullmatch(argument) is None:
            return None
        else:
            weight = argument.rstrip("0").rstrip(".") if "." in argument else argument
            weight = weight or "0"
    return preferred, "" if weight == "1" else weight


def content_codings(field: str | None) -> tuple[str, ...]:
    """The registered codings in a `content-encoding` field, in lower case; others are nobody's to understand."""
    if not field:
        return ()
    codings = [_ALIASES.get(coding, coding) for coding in split_list(field.lower())]
    return tuple(coding for coding in codings if coding in REGISTERED_CODINGS)


def accepts_codings(accept_encoding: str | None, codings: tuple[str, ...]) -> bool:
    """Whether a client takes content that is coded with all of `codings` (section 12.5.3).

    Without the field it takes any. A coding that is neither named nor covered by `*` it does not take, nor one with
    the weight 0 or a weight that is none.
    """
    if accept_encoding is None:
        return True
    accepted = _accepted(accept_encoding) if len(accept_encoding) <= _MEMO_LONGEST else _takes(accept_encoding)
    anything = accepted.get("*", False)
    return all(accepted.get(coding, anything) for coding in codings)


def _takes(accept_encoding: str) -> dict[str, bool]:
    accepted: dict[str, bool] = {}
    for member in split_list(accept_encoding.lower()):
        coding, *parameters = (part.strip(" \t") for part in member.split(";"))
        weights = [parameter[2:] for parameter in parameters if parameter.startswith("q=")]
        taken = all(_WEIGHT.fullmatch(weight) and weight.strip("0.") for weight in weights)
        coding = _ALIASES.get(coding, coding)
        accepted[coding] = taken and accepted.get(coding, True)
    return accepted


_accepted = lru_cache(maxsize=1024)(_takes)
