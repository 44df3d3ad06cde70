"""Numbers as people read them."""

from __future__ import annotations

from typing import Final

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shown_bytes(value: float) -> str:
    """`64 MiB`, `1.5 GiB`."""
    size, unit = float(value), 0
    while size >= 1024 and unit < len(_BYTES) - 1:
        size /= 1024
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {_BYTES[unit]}"


def shown_seconds(value: float | None) -> str:
    """`17 ms`, `1.5 s`, `2 h 5 min`; a dash for None."""
    if value is None:
        return "-"
    if value < 0.9995:
        return f"{value * 1000:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    hours, minutes = divmod(round(value / 60), 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes))


def shown_share(value: float) -> str:
    """`76.12 %`."""
    return f"{value:.2%}".replace("%", " %")


def shown_count(value: int) -> str:
    """`1,000,000`."""
    return f"{value:,}"


def shown_number(number: int, one: str) -> str:
    """`1,234 requests`, and `1 request`."""
    return f"{shown_count(number)} {one}{'' if number == 1 else 's'}"
