"""Which rows a table of docs/seeds.md 1.2 or 1.5 has, and which of them tests show."""

from __future__ import annotations

import pytest


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

    def each(self) -> pytest.MarkDecorator:
        """A test of something that all rows have in common: it shows none of them."""
        return pytest.mark.parametrize("row", self.rows, ids=self.rows, indirect=True)

    @property
    def missing(self) -> list[str]:
        """Rows that no test shows."""
        return [row for row in self.rows if row not in self._shown]
