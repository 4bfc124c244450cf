"""Statistics of the database server, as its views show them to our role: for metrics, `queuegate
doctor` and the console. No text of a query is read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import asyncpg

from queuegate.storage.queries import load
from queuegate.storage.storage_errors import Away, Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

    Begin = Callable[[], AbstractAsyncContextManager[Transaction]]

_SQL = load("database_statistics")


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """The session, or the prepared transaction, whose transaction is the oldest."""

    pid: int | None
    """None: it is prepared, and ``application`` is its identifier."""
    application: str
    user: str | None
    state: str | None
    age_seconds: float


@dataclass(frozen=True, slots=True)
class SnapshotHolder:
    """The holder of the oldest snapshot. ``kind``: session, prepared, slot, or standby, which is
    one with feedback and without a slot."""

    kind: str
    pid: int | None
    """None: of a prepared transaction, or of a slot without a receiver."""
    name: str
    """Of the application, transaction or slot."""
    user: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """The server and its sessions."""

    oldest: OldestTransaction | None
    holder: SnapshotHolder | None
    connections: dict[str, int]
    """By state."""
    version: str
    role: str
    sees_all: bool
    """False: transactions of other roles are hidden from this role."""
    xmin_age: int
    """Transactions since the oldest snapshot, whose later dead rows no vacuum removes."""
    connections_limit: int
    size_bytes: int
    wal_bytes: int
    """Bytes of WAL written since the server was created."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """One of our tables. ``size_bytes`` includes indexes."""

    name: str
    live_rows: int
    dead_rows: int
    size_bytes: int
    vacuumed_at: float | None
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """A standby. None: the role may not see it, or it is a backup."""

    name: str
    lag_seconds: float | None
    lag_bytes: int | None


@dataclass(frozen=True, slots=True)
class SlotStatistics:
    """A replication slot."""

    name: str
    is_active: bool
    retained_bytes: int


@dataclass(slots=True)
class DatabaseStatistics:
    """Statistics by part. ``unread``: by part, the reason why it could not be read."""

    server: ServerStatistics | None = None
    tables: list[TableStatistics] = field(default_factory=list)
    replicas: list[ReplicaStatistics] = field(default_factory=list)
    slots: list[SlotStatistics] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


async def read_statistics(
    begin: Begin, on_answer: Callable[[], None] = lambda: None
) -> DatabaseStatistics:
    """Read all parts, each by one statement in a transaction of its own, so that one that takes
    longer than 2 s, or that this server does not know, hides no other.

    ``on_answer`` is called after each answer of the server. Raises Unavailable.
    """
    found = DatabaseStatistics()
    for part, make in _PARTS.items():
        is_answered = False
        try:
            async with begin() as tx:
                await _SQL["limited"].run(tx)
                is_answered = True
                on_answer()
                setattr(found, part, make(await _SQL[part].rows(tx)))
        except (Unavailable, asyncpg.PostgresError) as error:
            if isinstance(error, Away) or not is_answered:
                raise Unavailable(str(error)) from error
            found.unread[part] = str(error.__cause__ or error)
        on_answer()
    return found


def _server(rows: list[asyncpg.Record]) -> ServerStatistics:
    """``rows``: one, with the columns of both holders and two arrays at the end."""
    *facts, kind, holder_pid, name, holder_user, holder_state = rows[0][:-7]
    pid, application, user, state, age, states, numbers = rows[0][-7:]
    oldest = holder = None
    if kind is not None:
        holder = SnapshotHolder(kind, holder_pid, name or "", holder_user, holder_state)
    if age is not None:
        oldest = OldestTransaction(pid, application or "", user, state, max(age, 0.0))
    return ServerStatistics(oldest, holder, dict(zip(states, numbers, strict=True)), *facts)


_PARTS: dict[str, Callable[[list[asyncpg.Record]], object]] = {
    "server": _server,
    "tables": lambda rows: [TableStatistics(*row) for row in rows],
    "replicas": lambda rows: [ReplicaStatistics(*row) for row in rows],
    "slots": lambda rows: [SlotStatistics(*row) for row in rows],
}
