"""Line charts as SVG that stands in a page: no script, no font, no colour of its own that a dark page would swallow.

Colours and dashes come from the page's style (`series-0` and so on), so that one style serves light and dark, and lines
are told apart without colour, too.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 46
_TICKS: Final = 6
_LEAST: Final = 1e-100
"""Differences below it are none: a part of such a one may be too small for a number."""
STYLES: Final = 6
"""How many lines a page's style tells apart."""


class Series(NamedTuple):
    """One line, or points that stand alone."""

    name: str
    points: Sequence[tuple[float, float]]
    style: int
    lone: bool = False
    """Points without a line between them."""


class Axis(NamedTuple):
    """What runs along one side."""

    label: str
    show: Callable[[float], str]
    """A value as it is written beside a tick."""
    logarithmic: bool = False
    base: float = 10.0
    """Ticks of a logarithmic axis stand at powers of it."""
    steps: Sequence[float] = ()
    """Distances between ticks to choose from, rising; else 1, 2 or 5 times a power of ten."""


class _Scale:
    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values), max(values)
        if axis.logarithmic:
            low = max(low, 1e-9)
        elif high - low < _LEAST:
            high = low + 1.0
        if high <= low:
            high = low * 2
        self.axis, self.low, self.high = axis, low, high
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        if self.axis.logarithmic:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        if self.axis.logarithmic:
            base = self.axis.base
            first, last = math.ceil(math.log(self.low, base) - 1e-9), math.floor(math.log(self.high, base) + 1e-9)
            step = max(1, -(-(last - first + 1) // _TICKS))
            powers = [base**power for power in range(first, last + 1, step)]
            return powers if len(powers) > 1 else [self.low, self.high]
        rough = (self.high - self.low) / _TICKS
        unit = 10.0 ** math.floor(math.log10(rough))
        usual = [factor * unit for factor in (1, 2, 5, 10)]
        step_size = next((step for step in (*self.axis.steps, *usual) if step >= rough), usual[-1])
        first = math.ceil(self.low / step_size - 1e-9)
        count = math.floor(self.high / step_size + 1e-9) - first + 1
        return [(first + number) * step_size for number in range(count)]


def line_chart(name: str, title: str, description: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """An `svg` element. `name` is an id of the page, `description` what there is to see, for who cannot."""
    drawn = [each for each in series if each.points]
    if not drawn:
        return ""
    across = _Scale(x, [point[0] for each in drawn for point in each.points], _LEFT, WIDTH - _RIGHT)
    upward = _Scale(y, [0.0, *(point[1] for each in drawn for point in each.points)], HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>',
        *_grid(across, upward),
        *(_line(each, across, upward) for each in drawn),
        "</svg>",
    ]
    return "\n".join(parts)


def _grid(across: _Scale, upward: _Scale) -> list[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for tick in upward.ticks():
        at = upward.place(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>')
        shown = escape(upward.axis.show(tick))
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{shown}</text>')
    for tick in across.ticks():
        at = across.place(tick)
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>')
        shown = escape(across.axis.show(tick))
        parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{shown}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(across.axis.label)}</text>')
    turned = f'transform="rotate(-90 14 {(_TOP + bottom) / 2})"'
    label = escape(upward.axis.label)
    parts.append(f'<text x="14" y="{(_TOP + bottom) / 2}" text-anchor="middle" {turned}>{label}</text>')
    return parts


def _line(series: Series, across: _Scale, upward: _Scale) -> str:
    style = f"series-{series.style % STYLES}"
    places = [(across.place(x), upward.place(y)) for x, y in series.points]
    if series.lone or len(places) == 1:
        marks = (f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>' for x, y in places)
        return f"<g><title>{escape(series.name)}</title>{''.join(marks)}</g>"
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return f'<path class="line {style}" d="M{path}"><title>{escape(series.name)}</title></path>'
