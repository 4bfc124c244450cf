"""Terminal output of commands: tables, facts, JSON lines, progress and refusals."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MAX_CELL_WIDTH = 60
PROGRESS_SECONDS = 1.0
"""Time between two updates of a progress line."""


class CommandRefused(Exception):
    """A command cannot do its work; the text says why and names a remedy."""


def fail(text: str) -> int:
    """Print an error on stderr; return 1, the exit code."""
    print(f"queuegate: {text}", file=sys.stderr)
    return 1


def print_lines(objects: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object a line."""
    for facts in objects:
        print(json.dumps(facts, default=str, ensure_ascii=False))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. A column is as wide as its longest cell, up to 60 characters."""
    cells = [[_shortened(plain(cell)) for cell in row] for row in rows]
    widths = [max(len(line[place]) for line in [heads, *cells]) for place in range(len(heads))]
    for line in [heads, *cells]:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(padded).rstrip())


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CELL_WIDTH else text[: _MAX_CELL_WIDTH - 3] + "..."


def plain(text: str) -> str:
    """Replace control characters, which a terminal would obey, by question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print names and values, aligned, one pair a line."""
    width = max(map(len, facts))
    for name, text in facts.items():
        print(f"{name:{width}}  {plain(text)}")


def counted(count: int, what: str) -> str:
    """Return a count with its noun, such as "2 records"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


class ProgressLine:
    """A running count on a terminal, rewritten at most once a second."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()
        self._is_open = False

    def tell(self, count: int, what: str) -> None:
        """Print the count, unless stderr is a file or the last count is recent."""
        if sys.stderr.isatty() and time.monotonic() - self._printed_at >= PROGRESS_SECONDS:
            self._printed_at = time.monotonic()
            self._is_open = True
            print(f"\r{count:,} {what}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line, if one was printed."""
        if self._is_open:
            print(file=sys.stderr)
            self._is_open = False
