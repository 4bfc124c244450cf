"""Room on the disk of the bundled PostgreSQL, and what is kept of it for bad times.

PostgreSQL cannot delete without writing, so on a full disk nobody could make room. Four things
keep some: below a low-water mark the gateway refuses sends (``gateway.process.disk_watch``),
PostgreSQL's log is kept small then, a ballast file is given up when something else fills the disk
all the same, and a reserve file when PostgreSQL finds no room at all or a queue is purged.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger("queuegate.disk")

_MIB = 1 << 20
_BALLAST = "ballast"
_RESERVE = "reserve"
# Two segments of 16 MB are the least that PostgreSQL takes; four leave a checkpoint some time.
_LEAST_WAL_BYTES = 64 * _MIB
_MOST_WAL_BYTES = 2048 * _MIB


@dataclass(frozen=True)
class Room:
    """How large a file system is, and how much of it PostgreSQL may still use."""

    total_bytes: int
    free_bytes: int

    @property
    def low_water_bytes(self) -> int:
        """Less than this is left for receives and deletes."""
        return min(max(self.total_bytes // 32, 64 * _MIB), 512 * _MIB)

    @property
    def recovered_bytes(self) -> int:
        """With this much free, sends are taken again: a little more, or they would come and go."""
        return self.low_water_bytes * 5 // 4

    @property
    def ballast_bytes(self) -> int:
        """Enough for some segments of the log, which is all that deletes need."""
        return self.low_water_bytes // 2

    @property
    def wal_bytes(self) -> int:
        """How large the log may grow: a quarter of what is free, and little when that is low."""
        if self.free_bytes < self.recovered_bytes:
            return _LEAST_WAL_BYTES
        return min(max(self.free_bytes // 4, _LEAST_WAL_BYTES), _MOST_WAL_BYTES)

    def is_low(self, *, was_low: bool) -> bool:
        """Whether sends should be refused; once they are, until some more is free."""
        mark = self.recovered_bytes if was_low else self.low_water_bytes
        return self.free_bytes < mark


def room_at(path: Path) -> Room:
    """The room on the file system of this directory."""
    facts = os.statvfs(path)
    # What is reserved for root is not PostgreSQL's.
    return Room(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)


def give_ballast_up(path: Path, room: Room) -> None:
    """Let PostgreSQL have the ballast of this data directory when its disk is nearly full."""
    ballast = path / _BALLAST
    if room.free_bytes < room.low_water_bytes // 2 and ballast.exists():
        ballast.unlink()
        _log.warning("the disk of %s is nearly full: the ballast is given up", path)


def give_reserve_up(path: Path) -> None:
    """Release the reserve: enough for the log between two checkpoints, and for pages of tables."""
    with contextlib.suppress(FileNotFoundError):
        (path / _RESERVE).unlink()
        _log.warning("the disk of %s is full: the reserve is given up", path)


def take_ballast(path: Path, room: Room) -> None:
    """Have a reserve and a ballast in this data directory. Take at most one of them at a time, if
    there is room for it beside what sends need."""
    for name, size in ((_RESERVE, _LEAST_WAL_BYTES), (_BALLAST, room.ballast_bytes)):
        if not (path / name).exists():
            if room.free_bytes >= room.recovered_bytes + size:
                _take(path / name, size)
            return


def _take(ballast: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(ballast, flags, 0o600), "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                for _ in range(size // _MIB):
                    file.write(bytes(_MIB))
    except OSError:
        with contextlib.suppress(OSError):
            ballast.unlink()
