"""Strict FIFO queues: their lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.storage.model import Received, ReceivedInTurn
from queuegate.storage.queries import load
from queuegate.storage.queues.fifo_lanes import RECEIVE_ONE, RECEIVED_PER_FLUSH, FifoLanes

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Connection
    from queuegate.storage.queues.message_entries import Receive

_COME_BACK = load("queues/serial")["come_back"].text
_MOST_COMING_BACK = 1_000
"""Limit per receive, to bound its latency; later receives return the other groups."""


class SerialLanes(FifoLanes):
    """The four lanes of strict FIFO queues; each connects at its first entry."""

    _name = "serial"
    _is_serial = True

    def _one_class(self, batch: list[Receive]) -> tuple[list[Receive], list[Receive]]:
        """Select entries of any limits, up to the maximum messages of a flush."""
        if batch[0].attempt_id is not None:
            return batch[:1], batch[1:]
        chosen: list[Receive] = []
        left: list[Receive] = []
        room = RECEIVED_PER_FLUSH
        for entry in batch:
            fits = entry.attempt_id is None and (not chosen or entry.limit <= room)
            (chosen if fits else left).append(entry)
            room -= entry.limit if fits else 0
        return chosen, left

    def _shares_of(self, limit: int) -> int:
        """Return 1: a caller of this statement may take any number."""
        return 1

    async def _fetch(
        self,
        connection: Connection,
        callers: list[Receive],
        queues: dict[int, list[Receive]],
    ) -> list[asyncpg.Record]:
        now = self._now_of(callers[0].queue_id)
        await connection.execute(_COME_BACK, now, list(queues), _MOST_COMING_BACK)
        slots = [(n, entry) for n, entry in enumerate(callers, 1) for _ in range(entry.limit)]
        return await connection.fetch(
            RECEIVE_ONE,
            now,
            list(queues),
            [sum([entry.limit for entry in entries]) for entries in queues.values()],
            [entries[0].retention_seconds for entries in queues.values()],
            [entry.visibility_ms for _, entry in slots],
            [number for number, _ in slots],
        )

    @staticmethod
    def _received(record: asyncpg.Record) -> Received:
        received = ReceivedInTurn(*record[2:-1])
        received.exact_us = record[-1]
        return received
