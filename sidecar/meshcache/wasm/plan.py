"""The plan: what the policies in force say, in a form by which the filter finds route, arm and key of a request.

Whatever is to be decided about policies has been decided here; the filter only looks up. What cannot be said in a plan
leads to nothing wrong there, but to requests that are handed on to the sidecar.

    "MCP1" | u16 format | 8 bytes id | 32 bytes secret | u32 lease, ms | u64 bytes of memory | u32 largest body
    | u8 cache-status for strangers (0 off, 1 minimal, 2 standard, 3 full) | trust: all of cache-status
    | trust: headers that force an arm | u8 1: the revision is the cluster's | text revision
    | pools: (u64 id | f64 fraction)* | key specs | places | experiments (`plan_arms`) | targets
    | text tag of requests without a route | routes (`plan_routes`)

    trust        u8 bits (1 anyone, 2 mesh) | networks: (u8 4 or 16 | so many bytes | u8 length of the prefix)*

Numbers are little endian. The id is a digest of all but itself and the secret: plans of one id say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.engine.pools import COMMON
from meshcache.policy.compiled import Config, Match
from meshcache.policy.shares import CapacityShares, capacity_shares
from meshcache.wasm.marks import PLAN_BYTES, SECRET_BYTES
from meshcache.wasm.plan_arms import NOWHERE, Places
from meshcache.wasm.plan_routes import Routes
from meshcache.wasm.plan_writer import TooLargeError, Writer
from meshcache.wasm.tags import encode_plain

if TYPE_CHECKING:
    from meshcache.policy.layers import Layer
    from meshcache.policy.selection import Selection
    from meshcache.policy.snapshot import Snapshot
    from meshcache.policy.trust import TrustRule

FORMAT: Final = 1
MAGIC: Final = b"MCP1"
MOST_PLAN_BYTES: Final = 1 << 20
"""Of larger sets of policies the plan says nothing: every request is handed on."""

_ID_AT: Final = len(MAGIC) + 2
_SHOWN: Final = ("off", "minimal", "standard", "full")
_HAND_ON, _NOT_CACHED, _PLACE, _EXPERIMENT = range(4)


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What a plan says beside the policies."""

    secret: bytes
    """Proves the marks between filter and sidecar; 32 bytes."""
    lease: float
    """Seconds for which a worker may serve without hearing from the sidecar."""
    budget: int
    """Bytes of memory for entries, of each worker of Envoy."""
    largest: int
    """Bytes of the largest body that is kept."""


def encode(snapshot: Snapshot, settings: PlanSettings) -> bytes:
    """The plan for `snapshot`, overlays included: the same bytes for what says the same.

    The snapshot has to be compiled under the installation's secret of assignment, as the workers' are.
    Raises `ValueError` for settings that make no sense.
    """
    if len(settings.secret) != SECRET_BYTES:
        raise ValueError(f"the secret of a plan has {SECRET_BYTES} bytes, not {len(settings.secret)}")
    if not 0 < settings.lease < 1e6 or not 0 <= settings.budget < 1 << 48 or not 0 <= settings.largest < 1 << 32:
        raise ValueError(f"no lease, budget or size: {settings.lease}, {settings.budget}, {settings.largest}")
    try:
        # Without memory for what it asks about, it need not ask.
        rest = _said(snapshot, settings) if settings.budget else b""
    except TooLargeError:
        rest = b""
    if not rest or len(rest) > MOST_PLAN_BYTES:
        rest = _nothing_said(settings)
    head = MAGIC + FORMAT.to_bytes(2, "little")
    return b"".join((head, blake2b(head + rest, digest_size=PLAN_BYTES).digest(), settings.secret, rest))


def plan_id(plan: bytes) -> str:
    """The id of a plan, 16 hex digits."""
    return plan[_ID_AT : _ID_AT + PLAN_BYTES].hex()


def _said(snapshot: Snapshot, settings: PlanSettings) -> bytes:
    shares = capacity_shares(snapshot)
    pools = {share.pool: number for number, share in enumerate(shares.arms, 1)}
    places = Places(pools, snapshot.counted, subjects=snapshot.config.identity.subject is not None)
    targets = [_target(places, plain, layers) for plain, layers in snapshot.leads]
    # One more behind them, for matches that are too many.
    targets.append(_NOWHERE)
    matches = ((match, number) for number, route in enumerate(snapshot.routes) for match in route.matches)
    return _body(settings, snapshot.config, shares, places, targets, Routes(matches, len(targets) - 1))


def _nothing_said(settings: PlanSettings) -> bytes:
    """A plan by which every request is handed on."""
    places = Places({}, {}, subjects=True)
    return _body(settings, Config(), CapacityShares(1.0), places, [_NOWHERE], Routes([(Match(), 0)], 0))


def _body(
    settings: PlanSettings,
    config: Config,
    shares: CapacityShares,
    places: Places,
    targets: list[_Target],
    routes: Routes,
) -> bytes:
    out = Writer()
    out.u32(round(settings.lease * 1000))
    out.u64(settings.budget)
    out.u32(settings.largest)
    out.u8(_SHOWN.index(config.cache_status))
    _trust(out, config.trust.cache_status)
    _trust(out, config.trust.canary)
    out.u8(config.revision.kind == "envoyCluster")
    out.text(config.revision.value.encode("utf-8", "surrogatepass"))
    out.u16(1 + len(shares.arms))
    _pool(out, COMMON, shares.common)
    for share in shares.arms:
        _pool(out, share.pool, share.fraction)
    places.write(out)
    out.u16(len(targets))
    for target in targets:
        out.u8(target.kind)
        out.u16(target.number)
        out.text(target.tag)
    out.text(encode_plain("", "", ""))
    routes.write(out)
    return out.done()


class _Target(NamedTuple):
    """What a match leads to."""

    kind: int
    number: int = 0
    tag: bytes = b""
    """What a request that is not cached is counted by."""


_NOWHERE: Final = _Target(_HAND_ON)


def _target(places: Places, plain: Selection, layers: tuple[Layer, ...]) -> _Target:
    if len(layers) > 1:
        return _NOWHERE
    if layers:
        return _Target(_EXPERIMENT, places.experiment(layers[0]))
    if plain.policy is not None:
        number = places.of(plain)
        return _NOWHERE if number == NOWHERE else _Target(_PLACE, number)
    try:
        return _Target(_NOT_CACHED, tag=encode_plain(plain.route, "", ""))
    except ValueError:
        return _NOWHERE


def _trust(out: Writer, rule: TrustRule) -> None:
    out.u8(rule.anyone | rule.mesh << 1)
    out.u16(len(rule.networks))
    for network in rule.networks:
        packed = network.network_address.packed
        out.u8(len(packed))
        out.raw(packed)
        out.u8(network.prefixlen)


def _pool(out: Writer, pool: bytes, fraction: float) -> None:
    out.u64(int.from_bytes(pool, "little"))
    out.f64(fraction)
