"""Deletes of standard queues: one flush of them.

What a receiver deletes of a queue that archives goes to ``message_archive`` in the same statement.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from storage.model import Outcome
from storage.queries import load
from storage.queues import last_receives
from storage.queues.message_entries import Delete, DeleteLast

if TYPE_CHECKING:
    from storage.database import Connection

_SQL = load("queues/deletes")
_DELETE = _SQL["delete"].text
_DELETE_IN_ONE = _SQL["delete_in_one"].text
_COUNT_EXISTING = _SQL["count_existing"].text
_DELETE_AND_ARCHIVE = _SQL["delete_and_archive"].text
_DELETE_AND_ARCHIVE_IN_ONE = _SQL["delete_and_archive_in_one"].text
_FIND_EXISTING = _SQL["find_existing"].text

Key = tuple[int, int]
"""(queue_id, sequence)."""


async def flush(
    connection: Connection, now: Callable[[], datetime | None], batch: list[Delete]
) -> None:
    """Delete what the entries name, and answer each of them after its own commit."""
    plain = [entry for entry in batch if not entry.archives]
    if plain:
        await _delete(connection, plain)
    if len(plain) < len(batch):
        await _delete_and_tell(connection, now, [entry for entry in batch if entry.archives])


async def _delete(connection: Connection, batch: list[Delete]) -> None:
    keys = sorted({(handle[0], handle[2]) for entry in batch for handle in entry.handles})
    queue_id = keys[0][0]
    sequences = "{" + ",".join([str(sequence) for _, sequence in keys]) + "}"
    if queue_id == keys[-1][0]:
        # Whatever it does not find is gone.
        await connection.fetchval(_DELETE_IN_ONE, queue_id, sequences)
    else:
        queue_ids = "{" + ",".join([str(key[0]) for key in keys]) + "}"
        found = await connection.fetchval(_DELETE, queue_ids, sequences)
        while found < len(keys) and await connection.fetchval(
            _COUNT_EXISTING, queue_ids, sequences
        ):
            found += await connection.fetchval(_DELETE, queue_ids, sequences)
    for entry in batch:
        entry.done(["ok"] * len(entry.handles))


async def _delete_and_tell(
    connection: Connection, now: Callable[[], datetime | None], batch: list[Delete]
) -> None:
    last = [entry for entry in batch if isinstance(entry, DeleteLast)]
    if last:
        await last_receives.flush(connection, now, last)
    if len(last) < len(batch):
        others = [entry for entry in batch if not isinstance(entry, DeleteLast)]
        await _delete_and_archive(connection, now, others)


async def _delete_and_archive(
    connection: Connection, now: Callable[[], datetime | None], batch: list[Delete]
) -> None:
    wanted = [(entry, dict.fromkeys([(h[0], h[2]) for h in entry.handles])) for entry in batch]
    left = {key for _, keys in wanted for key in keys}
    while wanted:
        found = await _take(connection, now(), sorted(left))
        for entry, keys in wanted:
            mine = found.intersection(keys)
            entry.found = mine | (entry.found or set())
            found -= mine
            left -= mine
        if left:
            left = await _existing(connection, sorted(left))
        waiting = []
        for entry, keys in wanted:
            if left.isdisjoint(keys):
                entry.done(_outcomes(entry))
            else:
                waiting.append((entry, keys))
        wanted = waiting


def _outcomes(entry: Delete) -> list[Outcome]:
    """Of a message that the entry names twice the first one."""
    found = set(entry.found or ())
    outcomes: list[Outcome] = []
    for handle in entry.handles:
        key = (handle[0], handle[2])
        outcomes.append("ok" if key in found else "gone")
        found.discard(key)
    return outcomes


async def _take(connection: Connection, now: datetime | None, keys: list[Key]) -> set[Key]:
    """Delete and archive; which of them were there."""
    queue_ids, sequences = zip(*keys, strict=True)
    if queue_ids[0] == queue_ids[-1]:
        rows = await connection.fetch(_DELETE_AND_ARCHIVE_IN_ONE, now, queue_ids[0], sequences)
    else:
        rows = await connection.fetch(_DELETE_AND_ARCHIVE, now, queue_ids, sequences)
    return {(row[0], row[1]) for row in rows}


async def _existing(connection: Connection, keys: list[Key]) -> set[Key]:
    """Those that one statement may have missed: see ``delete``."""
    queue_ids, sequences = zip(*keys, strict=True)
    if queue_ids[0] == queue_ids[-1]:
        # By key nothing is missed.
        return set()
    rows = await connection.fetch(_FIND_EXISTING, queue_ids, sequences)
    return {(row[0], row[1]) for row in rows}
