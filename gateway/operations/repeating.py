"""What is tried again until the database can do it, and read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from queuegate.storage.errors import Unavailable

_SHORTEST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0


async def until_available(
    attempt: Callable[[], Awaitable[None]], log: logging.Logger, trouble: str
) -> None:
    """Await ``attempt`` until it raises Unavailable no more: at once, and then with pauses, each
    twice as long as the one before, a second at most. The log has ``trouble`` and the reason."""
    pause = _SHORTEST_SECONDS
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            log.log(error.log_level, "%s: %s", trouble, error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_SECONDS)


class Rereading:
    """Reads what has changed in a task of its own, one reading at a time."""

    def __init__(
        self,
        read: Callable[[], Awaitable[None]],
        is_stale: Callable[[], object],
        log: logging.Logger,
        trouble: str,
    ) -> None:
        """``is_stale``: whether there is something to read; ``read`` ends that, or raises."""
        self._read = read
        self._is_stale = is_stale
        self._log = log
        self._trouble = trouble
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Read what is stale, unless that is under way: it goes on while something is."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read_on())

    async def _read_on(self) -> None:
        while self._is_stale():
            await until_available(self._read, self._log, self._trouble)

    async def settle(self) -> None:
        """Until all is known of what changed so far."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
