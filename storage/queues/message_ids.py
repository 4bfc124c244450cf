"""Access to messages by their number alone."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/message_ids")
_SET_VISIBLE_AT = _SQL["set_visible_at"].text
_FIND_IN_FLIGHT = _SQL["find_in_flight"].text

LAST = (1 << 63) - 1
"""The highest possible message number."""


class InFlight(NamedTuple):
    """A FIFO message in flight: its handle without the queue."""

    sequence: int
    group_id: str
    receive_count: int
    """The number of its last receive."""
    looked_at: datetime
    """The ``now`` of the statement."""


async def set_visible_at(
    tx: Transaction, now: datetime | None, queue_id: int, sequence: int, seconds: int
) -> datetime | None:
    """Hide a message of a standard queue until ``seconds`` from now, or show it (0).

    The message may be never received or in flight. Returns the instant; None if it is deleted.
    """
    await probe_by_key(tx)
    visible_at: datetime | None = await tx.fetchval(
        _SET_VISIBLE_AT, now, queue_id, sequence, seconds
    )
    return visible_at


async def find_in_flight(
    tx: Transaction, now: datetime | None, queue_id: int, sequences: list[int]
) -> list[InFlight]:
    """Return the messages of a FIFO queue that are in flight.

    Reads each group with a message in flight or delayed. A number not among them, of a deleted or
    unknown message, costs a read of each group of the queue.
    """
    await probe_by_key(tx)
    return [InFlight(*row) for row in await tx.fetch(_FIND_IN_FLIGHT, now, queue_id, sequences)]
