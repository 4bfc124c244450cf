"""The audit log of a gateway under test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import until


class AuditFile:
    """Lines of a file, from where they were last looked at."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit"
        self._seen = 0

    def text(self) -> str:
        """All of it, but for a line that is being written."""
        text = self.path.read_text() if self.path.exists() else ""
        return text[: text.rfind("\n") + 1]

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines added since the last call."""
        found = [json.loads(line) for line in self.text().splitlines()[self._seen :]]
        self._seen += len(found)
        return found

    def move_away(self) -> None:
        """As logrotate does."""
        self.path.rename(self.path.with_suffix(".1"))
        self._seen = 0

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line that is wanted, when it is there."""

        def look() -> dict[str, Any] | None:
            found = [json.loads(line) for line in self.text().splitlines()]
            return next((line for line in found if wanted(line)), None)

        line = until(look, lambda found: found is not None)
        assert line is not None
        return line
