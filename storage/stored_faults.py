"""Rules for faults on purpose, which all processes on a database share, with their counts."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("stored_faults")
_NAME = "faults"

NO_KEY = 0
"""The number by which processes confirm changed rules, in place of a key's."""


class StoredFaults(NamedTuple):
    """All rules that have not ended."""

    rules: list[dict[str, Any]]
    """Members of a rule, with ``id``, the counts ``matched`` and ``fired``, and ``until``: its end
    by the server's clock, None: it has none."""
    last: int
    """The highest id ever used."""
    now: float


async def read(tx: Transaction, *, locks: bool = False) -> StoredFaults:
    """Return the rules. ``locks``: nobody else changes or counts until the transaction ends."""
    if locks:
        await _SQL["lock"].run(tx, _NAME)
    [(text, now)] = await _SQL["read"].rows(tx, _NAME)
    stored = json.loads(text or '{"last": 0, "rules": []}')
    rules = [one for one in stored["rules"] if one["until"] is None or one["until"] > now]
    return StoredFaults(rules, stored["last"], now)


async def write(tx: Transaction, faults: StoredFaults, *, notifies: bool = True) -> None:
    """Replace the locked rules; notify every process, except of counts."""
    value = json.dumps({"last": faults.last, "rules": faults.rules})
    await _SQL["write"].run(tx, _NAME, value)
    if notifies:
        await notify(tx, Notice.FAULTS_CHANGED)


async def show_at(
    tx: Transaction, now: datetime | None, queue_id: int, due: dict[int, int]
) -> None:
    """Make sent messages visible so many milliseconds from now, by their numbers."""
    await _SQL["show_at"].run(tx, now, queue_id, list(due), list(due.values()))
