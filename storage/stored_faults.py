"""Rules for faults on purpose, which all processes on a database share, with their counts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("stored_faults")
_NAME = "faults"


async def read(tx: Transaction, *, locks: bool = False) -> tuple[str | None, float]:
    """Return the JSON of the rules, None if there never was one, and the present by the server's
    clock. ``locks``: nobody else changes or counts until the transaction ends."""
    if locks:
        await _SQL["lock"].run(tx, _NAME)
    [(text, now)] = await _SQL["read"].rows(tx, _NAME)
    return text, now


async def write(tx: Transaction, text: bytes, *, notifies: bool = False) -> None:
    """Replace the locked rules; notify every process, except of counts."""
    await _SQL["write"].run(tx, _NAME, text.decode())
    if notifies:
        await notify(tx, Notice.FAULTS_CHANGED)


async def show_at(
    tx: Transaction, now: datetime | None, queue_id: int, due: dict[int, int]
) -> None:
    """Make sent messages visible so many milliseconds from now, by their numbers."""
    await _SQL["show_at"].run(tx, now, queue_id, list(due), list(due.values()))
