"""The cache key: what of a request tells one stored answer from another.

Three values come out of a request:

- the *material*: every part that must agree, in full, each with its length in front so that no two different
  lists of parts read the same;
- the *storage key*: a 32-byte digest of the material, by which tiers store, and behind it the pool whose share of
  their capacity the entry takes (`engine/pools.py`). The material is kept in the entry and compared at look-up, so
  that equal digests alone never make a hit;
- the *resource id*: a 16-byte digest of the URI as the policy keys it, without arm, partition and header parts.
  Invalidation works on it, since an unsafe request says nothing of the headers under which answers were stored.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from meshcache.engine.cookies import said_by_cookies
from meshcache.engine.material import join
from meshcache.engine.pools import DIGEST_BYTES, pool_of
from meshcache.engine.query import normalised_query
from meshcache.message import split_authority
from meshcache.policy.shares import pool_id
from meshcache.rfc.spelling import spellings, with_lookalikes
from meshcache.rfc.vary import selecting_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.message import Headers, Request
    from meshcache.policy.compiled import KeySpec
    from meshcache.policy.selection import ByKey, Selection

FORMAT = b"k1"
"""Version of the material's layout: a change of layout is a new version, never a reinterpretation."""

RETARGETING = frozenset(
    {
        "cf-visitor",
        "cloudfront-forwarded-proto",
        "fastly-host",
        "fastly-ssl",
        "forwarded",
        "front-end-https",
        "hx-boosted",
        "hx-request",
        "hx-target",
        "rsc",
        "script-name",
        "turbo-frame",
        "x-accel-mapping",
        "x-arr-ssl",
        "x-backend-host",
        "x-base-url",
        "x-envoy-original-host",
        "x-envoy-original-path",
        "x-forwarded-host",
        "x-forwarded-path",
        "x-forwarded-port",
        "x-forwarded-prefix",
        "x-forwarded-proto",
        "x-forwarded-protocol",
        "x-forwarded-scheme",
        "x-forwarded-server",
        "x-forwarded-ssl",
        "x-forwarded-uri",
        "x-forwarded-url",
        "x-host",
        "x-http-destinationurl",
        "x-http-host-override",
        "x-inertia",
        "x-inertia-partial-data",
        "x-invoke-path",
        "x-invoke-query",
        "x-invoke-status",
        "x-matched-path",
        "x-middleware-prefetch",
        "x-middleware-subrequest",
        "x-nextjs-data",
        "x-now-route-matches",
        "x-original-host",
        "x-original-path",
        "x-original-uri",
        "x-original-url",
        "x-pjax",
        "x-replaced-path",
        "x-requested-with",
        "x-rewrite-url",
        "x-scheme",
        "x-script-name",
        "x-sendfile-type",
        "x-url-scheme",
    }
)
"""Fields by which many applications take another host, scheme, path or kind of answer (data, or a part in place of the
page) for the requested one, and which any client can send. They tell answers apart under every policy that does not
keep them from the origin, lest what one client has made of the target is given to another."""

RETARGETING_SPELLED = spellings(RETARGETING)
"""The same, and all that an origin may take for one of them."""
_RETARGETING_BUT_PROTO = RETARGETING_SPELLED - {"x-forwarded-proto"}

_DEFAULT_PORT = {"http": "80", "https": "443"}


class CacheKey(NamedTuple):
    """The three values described at the top of the module."""

    storage: bytes
    resource: bytes
    material: bytes

    @property
    def digest(self) -> bytes:
        """Of the material: the storage key without the pool."""
        return self.storage[:DIGEST_BYTES]


def cache_key(
    request: Request, spec: KeySpec, *, namespace: bytes, revision: str, border: tuple[bytes, ...] = ()
) -> CacheKey:
    """The key of `request` under `spec`.

    `namespace` separates routes and experiment arms, `revision` the releases of the application, `border` the
    callers (`policy.identity`; as many parts as `spec` asks for). HEAD shares the key of GET: a stored GET answers
    both (RFC 9111 section 4).
    """
    path, authority = request.path, request.authority
    extra = _extra(request, spec, border)
    # A popular URL is asked for again at once, and making its key is the costliest part of a hit. What is long is
    # made anew each time, so that a hostile sender cannot fill the memo with large strings.
    size = len(path) + len(authority) + (sum(map(len, extra)) if extra else 0)
    make = _remembered_key if size <= _MEMO_LONGEST else _make_key
    return make(spec, namespace, revision, request.scheme, authority, path, extra)


def chosen_key(
    request: Request, spec: KeySpec, choice: ByKey, *, revision: str, border: tuple[bytes, ...] = ()
) -> tuple[CacheKey, Selection]:
    """The key of `request` where keys are assigned to arms, and the selection that follows from it.

    The arm is chosen by the key as it is without a namespace. Both are made at once, and remembered together.
    """
    path, authority = request.path, request.authority
    extra = _extra(request, spec, border)
    size = len(path) + len(authority) + (sum(map(len, extra)) if extra else 0)
    make = _remembered_choice if size <= _MEMO_LONGEST else _make_choice
    return make(spec, choice, revision, request.scheme, authority, path, extra)


def _extra(request: Request, spec: KeySpec, border: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """What tells answers apart beside namespace, revision and target; nothing, for most requests."""
    headers = request.headers
    said = retargeting(headers, request.scheme)
    if not (said or border or spec.partition_headers or spec.headers or spec.cookies):
        return ()
    extra = [*border]
    if spec.partition_headers:
        extra += [_present(with_lookalikes(headers.get(name), name, headers)) for name in spec.partition_headers]
    if spec.headers:
        extra += [_present(value) for _, value in selecting_values(spec.headers, headers)]
    if spec.cookies:
        extra += said_by_cookies(headers, spec.cookies)
    if said:
        extra.append(join(part.encode("latin-1", "replace") for pair in said for part in pair))
    return tuple(extra)


def _make_key(
    spec: KeySpec,
    namespace: bytes,
    revision: str,
    scheme: str,
    authority: str,
    path: str,
    extra: tuple[bytes, ...],
) -> CacheKey:
    first, first_of_resource, marks, pool = _first_parts(spec, namespace, revision, scheme, authority)
    target = _target(path, spec)
    material = first + target + join((*extra, *marks))
    resource = _resource_id(first_of_resource, target)
    return CacheKey(blake2b(material, digest_size=DIGEST_BYTES).digest() + pool, resource, material)


def _make_choice(
    spec: KeySpec,
    choice: ByKey,
    revision: str,
    scheme: str,
    authority: str,
    path: str,
    extra: tuple[bytes, ...],
) -> tuple[CacheKey, Selection]:
    neutral, first_of_resource, marks, _ = _first_parts(spec, b"", revision, scheme, authority)
    target = _target(path, spec)
    rest = target + join((*extra, *marks))
    chosen = choice.choose(neutral + rest)
    first, _, _, pool = _first_parts(spec, chosen.namespace, revision, scheme, authority)
    material = first + rest
    resource = _resource_id(first_of_resource, target)
    return CacheKey(blake2b(material, digest_size=DIGEST_BYTES).digest() + pool, resource, material), chosen


@lru_cache(maxsize=512)
def _first_parts(
    spec: KeySpec, namespace: bytes, revision: str, scheme: str, authority: str
) -> tuple[bytes, bytes, tuple[bytes, ...], bytes]:
    """What the requests to one host have in common, of which there are few: what their material and what their resource
    begins with, what stands at the end of their material, and the pool.
    """
    host = _host(scheme, authority, spec)
    origin = f"{scheme}://{host}" if spec.host else ""
    encoded = revision.encode("utf-8", "surrogatepass"), origin.encode("latin-1", "replace")
    # `example.com.` is the same host and one resource. But a browser takes the two for different origins, and the links
    # in an answer may repeat what was asked for.
    marks = (b".",) if spec.host and is_absolute(authority) else ()
    first = material_head(spec, namespace) + join(encoded)
    return first, _first_of_resource(host), marks, pool_id(namespace)


def material_head(spec: KeySpec, namespace: bytes) -> bytes:
    """What every material under `spec` begins with in `namespace`: all before the revision."""
    return join((FORMAT, spec.fingerprint, namespace))


_MEMO_LONGEST = 512
_remembered_key = lru_cache(maxsize=4096)(_make_key)
_remembered_choice = lru_cache(maxsize=4096)(_make_choice)


class KeyParts(NamedTuple):
    """What a key's material says of the URI, as the policy keyed it."""

    spec: bytes
    """The fingerprint of the `KeySpec`."""
    host: str
    """With its port, unless that is the scheme's own; empty where the key leaves the host out."""
    target: str
    """The path."""
    query: str

    @property
    def resource(self) -> bytes:
        """The resource id, as in `CacheKey`."""
        target, query = (part.encode("latin-1", "replace") for part in (self.target, self.query))
        return _resource_id(_first_of_resource(self.host), join((target, query)))


def key_parts(material: bytes) -> KeyParts | None:
    """The parts of `material`; None for what `cache_key` has not made."""
    parts: list[bytes] = []
    at = 0
    for _ in range(7):
        start = material.find(b":", at, at + 10) + 1
        digits = material[at : start - 1]
        if not start or not digits.isdigit():
            return None
        at = start + int(digits)
        parts.append(material[start:at])
    form, spec, _, _, origin, target, query = parts
    if form != FORMAT or at > len(material):
        return None
    host = origin.partition(b"://")[2]
    return KeyParts(spec, host.decode("latin-1"), target.decode("latin-1"), query.decode("latin-1"))


def resource_ids(scheme: str, authority: str, paths: Iterable[str], specs: Iterable[KeySpec]) -> set[bytes]:
    """The resource ids that these targets may be stored under, one for each way in which policies key a URI."""
    keyed = tuple(specs)
    return {
        _resource_id(_first_of_resource(_host(scheme, authority, spec)), _target(path, spec))
        for path in paths
        for spec in keyed
    }


def variant_key(storage: bytes, selecting: Sequence[tuple[str, str | None]]) -> bytes:
    """The storage key of one variant: the primary key plus the selecting fields (RFC 9111 section 4.1)."""
    parts = [b"v1", storage]
    for name, value in selecting:
        parts.append(name.encode("latin-1"))
        parts.append(_present(value))
    return blake2b(join(parts), digest_size=DIGEST_BYTES).digest() + pool_of(storage)


def part_key(storage: bytes) -> bytes:
    """The storage key of the parts of what is, or would be, stored whole under `storage`.

    Every miss asks for it: the halves of the digest change places, which makes it another one at no cost.
    """
    return storage[16:DIGEST_BYTES] + storage[:16] + pool_of(storage)


def retargeting(headers: Headers, scheme: str) -> list[tuple[str, str]]:
    """What of `RETARGETING` a request says besides its URI, sorted by name; nothing, for most requests."""
    said: list[tuple[str, str]] = []
    if headers.names.isdisjoint(_RETARGETING_BUT_PROTO) and headers.get("x-forwarded-proto") == scheme:
        # As a rule: Envoy sets it on every request.
        return said
    for name in sorted(headers.names & RETARGETING_SPELLED):
        value = headers.get(name) or ""
        if name == "forwarded":
            # Who the client is (`for`, `by`) tells no answers apart. Quotes are not minded, as some do not mind them.
            pairs = (pair.strip() for pair in value.lower().replace(",", ";").split(";"))
            value = ";".join(pair for pair in pairs if pair.startswith(("host", "proto")))
        elif name == "x-forwarded-proto" and value == scheme:
            continue
        if value:
            said.append((name, value))
    return said


def is_absolute(authority: str) -> bool:
    """Whether the host is written with the dot of a fully qualified name."""
    return authority.partition(":")[0].endswith(".")


def is_unusual(authority: str, scheme: str) -> bool:
    """Whether the host is not written as a browser would: with capitals, an empty port, or the one it has anyway.

    It is the same host. But some origins know it only as it is usually written, and answer with an error or a redirect.
    """
    return (
        authority != authority.lower()
        or authority.endswith(":")
        or split_authority(authority)[1] == _DEFAULT_PORT.get(scheme)
    )


def _host(scheme: str, authority: str, spec: KeySpec) -> str:
    """The host as it enters the key, with its port unless that is the scheme's own; empty where it does not enter."""
    if not spec.host:
        return ""
    host, port = split_authority(authority)
    return f"{host}:{port}" if port and port != _DEFAULT_PORT.get(scheme) else host


def _target(path: str, spec: KeySpec) -> bytes:
    """Path and query as they enter the key, as two parts of it."""
    target, mark, query = path.partition("?")
    if mark and not query:
        # An empty query is another URI than none (RFC 3986 section 6.2.3).
        target = path
    return join((target.encode("latin-1", "replace"), normalised_query(query, spec).encode("latin-1", "replace")))


@lru_cache(maxsize=512)
def _first_of_resource(host: str) -> bytes:
    # The scheme does not tell resources apart for invalidation: a POST over https must reach what http stored.
    return join((b"r1", host.encode("latin-1", "replace")))


def _resource_id(first: bytes, target: bytes) -> bytes:
    return blake2b(first + target, digest_size=16).digest()


def _present(value: str | None) -> bytes:
    """An absent field is not an empty one."""
    return b"-" if value is None else b"+" + value.encode("latin-1", "replace")
