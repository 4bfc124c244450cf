"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Escape sequences of a terminal can hide or fake lines: a body comes from anyone.
_CONTROL = dict.fromkeys((*range(32), *range(127, 160)), "\ufffd")
_CONTROL |= dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), "?")
_CONTROL |= {ord("\n"): " ", ord("\t"): " ", ord("\r"): " "}
_WIDEST = 60


def safe(text: str) -> str:
    """The text on one line, without what would steer a terminal."""
    return text.translate(_CONTROL)


def table_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The records below their names, with numbers to the right."""
    if not records:
        return ["  (none)"]
    columns = []
    for name in records[0]:
        cells = [name, *(_cell(one[name]) for one in records)]
        width = max(map(len, cells))
        is_number = isinstance(records[0][name], int)
        columns.append([one.rjust(width) if is_number else one.ljust(width) for one in cells])
    return [("  " + "  ".join(row)).rstrip() for row in zip(*columns, strict=True)]


def _cell(value: Any) -> str:
    shown = f"{value:,}" if isinstance(value, int) else safe(str(value or "-"))
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"
