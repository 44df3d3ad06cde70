"""Durations, quantities and percentages as they are written in policy documents.

Every function raises `ValueError` with a sentence that says what is expected, with an example.
"""

from __future__ import annotations

import re
from decimal import Decimal

# GEP-2257, "Gateway API Duration Format": one to four components of a whole number and a unit.
_DURATION = re.compile(r"(?:[0-9]{1,5}(?:h|ms|m|s)){1,4}", re.ASCII)
_WORDS_OF_TIME = re.compile(
    r"([0-9]{1,5}) ?(h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis|milliseconds?)",
    re.ASCII | re.IGNORECASE,
)
_COMPONENT = re.compile(r"([0-9]{1,5})(h|ms|m|s)", re.ASCII)
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

# Kubernetes resource.Quantity, without the milli suffix and the exponent: bytes come whole.
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([A-Za-z]*)", re.ASCII)
_FACTORS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
MAX_QUANTITY = 2**63 - 1
"""Largest quantity in bytes."""

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%?", re.ASCII)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def parse_duration(value: object) -> float:
    """Seconds from a GEP-2257 duration such as `250ms`, `30s` or `1h30m`.

    At most four components of at most five digits each; no sign, no fraction, no days.
    """
    if not isinstance(value, str):
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError(f"a duration needs a unit: h, m, s or ms, for example {abs(value)}s")
        raise ValueError(f"expected a duration such as 30s, 5m or 250ms, got {_shown(value)}")
    if _DURATION.fullmatch(value):
        return sum(int(number) * _MILLISECONDS[unit] for number, unit in _COMPONENT.findall(value)) / 1000
    if value.startswith("-"):
        raise ValueError(f"a duration cannot be negative, got {_shown(value)}; write for example 30s")
    if len(value) < 20 and value[-1:] == "d" and value[:-1].isdecimal():
        raise ValueError(f"days are not a unit of duration: write {int(value[:-1]) * 24}h")
    if len(value) < 20 and "." in value:
        raise ValueError(f"a duration has no fractions, got {_shown(value)}; write 1500ms or 1s500ms for 1.5 seconds")
    words = _WORDS_OF_TIME.fullmatch(value)
    if words is not None:
        unit = "ms" if words[2].lower().startswith(("mil", "ms")) else words[2][0].lower()
        raise ValueError(f"the units of a duration are h, m, s and ms, with no blank: write {words[1]}{unit}")
    raise ValueError(
        f"expected a duration of up to four parts in h, m, s or ms, such as 30s or 1h30m, got {_shown(value)}"
    )


def parse_quantity(value: object) -> int:
    """Bytes from a Kubernetes quantity such as `64Mi`, `1.5G` or `4096`."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"expected a quantity of bytes such as 64Mi, 1G or 4096, got {_shown(value)}")
    text = str(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        if text.startswith("-"):
            raise ValueError(f"a quantity of bytes cannot be negative, got {_shown(value)}")
        raise ValueError(f"expected a quantity of bytes such as 64Mi, 1G or 4096, got {_shown(value)}")
    number, suffix = match.groups()
    factor = _FACTORS.get(suffix)
    if factor is None:
        near = {"KB": "k", "kB": "k", "MB": "M", "GB": "G", "TB": "T", "K": "k", "m": "M", "KiB": "Ki", "MiB": "Mi"}
        near |= {"GiB": "Gi", "TiB": "Ti", "B": "", "b": "", "g": "G", "mi": "Mi", "gi": "Gi", "ki": "Ki"}
        known = "k, M, G, T, Ki, Mi, Gi or Ti"
        instead = f"; write {number}{near[suffix]}" if suffix in near else ""
        raise ValueError(f"unknown suffix {_shown(suffix)}: expected {known}{instead}")
    total = Decimal(number) * factor
    if total != total.to_integral_value():
        raise ValueError(f"{text} is not a whole number of bytes")
    if total > MAX_QUANTITY:
        raise ValueError(f"{text} is too much: at most {MAX_QUANTITY} bytes")
    return int(total)


def parse_percent(value: object) -> float:
    """A fraction between 0 and 1 from a percentage, written `70` or `70%`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a percentage from 0 to 100, such as 70 or 70%, got {_shown(value)}")
    match = _PERCENT.fullmatch(str(value))
    if match is None or float(match[1]) > 100:
        raise ValueError(f"expected a percentage from 0 to 100, such as 70 or 70%, got {_shown(value)}")
    number = Decimal(match[1])
    if 0 < number < 1 and not str(value).endswith("%"):
        # Who writes 0.7 here most often means 70 percent.
        meant = f"{float(number * 100):g}"
        raise ValueError(f"expected a percentage such as 70 or 70%, got {value}: write {meant}, or {value}%")
    return float(number / 100)


_CHANGE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,6})?)%", re.ASCII)


def parse_change(value: object) -> float:
    """A relative change from a percentage such as `20%`, which may be above 100."""
    match = _CHANGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a percentage such as 20%, got {_shown(value)}")
    return float(Decimal(match[1]) / 100)
