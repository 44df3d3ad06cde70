"""The marks on messages between the filter and the sidecar: what is asked, what may be kept, what is to be dropped.

They are header fields, words of ASCII with a blank between them. The last word is the proof: BLAKE2b (16 bytes), keyed
by the secret that only the plan carries, over the field's name, a blank, and all words before. So a mark is worth
nothing when a client or an origin has written it, and one for one key or plan proves nothing for another.

    x-meshcache-ask:  v1 PLAN DIGEST WHY PROOF
    x-meshcache-keep: v1 PLAN DIGEST BIRTH FRESH STALE DROP RENEW FLAGS LABELS VARY PROOF
    x-meshcache-drop: v1 PLAN DIGEST LABELS PROOF

PLAN is 16 hexadecimal digits, DIGEST 64 (BLAKE2b-32 of the key's material; zeros for an unsafe request), LABELS some of
16 digits each with commas between them. Times are Unix milliseconds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.decisions import AskedFor

if TYPE_CHECKING:
    from collections.abc import Sequence

ASK: Final = "x-meshcache-ask"
KEEP: Final = "x-meshcache-keep"
DROP: Final = "x-meshcache-drop"

FORM: Final = "v1"
PLAN_BYTES: Final = 8
DIGEST_BYTES: Final = 32
SECRET_BYTES: Final = 32
PROOF_BYTES: Final = 16

MOST_LABELS: Final = 32
"""Of one answer: it is not kept in the filter when it has more."""
MOST_VARY: Final = 8
"""Names of request fields that one answer may depend on to be kept."""
LONGEST_VARY: Final = 256
"""Characters of these names, with the commas between them."""
LATEST: Final = (1 << 53) - 1
"""The last moment that a mark can name."""
FOR_COOKIES: Final = 1
"""Flag: the answer may be given to requests with cookies."""

NOTHING: Final = "-"
EVERYTHING: Final = "*"


class Ask(NamedTuple):
    """What the filter says with a request that it hands on."""

    plan: bytes
    """Id of the plan by which it has found the key."""
    digest: bytes
    why: AskedFor


class Keep(NamedTuple):
    """For how long the filter may answer with the response that goes by. Times are Unix milliseconds."""

    birth: int
    """When its age was 0."""
    fresh_until: int
    stale_until: int
    """Until then it may be served while one request has it refreshed; `fresh_until` when it may not."""
    drop_at: int
    """From then on it is not to be used at all."""
    renew_at: int
    """From then on it is renewed, if it is popular; 0 when it is not renewed before it is stale."""
    flags: int
    labels: tuple[int, ...]
    vary: tuple[str, ...]
    """Lower-case names of the request fields whose raw values have to be equal."""


class Drop(NamedTuple):
    """What has become invalid by an unsafe request."""

    labels: tuple[int, ...] | None
    """None for everything."""


_ASK = re.compile(r"v1 ([0-9a-f]{16}) ([0-9a-f]{64}) (miss|stale|renew|unsafe)", re.ASCII)
_KEEP = re.compile(
    r"v1 ([0-9a-f]{16}) ([0-9a-f]{64}) ([0-9]{1,16}) ([0-9]{1,16}) ([0-9]{1,16}) ([0-9]{1,16}) ([0-9]{1,16})"
    r" ([0-9a-f]{1,8}) ([0-9a-f]{16}(?:,[0-9a-f]{16}){0,31}) (-|[!-+.-~-]+(?:,[!-+.-~-]+){0,7})",
    re.ASCII,
)
_DROP = re.compile(r"v1 ([0-9a-f]{16}) ([0-9a-f]{64}) ([*-]|[0-9a-f]{16}(?:,[0-9a-f]{16})*)", re.ASCII)
_LONGEST: Final = 8192


def write_ask(ask: Ask, secret: bytes) -> str:
    """The value of `x-meshcache-ask`."""
    return _proven(ASK, f"{FORM} {ask.plan.hex()} {ask.digest.hex()} {ask.why}", secret)


def parse_ask(value: str, secret: bytes) -> Ask | None:
    """What `value` asks; None for what is not of the form, or not proven by `secret`."""
    found = _words(_ASK, ASK, value, secret)
    if found is None:
        return None
    plan, digest, why = found
    return Ask(bytes.fromhex(plan), bytes.fromhex(digest), AskedFor(why))


def write_keep(ask: Ask, keep: Keep, secret: bytes) -> str:
    """The value of `x-meshcache-keep` on the answer to what was asked."""
    vary = ",".join(keep.vary) or NOTHING
    text = (
        f"{FORM} {ask.plan.hex()} {ask.digest.hex()} {keep.birth} {keep.fresh_until} {keep.stale_until}"
        f" {keep.drop_at} {keep.renew_at} {keep.flags:x} {_listed(keep.labels)} {vary}"
    )
    return _proven(KEEP, text, secret)


def parse_keep(value: str, secret: bytes) -> tuple[bytes, bytes, Keep] | None:
    """Plan id, digest of the key, and what may be kept; None for what is not of the form, or not proven."""
    found = _words(_KEEP, KEEP, value, secret)
    if found is None:
        return None
    plan, digest, *times, flags, labels, vary = found
    birth, fresh, stale, drop, renew = map(int, times)
    if max(birth, fresh, stale, drop, renew) > LATEST:
        return None
    names = () if vary == NOTHING else tuple(vary.split(","))
    keep = Keep(birth, fresh, stale, drop, renew, int(flags, 16), _labels(labels), names)
    return bytes.fromhex(plan), bytes.fromhex(digest), keep


def write_drop(ask: Ask, drop: Drop, secret: bytes) -> str:
    """The value of `x-meshcache-drop` on the answer to an unsafe request."""
    said = EVERYTHING if drop.labels is None else _listed(drop.labels) or NOTHING
    return _proven(DROP, f"{FORM} {ask.plan.hex()} {ask.digest.hex()} {said}", secret)


def parse_drop(value: str, secret: bytes) -> tuple[bytes, bytes, Drop] | None:
    """Plan id, digest as asked, and what is invalid; None for what is not of the form, or not proven."""
    found = _words(_DROP, DROP, value, secret)
    if found is None:
        return None
    plan, digest, said = found
    labels = None if said == EVERYTHING else () if said == NOTHING else _labels(said)
    return bytes.fromhex(plan), bytes.fromhex(digest), Drop(labels)


def fits(labels: Sequence[int], vary: Sequence[str]) -> bool:
    """Whether an answer with these can be described by a mark."""
    return (
        0 < len(labels) <= MOST_LABELS
        and len(vary) <= MOST_VARY
        and sum(map(len, vary)) + len(vary) <= LONGEST_VARY + 1
        and NOTHING not in vary
    )


def proof(name: str, text: str, secret: bytes) -> str:
    """The proof of `text` as the value of the field `name`."""
    hasher = _keyed(secret).copy()
    hasher.update(f"{name} {text}".encode("latin-1"))
    return hasher.hexdigest()


@lru_cache(maxsize=4)
def _keyed(secret: bytes) -> blake2b:
    return blake2b(digest_size=PROOF_BYTES, key=secret)


def _proven(name: str, text: str, secret: bytes) -> str:
    return f"{text} {proof(name, text, secret)}"


def _words(form: re.Pattern[str], name: str, value: str, secret: bytes) -> tuple[str, ...] | None:
    text, blank, given = value.rpartition(" ")
    if not blank or len(value) > _LONGEST:
        return None
    found = form.fullmatch(text)
    if found is None or not compare_digest(given.encode("latin-1", "replace"), proof(name, text, secret).encode()):
        return None
    return found.groups()


def _listed(labels: Sequence[int]) -> str:
    return ",".join([f"{label:016x}" for label in labels])


def _labels(text: str) -> tuple[int, ...]:
    return tuple(int(label, 16) for label in text.split(","))
