"""Waking whoever waits for a change."""

from __future__ import annotations

import asyncio


class Signal:
    """Wakes all who wait, each time that something changed. Who waits looks again then."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        """Something changed."""
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    async def wait(self, seconds: float | None = None) -> bool:
        """Until then, or for so long; whether something changed."""
        one = asyncio.get_running_loop().create_future()
        self._waiting.add(one)
        try:
            done, _ = await asyncio.wait([one], timeout=seconds)
        finally:
            self._waiting.discard(one)
        return bool(done)
