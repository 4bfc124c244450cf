"""Watch on the disk of the bundled PostgreSQL: sends are refused while the disk is nearly full.

Each gateway process checks the disk once a second, apart from requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from queuegate.storage.embedded.data_directory import DiskSpace, disk_space_at, release_reserve

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine

_log = logging.getLogger("queuegate.disk")

_CHECK_SECONDS = 1.0
_LOG_SECONDS = 60.0


class DiskWatch:
    """The last known state of the disk; refuses and resumes sends."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._directory = directory
        self.room: DiskSpace | None = None
        self._logged_at = 0.0
        self._logged_count = 0

    async def look(self) -> None:
        """Check the disk now. An unreadable disk changes nothing."""
        try:
            room = await asyncio.to_thread(disk_space_at, self._directory)
        except OSError as error:
            _log.warning("the free space in %s is unknown: %s", self._directory, error)
            return
        self.room = room
        was_low = bool(self._engine.refuses_sends)
        is_low = room.is_low(was_low=was_low)
        if is_low:
            self._engine.refuse_sends(_reason(room))
        elif was_low:
            self._engine.refuse_sends("")
        if is_low and not was_low:
            _log.warning("%s It is the disk of %s.", _reason(room), self._directory)
            self._logged_at = time.monotonic()
        elif was_low and not is_low:
            self._log_refused()
            _log.warning("sends are accepted again: %d MiB are free", room.free_bytes >> 20)
        if is_low and time.monotonic() >= self._logged_at + _LOG_SECONDS:
            self._log_refused()

    def _log_refused(self) -> None:
        """Log the number of sends refused since the last such line, if any."""
        count = self._engine.refused_count()
        if count > self._logged_count:
            text = "%d sends were refused since the last such line: the disk of %s is nearly full"
            _log.warning(text, count - self._logged_count, self._directory)
            self._logged_count = count
        self._logged_at = time.monotonic()

    async def run(self) -> None:
        """Check the disk every second."""
        while True:
            await self.look()
            await asyncio.sleep(_CHECK_SECONDS)


def _reason(room: DiskSpace) -> str:
    return (
        f"The database's disk is nearly full ({room.free_bytes >> 20} MiB are free): sends are "
        f"refused until {room.recovered_bytes >> 20} MiB are. Receives and deletes go on."
    )


@contextlib.asynccontextmanager
async def watching(engine: Engine, directory: Path | None) -> AsyncIterator[DiskWatch | None]:
    """Watch the disk of this directory until exit. None: watch nothing."""
    if directory is None:
        yield None
        return
    watch = DiskWatch(engine, directory)
    engine.database.availability.on_disk_full = partial(release_reserve, directory)
    await watch.look()
    task = asyncio.create_task(watch.run(), name="disk")
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
