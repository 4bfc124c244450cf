"""Charts as SVG for a page: drawn with the page's colours, so they follow its light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

_WIDTH = 720
_HEIGHT = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 26
_PLOT_WIDTH = _WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT = _HEIGHT - _TOP - _BOTTOM
_ROW_HEIGHT = 22
_LABEL_WIDTH = 270
_LABEL_LETTERS = 36
_MOST_TICKS = 5
_LETTER_WIDTH = 6.6

Format = Callable[[float], str]


class Bar(NamedTuple):
    """One bar. ``hint`` is shown where the pointer is."""

    label: str
    value: float
    hint: str = ""


class Line(NamedTuple):
    """One line through values at the labels' places; None leaves a gap."""

    name: str
    values: Sequence[float | None]


def columns(bars: Sequence[Bar], shown: Format) -> str:
    """Bars side by side, such as a volume over time or a distribution."""
    if not bars:
        return ""
    ticks = linear_ticks(max(bar.value for bar in bars))
    top = ticks[-1]
    step = _PLOT_WIDTH / len(bars)
    width = max(0.6, min(step * 0.82, 44))
    drawn = [*_grid([(tick, tick / top) for tick in ticks], shown)]
    for at, bar in enumerate(bars):
        height = bar.value / top * _PLOT_HEIGHT
        if bar.value > 0:
            height = max(height, 1)
        x = _LEFT + step * (at + 0.5) - width / 2
        hint = bar.hint or f"{bar.label}: {shown(bar.value)}"
        drawn.append(
            f'<rect class="s0" x="{x:.1f}" y="{_TOP + _PLOT_HEIGHT - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}"><title>{escape(hint)}</title></rect>'
        )
    drawn += _labels([bar.label for bar in bars])
    return _svg(drawn, _HEIGHT)


def lines(labels: Sequence[str], series: Sequence[Line], shown: Format) -> str:
    """Lines over common labels, on a logarithmic scale: latencies differ by orders of magnitude."""
    values = [one for line in series for one in line.values if one is not None and one > 0]
    if not values:
        return ""
    ticks = decades(min(values), max(values))
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])

    def height(value: float) -> float:
        return (math.log10(max(value, ticks[0])) - low) / (high - low)

    drawn = [*_grid([(tick, height(tick)) for tick in ticks], shown)]
    for number, line in enumerate(series):
        points = [
            (_x_of(at, len(labels)), _y_of(height(value)), value, labels[at])
            for at, value in enumerate(line.values)
            if value is not None
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
        drawn.append(f'<polyline class="l{number}" points="{path}"/>')
        drawn += [
            f'<circle class="s{number}" cx="{x:.1f}" cy="{y:.1f}" r="2.6">'
            f"<title>{escape(f'{label} {line.name}: {shown(value)}')}</title></circle>"
            for x, y, value, label in points
        ]
    drawn += _labels(labels)
    return _svg(drawn, _HEIGHT) + _legend([line.name for line in series])


def ranking(bars: Sequence[Bar], shown: Format) -> str:
    """Bars below each other with long labels, the largest first as given."""
    if not bars:
        return ""
    most = max(bar.value for bar in bars) or 1
    room = _WIDTH - _LABEL_WIDTH - 90
    drawn = []
    for at, bar in enumerate(bars):
        y = at * _ROW_HEIGHT
        width = max(1.0, bar.value / most * room)
        value = shown(bar.value)
        drawn.append(
            f"<g><title>{escape(bar.hint or f'{bar.label}: {value}')}</title>"
            f'<text class="label" x="{_LABEL_WIDTH - 8}" y="{y + 15}" text-anchor="end">'
            f"{escape(_short(bar.label))}</text>"
            f'<rect class="s0" x="{_LABEL_WIDTH}" y="{y + 4}" width="{width:.1f}" height="14"/>'
            f'<text x="{_LABEL_WIDTH + width + 6:.1f}" y="{y + 15}">{escape(value)}</text></g>'
        )
    return _svg(drawn, len(bars) * _ROW_HEIGHT + 4)


def linear_ticks(most: float) -> list[float]:
    """Round numbers from 0 to at least ``most``: five steps at most."""
    if most <= 0:
        return [0, 1]
    rough = most / _MOST_TICKS
    power = 10 ** math.floor(math.log10(rough))
    # A tenth of a message is none: steps of counts are whole.
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    step = max(step, 1) if most >= _MOST_TICKS else step
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def decades(least: float, most: float) -> list[float]:
    """Powers of ten that enclose both."""
    low = math.floor(math.log10(least) + 1e-9)
    high = max(math.ceil(math.log10(most) - 1e-9), low + 1)
    return [10.0**power for power in range(low, high + 1)]


def _grid(ticks: Iterable[tuple[float, float]], shown: Format) -> Iterable[str]:
    for tick, share in ticks:
        y = _y_of(share)
        label = escape(shown(tick))
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'


def _labels(labels: Sequence[str]) -> list[str]:
    """As many of them as fit below the plot."""
    room = max((len(label) for label in labels), default=1) * _LETTER_WIDTH + 14
    every = max(1, math.ceil(len(labels) * room / _PLOT_WIDTH))
    return [
        f'<text x="{_x_of(at, len(labels)):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for at, label in enumerate(labels)
        if at % every == every // 2 or len(labels) == 1
    ]


def _legend(names: Sequence[str]) -> str:
    entries = (
        f'<span><i class="k{number}"></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(entries)}</p>'


def _x_of(at: int, count: int) -> float:
    return _LEFT + _PLOT_WIDTH * (at + 0.5) / count


def _y_of(share: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - share)


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_LETTERS else label[: _LABEL_LETTERS - 1] + "…"


def _svg(drawn: Iterable[str], height: int) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(drawn)}</svg>'
