"""Line charts as SVG: a handful of series over the minutes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tests.soak.series import Series

_WIDTH, _HEIGHT = 880, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 230, 34, 40
_COLOURS = ("#2457a6", "#c2410c", "#15803d", "#7e22ce", "#111827", "#0e7490", "#be185d", "#4d7c0f")
_MOST_LINES = 16


def _nice(most: float) -> float:
    """Return a round number that is at least ``most``."""
    step = 1.0
    while step < most:
        step *= 10
    while step > most and step > 1e-9:
        step /= 10
    return next(step * factor for factor in (1, 1.5, 2, 3, 4, 6, 8, 10) if step * factor >= most)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def chart(title: str, series: Sequence[Series], ends_at: float) -> str:
    """Return the picture of these series; the shade is the part that is judged against the other.

    Of more than 16 series it has the highest.
    """
    shown = sorted(series, key=lambda one: -max(value for _, value in one.points))[:_MOST_LINES]
    most = _nice(max(max(value for _, value in one.points) for one in shown) or 1.0)
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(at: float) -> float:
        return _LEFT + across * at / ends_at

    def y(value: float) -> float:
        return _TOP + down * (1 - max(value, 0.0) / most)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 20, f"{title} ({shown[0].unit})", 'font-size="14" font-weight="bold"'),
    ]
    for number, shade in ((1, "#f3f4f6"), (2, "#e5e7eb")):
        width = across / 3
        parts.append(
            f'<rect x="{x(ends_at * number / 3):.1f}" y="{_TOP}" width="{width:.1f}" '
            f'height="{down}" fill="{shade}"/>'
        )
    for number in range(5):
        value = most * number / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + across}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            'stroke="#d1d5db"/>'
        )
        parts.append(_text(_LEFT - 6, y(value) + 4, f"{value:,.6g}", 'text-anchor="end"'))
        at = ends_at * number / 4
        parts.append(_text(x(at), _HEIGHT - 20, f"{at / 60:.3g} min", 'text-anchor="middle"'))
    for number, one in enumerate(shown):
        colour = _COLOURS[number % len(_COLOURS)]
        dash = ' stroke-dasharray="5 3"' if number >= len(_COLOURS) else ""
        line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in one.points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>'
        )
        below = _TOP + 8 + number * 17
        left = _LEFT + across + 14
        parts.append(
            f'<line x1="{left}" x2="{left + 18}" y1="{below}" y2="{below}" stroke="{colour}" '
            f'stroke-width="2"{dash}/>'
        )
        parts.append(_text(left + 24, below + 4, one.name))
    return "\n".join([*parts, "</svg>", ""])
