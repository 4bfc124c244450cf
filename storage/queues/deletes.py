"""Deletes of standard queues: one flush.

The statement that deletes a message of an archiving queue also writes it to ``message_archive``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.model import ReceiptOutcome
from queuegate.storage.queries import load
from queuegate.storage.queues.message_entries import Delete, DeleteLast

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction

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
    """Delete the messages of the entries, and answer each entry after its own commit."""
    plain = [entry for entry in batch if not entry.archives]
    if plain:
        await _delete(connection, plain)
    others = [entry for entry in batch if entry.archives]
    for by_receive in (True, False):
        some = [entry for entry in others if isinstance(entry, DeleteLast) is by_receive]
        if some:
            await _delete_and_tell(connection, now, some)


async def _delete(connection: Connection, batch: list[Delete]) -> None:
    keys = sorted({(handle[0], handle[2]) for entry in batch for handle in entry.handles})
    queue_id = keys[0][0]
    sequences = "{" + ",".join([str(sequence) for _, sequence in keys]) + "}"
    if queue_id == keys[-1][0]:
        # One statement by key misses no row: messages not found are deleted.
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
    """Delete for entries that all check the last receive, or none. If several entries name the same
    receive or the same message, one of them has deleted it."""
    by_receive = isinstance(batch[0], DeleteLast)
    latest: dict[Key, int] = {}
    owners: dict[Key, Delete] = {}
    for entry in batch:
        for queue_id, _, sequence, receive_count in entry.handles:
            key, count = (queue_id, sequence), receive_count if by_receive else 0
            if count > latest.get(key, -1):
                latest[key], owners[key] = count, entry
    others: dict[Key, int] = {}
    left = dict(latest)
    while left:
        for key in await _take(connection, now(), left, by_receive=by_receive):
            owners[key].found.add(key)
            del left[key]
        others = await find_existing(connection, sorted(left))
        left = {key: left[key] for key, count in others.items() if left[key] in (0, count)}
    for entry in batch:
        entry.done(_outcomes(entry, latest, others))


def _outcomes(
    entry: Delete, latest: Mapping[Key, int], others: Container[Key]
) -> list[ReceiptOutcome]:
    """Return the outcomes of an entry; of a message named twice, the first is "ok"."""
    found = set(entry.found)
    outcomes: list[ReceiptOutcome] = []
    for queue_id, _, sequence, receive_count in entry.handles:
        key = (queue_id, sequence)
        if key in found and latest[key] in (0, receive_count):
            found.discard(key)
            outcomes.append("ok")
        else:
            outcomes.append("expired" if key in others else "gone")
    return outcomes


async def _take(
    connection: Connection, now: datetime | None, wanted: Mapping[Key, int], *, by_receive: bool
) -> list[Key]:
    """Delete messages, and archive those of archiving queues; return the keys found."""
    keys = sorted(wanted)
    queue_ids, sequences = zip(*keys, strict=True)
    counts = [wanted[key] for key in keys] if by_receive else None
    if queue_ids[0] == queue_ids[-1]:
        statement, queue_ids = _DELETE_AND_ARCHIVE_IN_ONE, queue_ids[0]
    else:
        statement = _DELETE_AND_ARCHIVE
    rows = await connection.fetch(statement, now, queue_ids, sequences, counts)
    return [(row[0], row[1]) for row in rows]


async def find_existing(connection: Transaction, keys: Sequence[Key]) -> dict[Key, int]:
    """Return the messages that exist, with the number of their last receive."""
    if not keys:
        return {}
    rows = await connection.fetch(_FIND_EXISTING, *zip(*keys, strict=True))
    return {(row[0], row[1]): row[2] for row in rows}
