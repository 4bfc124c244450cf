"""Idle probe: asks the database once for all idle workers which of them have work.

Without the probe, each worker of an unused gateway would poll on its own. A worker without work
sleeps until the probe finds work of its kind.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from queuegate.storage import pending_work
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Database
    from queuegate.storage.pending_work import PendingWork

_log = logging.getLogger("queuegate.chores")

PAUSE_SECONDS = 1.0
"""Interval of the idle probe. Workers that poll more often do not sleep."""


class Chores:
    """The idle probe of one database. It runs only while a worker sleeps."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._sleeping: dict[asyncio.Event, PendingWork] = {}
        self._found: frozenset[PendingWork] = pending_work.EVERY_PENDING_WORK
        self._task: asyncio.Task[None] | None = None

    async def wait_for(self, chore: PendingWork, woken: asyncio.Event) -> None:
        """Return when work of this kind may exist, or when another task sets ``woken``.

        Return at once if the last probe found such work. While the database is unavailable, all
        kinds may have work, so that each worker reports its own failure.
        """
        if self._task is not None and chore in self._found:
            return
        self._sleeping[woken] = chore
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look(), name="chores")
        try:
            await woken.wait()
        finally:
            del self._sleeping[woken]
            if not self._sleeping:
                self._task.cancel()
                self._task = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                async with self.database.statements() as connection:
                    self._found = await pending_work.find_pending(connection)
            except Unavailable:
                self._found = pending_work.EVERY_PENDING_WORK
            except Exception:  # noqa: BLE001 - without this loop no worker would wake again
                _log.exception("a look for the chores of workers failed")
                self._found = pending_work.EVERY_PENDING_WORK
            for woken, chore in self._sleeping.items():
                if chore in self._found:
                    woken.set()
