"""What `meshcache simulate` is told, checked before anything is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from meshcache.decisions import TierName
    from meshcache.simulate.source import Format

MISS: Final = "184ms"
_HOST: Final = re.compile(r"(?:[-A-Za-z0-9._~%]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Settings:
    """The options, as values. Durations are seconds, sizes bytes; None is for what the policies decide."""

    trace: Path
    form: Format | None
    host: str
    rate: float
    limit: int | None
    object_bytes: int
    cache_control: str | None
    validators: bool
    hit_latency: Mapping[TierName, float]
    miss_latency: float
    sigma: float
    seed: int
    hot_bytes: int | None
    warm_bytes: int
    cold_bytes: int | None

    @classmethod
    def of(
        cls,
        trace: Path,
        *,
        form: str,
        host: str,
        rate: float,
        limit: int | None,
        object_bytes: str,
        cache_control: str | None,
        validators: bool,
        hit_latency: str,
        miss_latency: str,
        sigma: float,
        seed: int,
        hot_bytes: str,
        warm_bytes: str,
        cold_bytes: str,
    ) -> Settings:
        """Raises `typer.BadParameter`."""
        from meshcache.policy.units import parse_duration

        return cls(
            trace,
            _format(form),
            _host(host),
            rate,
            limit,
            size(object_bytes, "--object-bytes"),
            _field_value(cache_control),
            validators,
            _by_tier(hit_latency),
            _read(parse_duration, miss_latency, "--miss-latency"),
            sigma,
            seed,
            size(hot_bytes, "--hot-bytes") if hot_bytes else None,
            size(warm_bytes, "--warm-bytes"),
            size(cold_bytes, "--cold-bytes") if cold_bytes else None,
        )

    def shown(self) -> list[tuple[str, str]]:
        """What a report says of them."""
        from meshcache.simulate.units import shown_bytes, shown_seconds

        hits = ", ".join(f"{tier} {shown_seconds(seconds)}" for tier, seconds in self.hit_latency.items())
        return [
            ("trace", str(self.trace)),
            ("cache-control of the origin", self.cache_control or "none, unless the trace has one"),
            ("entity tags of the origin", "yes" if self.validators else "no"),
            ("latency of hits", hits),
            ("latency of the origin", shown_seconds(self.miss_latency)),
            ("spread of latencies", f"lognormal, sigma {self.sigma:g}, seed {self.seed}" if self.sigma else "none"),
            ("size of what has none", shown_bytes(self.object_bytes)),
        ]


def size(text: str, option: str) -> int:
    """Bytes, at least 1. Raises `typer.BadParameter`."""
    from meshcache.policy.units import parse_quantity

    found = _read(parse_quantity, text, option)
    if found < 1:
        raise typer.BadParameter("expected at least 1 byte", param_hint=option)
    return int(found)


def _format(text: str) -> Format | None:
    from meshcache.simulate.source import Format

    if not text:
        return None
    # The combined format is the common one with more behind it, and read as that.
    name = "common" if text == "combined" else text
    if name not in list(Format):
        raise typer.BadParameter(f"expected one of {', '.join(Format)}, got {text!r}", param_hint="--format")
    return Format(name)


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise typer.BadParameter(f"expected HOST or HOST:PORT, got {text!r}", param_hint="--host")
    return text


def _field_value(text: str | None) -> str | None:
    from meshcache.rfc.fields import is_field_value

    if text is not None and not is_field_value(text):
        raise typer.BadParameter(
            f"expected a value such as max-age=60, got {text!r}", param_hint="--origin-cache-control"
        )
    return text


def _by_tier(text: str) -> dict[TierName, float]:
    """`17ms` for all tiers, or `hot=1ms,warm=3ms,cold=20ms`."""
    from meshcache.decisions import TierName
    from meshcache.policy.units import parse_duration

    option = "--hit-latency"
    if "=" not in text:
        return dict.fromkeys(TierName, _read(parse_duration, text, option))
    given: dict[TierName, float] = {}
    for part in text.split(","):
        name, _, duration = part.strip().partition("=")
        if name not in list(TierName):
            raise typer.BadParameter(f"expected hot, warm or cold before `=`, got {name!r}", param_hint=option)
        if name in given:
            raise typer.BadParameter(f"names {name} twice", param_hint=option)
        given[TierName(name)] = _read(parse_duration, duration, option)
    missing = [str(name) for name in TierName if name not in given]
    if missing:
        raise typer.BadParameter(f"says nothing of {' and '.join(missing)}", param_hint=option)
    return given


def _read(parse: Callable[[object], float], text: str, option: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
