"""Which rows a table of docs/seeds.md has, and which of them tests show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "seeds.md"


class Table:
    """One table. Its decorator says which rows a test shows: they become the ids of the test."""

    def __init__(self, *rows: str) -> None:
        assert len(set(rows)) == len(rows)
        self.rows = rows
        self._shown: set[str] = set()

    def __call__(self, *rows: str) -> pytest.MarkDecorator:
        for row in rows:
            assert row in self.rows, row
        self._shown.update(rows)
        return pytest.mark.parametrize("row", rows, ids=rows, indirect=True)

    def linked(self, path: str, tests: Mapping[str, str]) -> None:
        """Mark rows as shown by tests of another file; ``tests``: names of tests by row."""
        text = (_ROOT / path).read_text("utf-8")
        assert tests.keys() <= set(self.rows)
        self._shown.update(row for row, test in tests.items() if f"def {test}(" in text)

    def each(self) -> pytest.MarkDecorator:
        """A test of something that all rows have in common: it shows none of them."""
        return pytest.mark.parametrize("row", self.rows, ids=self.rows, indirect=True)

    @property
    def missing(self) -> list[str]:
        """Rows that no test shows."""
        return [row for row in self.rows if row not in self._shown]


def rows_between(first: str, end: str) -> list[str]:
    """The rows that the page has from one heading to another."""
    tables = _PAGE.read_text("utf-8").partition(f"\n{first}")[2].partition(f"\n{end}")[0]
    found = [line.split("|")[1].strip(" `") for line in tables.splitlines() if line[:2] == "| "]
    return [row for row in found if row not in ("Row", "---")]
