"""Durations, quantities and percentages as they are written in policy documents.

Every function raises `ValueError` with a sentence that says what is expected, with an example.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

# GEP-2257, "Gateway API Duration Format": one to four components of a whole number and a unit.
_DURATION = re.compile(r"(?:[0-9]{1,5}(?:h|ms|m|s)){1,4}", re.ASCII)
_WORDS_OF_TIME = re.compile(
    r"([0-9]{1,5}) ?(h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis|milliseconds?)",
    re.ASCII | re.IGNORECASE,
)
_OTHER_TIME = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})(ns|us|[µμ]s|ms|s|m|h|d|w)", re.ASCII)
"""What other formats call a duration, and this one does not."""
_COMPONENT = re.compile(r"([0-9]{1,5})(h|ms|m|s)", re.ASCII)
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_OTHER_MILLISECONDS = {"d": Decimal(86_400_000), "w": Decimal(604_800_000), "ns": Decimal("0.000001")}

# Kubernetes resource.Quantity, without the milli suffix and the exponent: so many digits that 2**63 is never reached.
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
_DIGITS = {"": 15, "k": 15, "Ki": 15, "M": 12, "Mi": 12, "G": 9, "Gi": 9, "T": 6, "Ti": 6}
_LARGER = {"P": (10**3, "T"), "Pi": (2**10, "Ti")}
"""What Kubernetes knows beyond them; an E is more than can be written."""
MAX_BYTES = 10**15 - 1
"""Largest number of bytes that is written without a suffix."""

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%?", re.ASCII)
_CHANGE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,6})?)%", re.ASCII)


def _quantity_pattern(number: str) -> str:
    scaled = (f"{number.replace('15', str(_DIGITS[one]))}(?:\\.[0-9]{{1,9}})?(?:{one}|{two})" for one, two in _PAIRS)
    return f"^(?:{number}|{'|'.join(scaled)})$"


_PAIRS = (("k", "Ki"), ("M", "Mi"), ("G", "Gi"), ("T", "Ti"))
_ABOVE_1 = r"(?:0{0,2}[1-9]|0?[1-9][0-9])(?:\.[0-9]{1,6})?"

DURATION_PATTERN = f"^{_DURATION.pattern}$"
"""The durations that `parse_duration` takes, for JSON Schema (ECMA 262, where $ is the end of the text)."""
QUANTITY_PATTERN = _quantity_pattern("[0-9]{1,15}")
"""The texts that `parse_quantity` takes; beside them, whole numbers up to `MAX_BYTES`."""
PERCENT_PATTERN = rf"^(?:(?:{_ABOVE_1}|100(?:\.0{{1,6}})?|0{{1,3}}(?:\.0{{1,6}})?)%?|0{{1,3}}\.[0-9]{{1,6}}%)$"
"""The texts that `parse_percent` takes; beside them, 0 and the numbers from 1 to 100."""
CHANGE_PATTERN = f"^{_CHANGE.pattern}$"
"""What `parse_change` takes."""


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
    other = _OTHER_TIME.fullmatch(value)
    if other is not None:
        raise ValueError(_instead_of(value, Decimal(other[1]), other[2]))
    words = _WORDS_OF_TIME.fullmatch(value)
    if words is not None:
        unit = "ms" if words[2].lower().startswith(("mil", "ms")) else words[2][0].lower()
        raise ValueError(f"the units of a duration are h, m, s and ms, with no blank: write {words[1]}{unit}")
    raise ValueError(
        f"expected a duration of up to four parts in h, m, s or ms, such as 30s or 1h30m, got {_shown(value)}"
    )


def _instead_of(value: str, number: Decimal, unit: str) -> str:
    """What is wrong with `number` of `unit`, and how it is written here."""
    one = Decimal(_MILLISECONDS[unit]) if unit in _MILLISECONDS else _OTHER_MILLISECONDS.get(unit, Decimal("0.001"))
    milliseconds = number * one
    written = written_duration(milliseconds)
    instead = f": write {written}" if written else ""
    if unit in ("d", "w"):
        return f"{'days' if unit == 'd' else 'weeks'} are not a unit of duration{instead}"
    if unit not in _MILLISECONDS:
        return f"a duration has no unit below ms, got {_shown(value)}{instead}"
    if number % 1:
        return f"a duration has no fractions, got {_shown(value)}{instead}"
    return f"a part of a duration has at most five digits, got {_shown(value)}{instead}"


def written_duration(milliseconds: Decimal) -> str:
    """So many as `parse_duration` takes them; empty for a part of one, and for more than can be written."""
    if milliseconds % 1:
        return ""
    left, parts = int(milliseconds), ""
    for unit, size in _MILLISECONDS.items():
        count, left = divmod(left, size)
        parts += f"{count}{unit}" * bool(count)
    return parts if _DURATION.fullmatch(parts) else "" if milliseconds else "0s"


def _if_quantity(text: str) -> str:
    """The advice to write `text`, if that can be written."""
    try:
        parse_quantity(text)
    except ValueError:
        return ""
    return f"; write {text}"


def parse_quantity(value: object) -> int:
    """Bytes from a Kubernetes quantity such as `64Mi`, `1.5G` or `4096`."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        whole = isinstance(value, float) and 1 <= value <= MAX_BYTES and value.is_integer()
        instead = _if_quantity(f"{value:.0f}") if whole else ""
        raise ValueError(f"expected a quantity of bytes such as 64Mi, 1G or 4096, got {_shown(value)}{instead}")
    text = str(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        if text.startswith("-"):
            raise ValueError(f"a quantity of bytes cannot be negative, got {_shown(value)}")
        bare = re.sub(r"(?<=[0-9])[ _,](?=[0-9A-Za-z])", "", text)
        instead = _if_quantity(bare) if bare != text else ""
        raise ValueError(f"expected a quantity of bytes such as 64Mi, 1G or 4096, got {_shown(value)}{instead}")
    number, suffix = match.groups()
    factor = _FACTORS.get(suffix)
    if factor is None:
        known = "k, M, G, T, Ki, Mi, Gi or Ti"
        near = {one.lower(): one for one in _FACTORS}.get(re.sub(r"b(ytes?)?$", "", suffix.lower()))
        instead = _if_quantity(f"{number}{near}") if near is not None else ""
        if suffix in _LARGER:
            times, smaller = _LARGER[suffix]
            instead = _if_quantity(f"{Decimal(number) * times:f}{smaller}")
        raise ValueError(f"unknown suffix {_shown(suffix)}: expected {known}{instead}")
    if "." in number and not suffix:
        raise ValueError(f"{text} is not a whole number of bytes")
    if len(number.partition(".")[0]) > _DIGITS[suffix]:
        raise ValueError(f"{text} is too much: at most {_DIGITS[suffix]} digits before {suffix or 'the end'}")
    # A part of a byte counts as a whole one, as in Kubernetes.
    return int((Decimal(number) * factor).to_integral_value(ROUND_CEILING))


def parse_percent(value: object) -> float:
    """A fraction between 0 and 1 from a percentage, written `70` or `70%`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a percentage from 0 to 100, such as 70 or 70%, got {_shown(value)}")
    match = _PERCENT.fullmatch(value if isinstance(value, str) else f"{abs(value):f}")
    number = Decimal(match[1] if isinstance(value, str) else str(value)) if match is not None else Decimal(-1)
    if isinstance(value, str) and " " in value and re.fullmatch(PERCENT_PATTERN, value.replace(" ", "")):
        meant = value.replace(" ", "")
        raise ValueError(f"expected a percentage from 0 to 100 without blanks, got {_shown(value)}: write {meant}")
    if not 0 <= number <= 100:
        raise ValueError(f"expected a percentage from 0 to 100, such as 70 or 70%, got {_shown(value)}")
    if 0 < number < 1 and not str(value).endswith("%"):
        # Who writes 0.7 here most often means 70 percent.
        meant = f"{(number * 100).normalize():f}{'' if number * 100 >= 1 else '%'}"
        raise ValueError(f"expected a percentage such as 70 or 70%, got {value}: write {meant}, or {number:f}%")
    return float(number / 100)


def parse_change(value: object) -> float:
    """A relative change from a percentage such as `20%`, which may be above 100."""
    match = _CHANGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a percentage such as 20%, got {_shown(value)}")
    return float(Decimal(match[1]) / 100)
