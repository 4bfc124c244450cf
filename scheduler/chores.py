"""Looks for all workers at once whether there is anything for them to look for.

A gateway that nobody uses would otherwise ask the database the questions of ten workers, again and
again. While there is nothing of a kind its worker sleeps, and is woken by one common look.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from queuegate.storage import chores
from queuegate.storage.errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.chores import Chore
    from queuegate.storage.database import Database

_log = logging.getLogger("queuegate.chores")

PAUSE_SECONDS = 1.0
"""Between two looks: who must look more often does not sleep."""


class Chores:
    """Of one database. It looks once a second while a worker sleeps, and not otherwise."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._sleeping: dict[asyncio.Event, Chore] = {}
        self._found: frozenset[Chore] = chores.EVERY_CHORE
        self._task: asyncio.Task[None] | None = None

    async def wait_for(self, chore: Chore, stirred: asyncio.Event) -> None:
        """Return when there may be something of this kind, and when the event is set by others.

        At once where the last look has found some. While the database is away there may be
        something of every kind: each worker says what it could not do.
        """
        if self._task is not None and chore in self._found:
            return
        self._sleeping[stirred] = chore
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look(), name="chores")
        try:
            await stirred.wait()
        finally:
            del self._sleeping[stirred]
            if not self._sleeping:
                self._task.cancel()
                self._task = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                async with self.database.statements() as connection:
                    self._found = await chores.find(connection)
            except Unavailable:
                self._found = chores.EVERY_CHORE
            except Exception:  # noqa: BLE001 - without this loop no worker would wake again
                _log.exception("a look for the chores of workers failed")
                self._found = chores.EVERY_CHORE
            for stirred, chore in self._sleeping.items():
                if chore in self._found:
                    stirred.set()
