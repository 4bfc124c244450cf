"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Escape sequences of a terminal can hide or fake lines: a body comes from anyone.
_CONTROL = dict.fromkeys((*range(32), *range(127, 160)), "�")
_CONTROL |= dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), "?")
_CONTROL |= {ord("\n"): " ", ord("\t"): " ", ord("\r"): " "}
_WIDEST = 60


class Table(NamedTuple):
    """Rows under names. ``numbers``: which columns are aligned to the right."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    note: str = ""


def safe(text: str) -> str:
    """The text on one line, without what would steer a terminal."""
    return text.translate(_CONTROL)


def text_of(table: Table) -> Iterable[str]:
    """The table's lines."""
    yield table.title
    if table.rows:
        cells = [[_cell(cell) for cell in row] for row in table.rows]
        widths = [
            max(len(row[at]) for row in (list(table.columns), *cells))
            for at in range(len(table.columns))
        ]
        for row in (list(table.columns), ["-" * width for width in widths], *cells):
            aligned = [
                cell.rjust(width) if at in table.numbers else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield ("  " + "  ".join(aligned)).rstrip()
    else:
        yield "  (none)"
    if table.note:
        yield f"  {table.note}"
    yield ""


def _cell(text: str) -> str:
    shown = safe(text)
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"
