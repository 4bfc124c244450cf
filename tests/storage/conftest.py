"""Fixtures of the storage tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from queuegate.storage.database import Database
from tests.storage.fifo_queue import FifoQueue, make_queue
from tests.storage.standard_queue import MovingClock, PriorityQueue, StandardQueue
from tests.storage.standard_queue import make_queue as make_standard_queue


@pytest.fixture
async def fifo(database: Database) -> AsyncIterator[FifoQueue]:
    """An empty FIFO queue."""
    queue = FifoQueue(database, await make_queue(database))
    yield queue
    await queue.lanes.close()


@pytest.fixture
async def standard(database: Database) -> AsyncIterator[StandardQueue]:
    """An empty standard queue."""
    queue = StandardQueue(database, await make_standard_queue(database), MovingClock())
    yield queue
    await queue.lanes.close()


@pytest.fixture
async def urgent(database: Database) -> AsyncIterator[PriorityQueue]:
    """An empty standard queue that takes priorities."""
    queue = PriorityQueue(database, await make_standard_queue(database), MovingClock())
    yield queue
    await queue.close()
