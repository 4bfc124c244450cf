"""The health of the database: statistics, read once for all scrapes and viewers, and findings with
what to do, for `queuegate doctor` and the console."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from queuegate.storage.database_statistics import DatabaseStatistics, read_statistics
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Database
    from queuegate.storage.database_statistics import SnapshotHolder

_log = logging.getLogger("queuegate.metrics")

_REFRESH_SECONDS = 5.0
_PATIENCE_SECONDS = 1.0
"""Longest wait of a reader, and of the database's first answer."""
_SILENCE_SECONDS = 3.0
"""Longest time between two answers: a statement ends after 2 s."""

LONG_TRANSACTION_SECONDS = 300.0
OLD_SNAPSHOT_TRANSACTIONS = 20_000
"""Least age of the oldest snapshot at which its holder is named."""
_MANY_DEAD_ROWS = 50_000
_DEAD_SHARE = 0.2
_MUCH_RETAINED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that an operator should change. ``about`` is a check of `queuegate doctor`."""

    about: str
    text: str
    remedy: str


@dataclass(slots=True)
class DatabaseReport:
    """The health of the database at one moment. ``read_at`` is in seconds since the epoch, 0 before
    the first answer; the statistics are the last that are known."""

    is_up: bool = False
    read_at: float = 0.0
    statistics: DatabaseStatistics = field(default_factory=DatabaseStatistics)
    findings: list[Finding] = field(default_factory=list)


class DatabaseHealth:
    """Reads the statistics at most every 5 s, for any number of readers.

    One process of a gateway reads for all: ``ask`` returns the report of that process, and raises
    OSError or ValueError if the process does not answer; then this process reads itself.
    """

    def __init__(
        self, database: Database, ask: Callable[[], Awaitable[DatabaseReport]] | None = None
    ) -> None:
        self._database = database
        self._ask = ask
        self._known = DatabaseReport()
        self._began_at = self._answered_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def report(self) -> DatabaseReport:
        """Return the health, within about a second."""
        if self._ask is not None:
            try:
                return await self._ask()
            except (OSError, ValueError) as error:
                _log.debug("the first process does not report the database: %s", error)
        return await self._own_report()

    async def _own_report(self) -> DatabaseReport:
        now = asyncio.get_running_loop().time
        if self._reading is None and now() - self._began_at >= _REFRESH_SECONDS:
            self._began_at = now()
            self._reading = asyncio.create_task(self._read(), name="database health")
        if self._reading is not None and not self._database.availability.is_away:
            patience = max(self._began_at + _PATIENCE_SECONDS - now(), 0.0)
            await asyncio.wait([self._reading], timeout=patience)
        known = self._known
        is_up = known.is_up and not self._database.availability.is_away
        if self._reading is not None:
            is_first = self._answered_at < self._began_at
            most = _PATIENCE_SECONDS if is_first else _SILENCE_SECONDS
            is_up = is_up and now() - max(self._began_at, self._answered_at) < most
        return DatabaseReport(is_up, known.read_at, known.statistics, known.findings)

    async def _read(self) -> None:
        try:
            found = await read_statistics(self._database.transaction, self._answered)
        except Unavailable as error:
            _log.debug("statistics of the database are unknown: %s", error)
            self._known.is_up = False
        else:
            for part in found.unread:
                setattr(found, part, getattr(self._known.statistics, part))
            self._known = DatabaseReport(True, time.time(), found, [*findings(found)])
        finally:
            self._reading = None

    def _answered(self) -> None:
        self._answered_at = asyncio.get_running_loop().time()
        self._known.is_up = True


def findings(found: DatabaseStatistics) -> Iterator[Finding]:
    """Yield what an operator should change."""
    for part, reason in found.unread.items():
        yield Finding("rights", f"statistics of {part} cannot be read: {reason}", "try again")
    yield from _of_transactions(found)
    for table in found.tables:
        if table.dead_rows >= max(_MANY_DEAD_ROWS, table.live_rows * _DEAD_SHARE):
            yield Finding(
                "vacuum",
                f"table {table.name} has {table.dead_rows:,} dead rows beside {table.live_rows:,} "
                f"live ones, in {table.size_bytes >> 20:,} MiB",
                "end the oldest transaction if there is one; check that autovacuum is on, and run "
                f"VACUUM queuegate.{table.name}",
            )
    for slot in found.slots:
        if not slot.is_active and slot.retained_bytes >= _MUCH_RETAINED_BYTES:
            yield Finding(
                "replication",
                f"replication slot {slot.name} is inactive and keeps "
                f"{slot.retained_bytes >> 20:,} MiB of WAL",
                "start its receiver again, or drop the slot with SELECT "
                f"pg_drop_replication_slot('{slot.name}'), and set max_slot_wal_keep_size",
            )


def _of_transactions(found: DatabaseStatistics) -> Iterator[Finding]:
    server = found.server
    if server is None:
        return
    if not server.sees_all:
        yield Finding(
            "rights",
            f"the role {server.role} cannot see transactions of other roles",
            f'GRANT pg_monitor TO "{server.role}"',
        )
    oldest, holder = server.oldest, server.holder
    if oldest is not None and oldest.age_seconds >= LONG_TRANSACTION_SECONDS:
        yield Finding("transactions", oldest_transaction(found), _ending(oldest.pid))
        if holder is not None and holder.pid == oldest.pid:
            return
    if (
        holder is not None
        and server.xmin_age >= OLD_SNAPSHOT_TRANSACTIONS
        and any(table.dead_rows >= _MANY_DEAD_ROWS for table in found.tables)
    ):
        text = f"{snapshot_holder(holder)} keeps all rows that died in the last "
        text += f"{server.xmin_age:,} transactions"
        remedy = _RELEASING.get(holder.kind, "").format(holder.name) or _ending(holder.pid)
        yield Finding("transactions", text, remedy)


_RELEASING = {
    "slot": "end the long transaction of its standby; if no standby will use the slot again, drop "
    "it with SELECT pg_drop_replication_slot('{}')",
    "standby": "end the long transaction there, or set hot_standby_feedback = off there",
}


def _ending(pid: int | None) -> str:
    if pid is None:
        return "end it with COMMIT PREPARED or ROLLBACK PREPARED"
    return (
        f"let its client end it, or SELECT pg_terminate_backend({pid}); "
        "idle_in_transaction_session_timeout ends such sessions"
    )


def snapshot_holder(holder: SnapshotHolder) -> str:
    """Describe the holder of the oldest snapshot."""
    named = holder.name or "without a name"
    if holder.kind == "slot":
        return f"replication slot {named} ({holder.state})"
    user = "" if holder.user is None else f", user {holder.user}"
    pid = "" if holder.pid is None else f"pid {holder.pid}, "
    return f"{holder.kind} {named!r} ({pid}{holder.state}{user})"


def oldest_transaction(found: DatabaseStatistics) -> str:
    """Describe the session that holds the oldest transaction."""
    oldest = None if found.server is None else found.server.oldest
    if oldest is None:
        return "no transaction is open"
    session = f"pid {oldest.pid}" if oldest.pid is not None else "prepared"
    return (
        f"the oldest has been open for {oldest.age_seconds:,.1f} s ({session}, application "
        f"{oldest.application or 'without a name'!r}, user {oldest.user}, {oldest.state})"
    )
