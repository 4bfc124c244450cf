"""Deletes of standard queues: the entries of their lane, and one flush of them.

What a receiver deletes of a queue that archives goes to ``message_archive`` in the same statement.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from storage.lanes import Entry
from storage.queries import load

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


class Delete(Entry):
    """(queue_id, sequence) of one call's messages. Result: None; what is gone already is fine."""

    __slots__ = ("keys",)
    archives = False

    def __init__(self, keys: list[Key], reply: Callable[[object], None]) -> None:
        super().__init__(reply)
        self.keys = keys

    def party(self) -> int:
        """The queue: all keys have the same."""
        return self.keys[0][0]


class ArchivingDelete(Delete):
    """A delete of messages that their queue archives, or whose caller asks what was there.

    Whether the queue archives is what its row says when the messages are deleted. Result:
    list[int], the sequences that were there, in the order of the keys. Of several deletes of one
    message one has it, whether or not they share a flush.
    """

    __slots__ = ("found",)
    archives = True

    def __init__(self, keys: list[Key], reply: Callable[[object], None]) -> None:
        super().__init__(keys, reply)
        # Kept with the entry: a flush that fails half way is repeated for those without an answer.
        self.found: set[Key] = set()


async def flush(
    connection: Connection, now: Callable[[], datetime | None], batch: list[Delete]
) -> None:
    """Delete what the entries name, and answer each of them after its own commit."""
    plain = [entry for entry in batch if not entry.archives]
    if plain:
        await _delete(connection, plain)
    if len(plain) < len(batch):
        others = [entry for entry in batch if isinstance(entry, ArchivingDelete)]
        await _delete_and_archive(connection, now, others)


async def _delete(connection: Connection, batch: list[Delete]) -> None:
    keys = sorted({key for entry in batch for key in entry.keys})
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
        entry.reply(None)


async def _delete_and_archive(
    connection: Connection, now: Callable[[], datetime | None], batch: list[ArchivingDelete]
) -> None:
    left = {key for entry in batch for key in entry.keys}
    while batch:
        found = await _take(connection, now(), sorted(left))
        for entry in batch:
            mine = found.intersection(entry.keys)
            entry.found |= mine
            found -= mine
            left -= mine
        if left:
            left = await _existing(connection, sorted(left))
        waiting = [entry for entry in batch if not left.isdisjoint(entry.keys)]
        for entry in batch:
            if left.isdisjoint(entry.keys):
                keys = dict.fromkeys(entry.keys)
                entry.reply([key[1] for key in keys if key in entry.found])
        batch = waiting


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
