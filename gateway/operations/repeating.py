"""What is tried again until the database can do it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from storage.errors import Unavailable

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
