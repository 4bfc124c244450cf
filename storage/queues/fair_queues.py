"""Fair queues: receives by message group, and samples and backlogs of groups."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queue_model import Received
from queuegate.storage.queues.messages import divide
from queuegate.storage.queues.watermarks import START, Cursor, FairMarks, Watermarks

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction
    from queuegate.storage.queues.messages import Receive


_SQL = load("queues/fair_queues")
_MOST_IN_FLIGHT = 10_000
"""Messages that a sample of a queue counts."""
_MOST_SHOWN = 20_000
"""Messages of a queue that its metrics count."""


class GroupSample(NamedTuple):
    """One message group of a queue at an instant; ``group`` None: all messages without one."""

    queue_id: int
    group: str | None
    in_flight: int
    sent_at: datetime | None
    now: datetime


class QuietDepth(NamedTuple):
    """Messages of a queue that are in no noisy group."""

    queue_id: int
    visible: int
    in_flight: int
    delayed: int
    oldest_seconds: float


class NotedQueue(NamedTuple):
    """A queue that had messages with groups."""

    queue_id: int
    account_id: str
    region: str
    name: str


async def sample(tx: Transaction, now: datetime | None, queue_ids: list[int]) -> list[GroupSample]:
    """Return the groups of these queues with their messages in flight, 10,000 a queue at most."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["sample"].text, now, queue_ids, _MOST_IN_FLIGHT)
    return [GroupSample(*row) for row in rows]


async def backlogs(
    tx: Transaction, now: datetime | None, groups: Sequence[tuple[int, str, datetime, datetime]]
) -> list[bool]:
    """Return whether each (queue, group, received_from, fresh_from) may have visible messages."""
    if not groups:
        return []
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["backlogs"].text, now, *map(list, zip(*groups, strict=True)))
    return [row[0] for row in rows]


async def note(tx: Transaction, queue_ids: list[int]) -> None:
    """Note that these queues have messages with groups."""
    await tx.execute(_SQL["note"].text, queue_ids)


async def noted(tx: Transaction, most: int) -> list[NotedQueue]:
    """Return the ``most`` oldest live queues that had messages with groups."""
    return [NotedQueue(*row) for row in await tx.fetch(_SQL["noted"].text, most)]


async def quiet_depths(
    tx: Transaction, now: datetime | None, queue_ids: list[int], noisy: Sequence[tuple[int, str]]
) -> dict[int, QuietDepth]:
    """Count the messages of these queues in groups that are not ``noisy``, 20,000 of a queue."""
    await probe_by_key(tx)
    ids, groups = [one for one, _ in noisy], [group for _, group in noisy]
    rows = await tx.fetch(_SQL["quiet_depths"].text, now, queue_ids, ids, groups, _MOST_SHOWN)
    return {row[0]: QuietDepth(*row) for row in rows}


_RECEIVE = _SQL["receive"].text
_GROUP = re.compile(r'"MessageGroupId": ?"((?:[^"\\]|\\.)*)"')


def group_of(system: str | None) -> str | None:
    """Return the message group of a standard message, escaped as ``standard_group`` returns it."""
    found = _GROUP.search(system) if system else None
    return found[1] if found else None


class FairReceives:
    """Receives from queues with noisy groups, whose marks are those of the standard lanes."""

    def __init__(self, marks: dict[int, Watermarks]) -> None:
        self._marks = marks
        self.noisy: dict[int, dict[str, int]] = {}
        """By queue, its noisy groups with their messages in flight; empty without any."""

    def cursor_of(self, queue_id: int, group: str) -> Cursor:
        """Return the first position of visible messages of a noisy group."""
        marks = self._marks.get(queue_id)
        return marks.groups.get(group, START) if isinstance(marks, FairMarks) else START

    async def receive(
        self, connection: Connection, now: datetime | None, queue_id: int, callers: list[Receive]
    ) -> None:
        """Answer receives of one queue, all with the same visibility timeout."""
        in_flight = self.noisy.get(queue_id, {})
        noisy = sorted(in_flight, key=lambda group: in_flight[group])
        marks = self._marks.get(queue_id)
        if not isinstance(marks, FairMarks):
            marks = self._marks[queue_id] = FairMarks(marks)
        limit = sum([entry.limit for entry in callers])
        first = callers[0]
        looked, *rows = await connection.fetch(
            _RECEIVE,
            now,
            queue_id,
            limit,
            first.retention_seconds,
            first.visibility_ms,
            noisy,
            *marks.reaches(asyncio.get_running_loop().time(), noisy),
        )
        mine = [Received(*row[:-1]) for row in rows]
        # Marks removed or replaced while the statement ran stay as they are.
        if self._marks.get(queue_id) is marks:
            is_drained = len(mine) < limit
            marks.follow(noisy, looked["reached"], looked["leased_at"] if is_drained else None)
        places = {group: place for place, group in enumerate(noisy, 1)}
        placed = []
        for message in mine:
            group = group_of(message.system)
            if group in in_flight:
                in_flight[group] += 1
            placed.append((places.get(group or "", 0), message.sequence, message))
        # The sort compares no messages: sequences are unique.
        divide([message for _, _, message in sorted(placed)], callers)
