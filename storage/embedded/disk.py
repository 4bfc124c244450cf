"""Disk space of the bundled PostgreSQL, and reserves of it.

PostgreSQL cannot delete without writing, so a full disk could never be freed. Four measures keep
space: below a low-water mark the gateway refuses sends (``gateway.process.disk_watch``), and the
WAL is kept small. A ballast file is released if other programs fill the disk, and a reserve file if
PostgreSQL finds no space at all or a queue is purged.
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
# PostgreSQL needs at least two segments of 16 MB; four leave time for a checkpoint.
_LEAST_WAL_BYTES = 64 * _MIB
_MOST_WAL_BYTES = 2048 * _MIB


@dataclass(frozen=True)
class DiskSpace:
    """The size of a file system, and the space left for PostgreSQL."""

    total_bytes: int
    free_bytes: int

    @property
    def low_water_bytes(self) -> int:
        """Return the space reserved for receives and deletes."""
        return min(max(self.total_bytes // 32, 64 * _MIB), 512 * _MIB)

    @property
    def recovered_bytes(self) -> int:
        """Return the space at which sends resume: higher than the low-water mark, to avoid
        flapping."""
        return self.low_water_bytes * 5 // 4

    @property
    def ballast_bytes(self) -> int:
        """Return the ballast size: some segments of WAL, enough for deletes."""
        return self.low_water_bytes // 2

    @property
    def wal_bytes(self) -> int:
        """Return the limit of the WAL: a quarter of the free space, or the minimum if that is
        low."""
        if self.free_bytes < self.recovered_bytes:
            return _LEAST_WAL_BYTES
        return min(max(self.free_bytes // 4, _LEAST_WAL_BYTES), _MOST_WAL_BYTES)

    def is_low(self, *, was_low: bool) -> bool:
        """Return True if sends should be refused, with hysteresis."""
        mark = self.recovered_bytes if was_low else self.low_water_bytes
        return self.free_bytes < mark


def disk_space_at(path: Path) -> DiskSpace:
    """Return the space on the file system of this directory."""
    facts = os.statvfs(path)
    # PostgreSQL cannot use space reserved for root.
    return DiskSpace(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)


def release_ballast(path: Path, room: DiskSpace) -> None:
    """Release the ballast of this data directory when its disk is nearly full."""
    ballast = path / _BALLAST
    if room.free_bytes < room.low_water_bytes // 2 and ballast.exists():
        ballast.unlink()
        _log.warning("the disk of %s is nearly full: the ballast is given up", path)


def release_reserve(path: Path) -> None:
    """Release the reserve: enough for the WAL between two checkpoints, and for table pages."""
    with contextlib.suppress(FileNotFoundError):
        (path / _RESERVE).unlink()
        _log.warning("the disk of %s is full: the reserve is given up", path)


def take_ballast(path: Path, room: DiskSpace) -> None:
    """Create the reserve or the ballast of this data directory, one per call, if there is space for
    it besides that for sends."""
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
