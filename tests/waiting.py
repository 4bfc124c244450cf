"""Waiting for what tells nobody: with a deadline, for a number of looks is no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 40.0

Result = TypeVar("Result")


def until(look: Callable[[], Result], wanted: Callable[[Result], bool] = bool) -> Result:
    """Look until what is seen is as wanted; what that was."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = look()
        if wanted(found):
            return found
        assert time.monotonic() < deadline, found
