"""NOTIFY and LISTEN between the processes on one database."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING
from zlib import crc32

import asyncpg

from queuegate.storage.database import Database, is_lost, unavailable_when_lost
from queuegate.storage.database_hosts import FAILURES
from queuegate.storage.queries import load
from queuegate.storage.storage_errors import Away, Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.database_hosts import DatabaseSession


_SQL = load("notifications")
_NOTIFY = _SQL["notify"].text
_HOLD_TIME = _SQL["hold_time"].text
_CHANNEL = "queuegate"
_EVENTS = "queuegate_events"
"""Of events of accounts (functions/events.sql). Processes of older versions do not listen to it."""

# "QG" in ASCII, fifth use.
TIME_IS_KEPT = (0x5147, 5)
"""The lock of sessions that listen. Their processes keep the time."""

ALL_PROCESSES = "*"
"""The sender of notifications from transactions, which the sending process handles, too."""

PAYLOAD_BYTES = 7000
"""Limit of one notification, with space for its header; PostgreSQL's limit is 8,000."""


class Notice(StrEnum):
    """A change of which every process must hear."""

    QUEUE_CHANGED = "Q"
    """Drop the cache of the queue."""
    TOPIC_CHANGED = "T"
    """Drop the cache of the topic, or of the patterns of routing keys of a namespace and of its
    topics (``namespace_number``)."""
    KEY_CHANGED = "Y"
    """A key was created or changed."""
    QUOTAS_CHANGED = "U"
    FAULTS_CHANGED = "X"
    LOG_CHANGED = "L"
    """Drop the cache of the log and its groups."""
    DELIVERIES_WRITTEN = "D"
    """Deliveries became due."""
    SCHEDULES_CHANGED = "S"
    """Poll for the next due schedule."""
    CLOCK_MOVED = "C"
    """Read the clocks after so many moves. The clocks of many accounts do not fit into a
    notification."""
    RECORDING_CHANGED = "E"
    """An account records events under this number, or stopped (0)."""


async def notify(tx: Transaction, notice: Notice, number: int = 0, count: int = 1) -> None:
    """Notify every process with this transaction's commit. ``number``: what changed.

    Part of the transaction and not a hint after it: a lost one would leave a process with stale
    data.
    """
    await tx.execute(_NOTIFY, _CHANNEL, f"{ALL_PROCESSES} {notice} {number}:{count}")


def namespace_number(account_id: str, region: str) -> int:
    """Return the number of a namespace's patterns, in place of a topic id: negative, unlike ids.
    Two namespaces may share one."""
    return -1 - crc32(f"{account_id} {region}".encode())


class Notifications:
    """One connection that receives all payloads of the channel and sends some."""

    def __init__(self, database: Database, connection: DatabaseSession) -> None:
        self._database = database
        self._connection = connection

    @classmethod
    async def open(
        cls,
        database: Database,
        heard: Callable[[str], None],
        lost: Callable[[], None],
        happened: Callable[[str], None] = lambda _: None,
    ) -> Notifications:
        """Listen. ``heard`` gets every payload, also of this process, and ``happened`` every event
        of an account; the end calls ``lost``."""
        connection = await database.connect({"synchronous_commit": "off"})
        try:
            async with unavailable_when_lost():
                await connection.execute(_HOLD_TIME, *TIME_IS_KEPT)
                await connection.add_listener(
                    _CHANNEL, lambda _connection, _pid, _channel, payload: heard(str(payload))
                )
                await connection.add_listener(
                    _EVENTS, lambda _connection, _pid, _channel, payload: happened(str(payload))
                )
        except BaseException:
            connection.terminate()
            raise
        connection.add_termination_listener(lambda _: lost())
        if database.availability.is_away:
            database.availability.answered()
        return cls(database, connection)

    async def send(self, payload: str) -> None:
        """Send one payload; Unavailable if the connection is lost."""
        try:
            with self._database.watching(self._connection):
                await self._connection.execute(_NOTIFY, _CHANNEL, payload)
        except FAILURES as error:
            raise (Away if is_lost(error) else Unavailable)(str(error)) from error

    def drop(self) -> None:
        """Drop the connection without closing the session."""
        self._connection.terminate()

    async def close(self) -> None:
        """Close the session, within 1 s."""
        try:
            await self._connection.close(timeout=1.0)
        except (asyncpg.InterfaceError, OSError):
            self._connection.terminate()


def payloads(process: str, hints: dict[str, dict[int, int]]) -> list[str]:
    """Return the hints of a process, by kind and number, in as few notifications as possible."""
    found = []
    for kind, numbers in hints.items():
        words: list[str] = []
        size = 0
        for number, count in numbers.items():
            word = f"{number}:{count}"
            if size + len(word) > PAYLOAD_BYTES:
                found.append(f"{process} {kind} {','.join(words)}")
                words, size = [], 0
            words.append(word)
            size += len(word) + 1
        found.append(f"{process} {kind} {','.join(words)}")
    return found
