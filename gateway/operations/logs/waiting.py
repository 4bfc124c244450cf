"""Waiting for records in partitions, here or from another process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from queuegate.gateway.operations.logs.places import place_of_partition

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine


class Watch:
    """Parked on partitions while the block lasts. Enter it before the database is asked: what comes
    after the look has then been noticed.

        with Watch(engine, partition_ids) as watch:
            while not (found := await look()) and await watch.wait(deadline):
                pass
    """

    def __init__(self, engine: Engine, partition_ids: Iterable[int]) -> None:
        self._engine = engine
        self._places = [place_of_partition(one) for one in partition_ids]
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        self._park()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for place in self._places:
            self._engine.wakeups.leave(place, self)

    def wake(self) -> None:
        """Something is there, or everybody is woken."""
        self._woken.set()

    def _park(self) -> None:
        for place in self._places:
            self._engine.wakeups.park(place, self)

    async def wait(self, until: float) -> bool:
        """Until something may be there: True, and it is parked again. False: the time, of the
        event loop, is over, or the gateway stops."""
        seconds = until - asyncio.get_running_loop().time()
        if self._engine.stopping or seconds <= 0:
            return False
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return False
        self._woken.clear()
        if self._engine.stopping:
            return False
        self._park()
        return True
