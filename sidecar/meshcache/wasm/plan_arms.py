"""What of keys, policies and experiments a plan can say.

A *place* is where a request can come to: an arm, or a route without an experiment, with all that follows from it. What
the filter cannot do as the sidecar does it has none (`NOWHERE`): such requests are handed on.

    key spec     u8 bits (1 host, 2 whole query, 4 sorted query) | texts include | texts exclude | texts headers as
                 they are | texts headers | texts cookies | texts stripped headers
    place        u8 methods (1 GET, 2 HEAD) | u16 key spec | u16 pool | u32 largest body | text arm | text policy
                 | text what its material begins with | text tag
    experiment   forces: (text header | text value | u16 place)* | u8 mode | u16 place of who carries no unit, or of all
                 | units: (u8 kind | text name | text mark)* | arms: (u16 place | text tag, empty: it does not count)*
                 | 32 bytes key | draws apart | draws together | by key: u8 methods | u16 key spec | text material
    draws        (u16 arm, 0xFFFF the group | u64 seed | f64 scale)*

A text is a u16 length and bytes, a list a u16 number and items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.engine.key import material_head
from meshcache.policy.selection import Selection, namespace
from meshcache.policy.shares import pool_id
from meshcache.wasm.plan_writer import Writer
from meshcache.wasm.tags import encode_experiment, encode_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshcache.experiment.assignment import Draw
    from meshcache.experiment.exposure import CountedExperiment
    from meshcache.policy.compiled import KeySpec, Policy
    from meshcache.policy.layers import Layer

NOWHERE: Final = 0xFFFF
"""In the place of a place: the request is handed on."""

GET, HEAD = 1, 2
EITHER: Final = GET | HEAD

DECIDED, ONE_UNIT, SEVERAL_UNITS, BY_KEY, UNKNOWN = range(5)
"""How an experiment comes to an arm, once no header has forced one: all have the same; by the hash of the only kind of
unit; not here if any unit is carried, since it depends on what was seen before; by the hash of the key; not here."""

_HEADER_UNIT, _COOKIE_UNIT = range(2)
_LARGEST: Final = 0xFFFFFFFF


def methods_of(methods: frozenset[str]) -> int:
    """Which of GET and HEAD are among them, as bits."""
    return GET * ("GET" in methods) | HEAD * ("HEAD" in methods)


def expressible(policy: Policy) -> bool:
    """Whether the filter can answer under `policy`: nothing in the key but what a message itself says, nothing that
    the origin keeps from others, and a place in process memory at all."""
    return (
        not policy.key.partitioned
        and not policy.freshness.ignore
        and bool(methods_of(policy.key.methods))
        and policy.tiers.hot.ttl > 0
        and policy.tiers.hot.max_object_bytes > 0
    )


class Places:
    """The key specs, places and experiments of one plan, each said once."""

    def __init__(self, pools: Mapping[bytes, int], counted: Mapping[str, CountedExperiment], *, subjects: bool) -> None:
        """`pools`: the place of each arm's pool in the plan, the common one being 0; `subjects`: whether it is said
        somewhere who a verified caller is."""
        self._pools = pools
        self._counted = counted
        self._subjects = subjects
        self._specs: dict[bytes, int] = {}
        self._places: dict[bytes, int] = {}
        self._experiments: list[bytes] = []

    def write(self, into: Writer) -> None:
        """All that have been asked for."""
        for found in (self._specs, self._places, self._experiments):
            into.each(found, into.raw)

    def of(self, selection: Selection) -> int:
        """The place of `selection`, which has a policy."""
        policy = selection.policy
        if policy is None or not expressible(policy) or not (_shows(selection.arm) and _shows(policy.name)):
            return NOWHERE
        try:
            tag = encode_plain(selection.route, selection.arm, policy.name, "+".join(selection.missing))
        except ValueError:
            return NOWHERE
        made = Writer()
        made.u8(methods_of(policy.key.methods))
        made.u16(self._spec(policy.key))
        made.u16(self._pools.get(pool_id(selection.namespace), 0))
        made.u32(min(policy.tiers.hot.max_object_bytes, _LARGEST))
        made.text(selection.arm.encode())
        made.text(policy.name.encode())
        made.text(material_head(policy.key, selection.namespace))
        made.text(tag)
        return _number(self._places, made.done())

    def experiment(self, layer: Layer) -> int:
        """The number of the experiment of `layer`."""
        experiment = layer.experiment
        places = [self._arm(layer, place) for place in range(len(experiment.arms))]
        mode, units = self._units(layer)
        made = Writer()
        made.u16(len(layer.forced))
        for header, value, arm in layer.forced:
            made.text(header.encode("latin-1"))
            made.text(value.encode("latin-1"))
            made.u16(places[arm])
        made.u8(mode)
        made.u16(self._arm(layer, 0, missing=True) if layer.everybody is None else places[layer.everybody])
        made.raw(units)
        made.u16(len(places))
        for arm, place in enumerate(places):
            tag = self._exposure(layer, experiment.arms[arm].policy) if layer.counting else b""
            made.u16(NOWHERE if tag is None else place)
            made.text(tag or b"")
        draws = layer.draws
        made.raw(draws.key)
        made.each(draws.apart, lambda draw: _draw(made, draw))
        made.each(draws.together, lambda draw: _draw(made, draw))
        if mode == BY_KEY:
            # The arms make their keys alike, and which one it is follows from the key.
            key = experiment.arms[0].policy.key
            made.u8(methods_of(key.methods))
            made.u16(self._spec(key))
            made.text(material_head(key, b""))
        self._experiments.append(made.done())
        return len(self._experiments) - 1

    def _arm(self, layer: Layer, place: int, *, missing: bool = False) -> int:
        experiment = layer.experiment
        arm = experiment.arms[place]
        home = namespace(experiment.route, experiment.name, arm.name)
        without = (experiment.name,) if missing else ()
        return self.of(
            Selection(route=experiment.route, policy=arm.policy, arm=arm.name, namespace=home, missing=without)
        )

    def _units(self, layer: Layer) -> tuple[int, bytes]:
        """How the arm comes about, and the units by which it does."""
        if layer.everybody is not None:
            return DECIDED, bytes(2)
        if layer.by_key:
            keyed = expressible(layer.experiment.arms[0].policy)
            return (BY_KEY if keyed else UNKNOWN), bytes(2)
        units = layer.experiment.units
        kinds = {unit.kind for unit in units}
        if "cacheKey" in kinds or ("subject" in kinds and self._subjects):
            return UNKNOWN, bytes(2)
        made = Writer()
        # Where nobody says who a caller is, no request carries that.
        carried = [unit for unit in units if unit.kind != "subject"]
        made.u16(len(carried))
        for unit in carried:
            made.u8(_HEADER_UNIT if unit.kind == "header" else _COOKIE_UNIT)
            made.text(unit.name.encode("latin-1"))
            made.text(unit.mark)
        return (ONE_UNIT if len(units) == 1 else SEVERAL_UNITS), made.done()

    def _exposure(self, layer: Layer, policy: Policy) -> bytes | None:
        """What a request counts as that is in an arm with this policy; None when that cannot be said."""
        try:
            return encode_experiment(self._counted[layer.experiment.name], policy.cost)
        except ValueError:
            return None

    def _spec(self, spec: KeySpec) -> int:
        made = Writer()
        everything = spec.query_include == ("*",) and not spec.query_exclude
        made.u8(spec.host | everything << 1 | spec.query_sort << 2)
        for names in (spec.query_include, spec.query_exclude, spec.partition_headers, spec.headers, spec.cookies):
            made.each([name.encode("latin-1") for name in names if _sendable(name)], made.text)
        made.each([name.encode() for name in sorted(spec.strip)], made.text)
        return _number(self._specs, made.done())


def _shows(name: str) -> bool:
    """Whether `name` may stand in `cache-status` as it is; those of documents may."""
    return all("!" <= character <= "~" and character not in '"\\' for character in name)


def _sendable(name: str) -> bool:
    """Whether the name of a parameter can be sent: each character as a byte. One that cannot be fits none."""
    return all(character <= "\xff" for character in name)


def _draw(into: Writer, draw: Draw) -> None:
    place, seed, scale = draw
    into.u16(NOWHERE if place < 0 else place)
    into.u64(seed)
    into.f64(scale)


def _number(numbers: dict[bytes, int], item: bytes) -> int:
    """The number of `item`, which gets one when it has none."""
    return numbers.setdefault(item, len(numbers))
