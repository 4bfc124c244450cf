"""Deleting and hiding messages of standard queues for whoever received them last."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from storage.model import Handle, Outcome
from storage.planning import probe_by_key
from storage.queries import load
from storage.queues.message_entries import DeleteLast

if TYPE_CHECKING:
    from storage.database import Connection, Transaction

_SQL = load("queues/last_receives")
_DELETE_IN_ONE = _SQL["delete_last_in_one"].text
_DELETE = _SQL["delete_last"].text
_FIND = _SQL["find_last"].text
_HIDE = _SQL["hide_last"].text

Key = tuple[int, int]
"""(queue_id, sequence)."""


async def flush(
    connection: Connection, now: Callable[[], datetime | None], batch: list[DeleteLast]
) -> None:
    """Delete what the entries name, and tell each of them what came of it: of several that name
    the same receive one has deleted the message."""
    latest: dict[Key, int] = {}
    owners: dict[Key, DeleteLast] = {}
    for entry in batch:
        for queue_id, _, sequence, receive_count in entry.handles:
            if receive_count > latest.get((queue_id, sequence), 0):
                latest[queue_id, sequence] = receive_count
                owners[queue_id, sequence] = entry
    keeps = any(entry.keeps for entry in batch)
    others: dict[Key, int] = {}
    left = dict(latest)
    while left:
        for key in await _delete(connection, now, left, keeps=keeps):
            owners[key].found.add(key)
            del left[key]
        others = await _find(connection, sorted(left))
        left = {key: count for key, count in others.items() if count == latest[key]}
    for entry in batch:
        entry.done(_outcomes(entry, latest, others))


def _outcomes(
    entry: DeleteLast, latest: Mapping[Key, int], others: Container[Key]
) -> list[Outcome]:
    """Of a message that the entry names twice the first one."""
    found = set(entry.found)
    outcomes: list[Outcome] = []
    for queue_id, _, sequence, receive_count in entry.handles:
        key = (queue_id, sequence)
        if key in found and receive_count == latest[key]:
            found.discard(key)
            outcomes.append("ok")
        else:
            outcomes.append("expired" if key in others else "gone")
    return outcomes


async def _delete(
    connection: Connection,
    now: Callable[[], datetime | None],
    wanted: Mapping[Key, int],
    *,
    keeps: bool,
) -> list[Key]:
    keys = sorted(wanted)
    counts = [wanted[key] for key in keys]
    queue_id = keys[0][0]
    if keeps or queue_id != keys[-1][0]:
        rows = await connection.fetch(_DELETE, now(), *zip(*keys, strict=True), counts)
        return [(row[0], row[1]) for row in rows]
    sequences = "{" + ",".join([str(sequence) for _, sequence in keys]) + "}"
    texts = "{" + ",".join(map(str, counts)) + "}"
    deleted = await connection.fetchval(_DELETE_IN_ONE, queue_id, sequences, texts)
    return [(queue_id, sequence) for sequence in deleted]


async def _find(connection: Transaction, keys: list[Key]) -> dict[Key, int]:
    """Those that exist, with the number of their last receive."""
    if not keys:
        return {}
    rows = await connection.fetch(_FIND, *zip(*keys, strict=True))
    return {(row[0], row[1]): row[2] for row in rows}


async def hide(
    tx: Transaction, now: datetime | None, handles: Sequence[Handle], seconds: int
) -> list[Outcome]:
    """Hide messages of one queue until ``seconds`` from now, 0: show them. An outcome for each;
    "expired" is said of a message that somebody has received since."""
    await probe_by_key(tx)
    latest: dict[int, int] = {}
    for _, _, sequence, receive_count in handles:
        latest[sequence] = max(receive_count, latest.get(sequence, 0))
    queue_id = handles[0][0]
    sequences = sorted(latest)
    counts = [latest[sequence] for sequence in sequences]
    rows = await tx.fetch(_HIDE, now, queue_id, sequences, counts, seconds)
    hidden = {row[0] for row in rows}
    others = await _find(tx, [(queue_id, one) for one in sequences if one not in hidden])
    return [
        "ok"
        if sequence in hidden and receive_count == latest[sequence]
        else "expired"
        if sequence in hidden or (queue_id, sequence) in others
        else "gone"
        for _, _, sequence, receive_count in handles
    ]
