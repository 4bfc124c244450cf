"""The one way to wait in tests for what tells nobody: look, pause a few milliseconds, look again.

Whatever can tell (a future, a pipe, the end of a process) is waited for directly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_SECONDS = 40.0
_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.05

Result = TypeVar("Result")


class _Patience:
    """The pauses between polls. They end at a deadline: a number of polls is no time."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + PATIENCE_SECONDS
        self._pause = _FIRST_PAUSE_SECONDS

    def pause_seconds(self, found: object) -> float:
        """Fails the test with what was found last once the deadline is over."""
        assert time.monotonic() < self._deadline, found
        self._pause = min(self._pause * 1.5, _LONGEST_PAUSE_SECONDS)
        return self._pause


def until(look: Callable[[], Result], wanted: Callable[[Result], bool] = bool) -> Result:
    """Look until what is seen is as wanted; what that was."""
    patience = _Patience()
    while not wanted(found := look()):
        time.sleep(patience.pause_seconds(found))
    return found


async def until_async(
    look: Callable[[], Awaitable[Result]], wanted: Callable[[Result], bool] = bool
) -> Result:
    """The same within an event loop, which goes on meanwhile."""
    patience = _Patience()
    while not wanted(found := await look()):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(patience.pause_seconds(found))
    return found


async def until_so(condition: Callable[[], object]) -> None:
    """Let the event loop go on until something in this process is so."""
    patience = _Patience()
    while not condition():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(patience.pause_seconds("it did not come about"))


async def yield_turns(count: int = 1) -> None:
    """Let the event loop turn so often: what is ready runs, and nothing is waited for."""
    for _ in range(count):
        await asyncio.sleep(0)
