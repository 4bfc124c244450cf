"""An engine on a database of its own, and a caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime import background_tasks
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.wakeups import Wakeups
from queuegate.storage.database import Database
from queuegate.storage.queue_model import Queue, Received
from tests.engines import engine_on
from tests.operations.events import Events
from tests.operations.log_groups import Orders
from tests.operations.schedule_store import ScheduleStore
from tests.operations.subscribers import Subscriber
from tests.operations.topics_and_subscriptions import Sns
from tests.operations.world import TestClock, World

ACCOUNT = "111122223333"
REGION = "eu-west-1"
MakeQueue = Callable[..., Awaitable[Queue]]
SendTo = Callable[..., Awaitable[None]]
ReceiveFrom = Callable[..., Awaitable[list[Received]]]


class RecordingWakeups(Wakeups):
    """Does what the real ones do, and notes it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.changed: list[int] = []
        self.arrivals_told: list[tuple[int, int]] = []

    def queue_changed(self, queue_id: int) -> None:
        self.changed.append(queue_id)
        super().queue_changed(queue_id)

    def arrived(self, queue_id: int, count: int = 1) -> None:
        self.arrivals_told.append((queue_id, count))
        super().arrived(queue_id, count)


@pytest.fixture
def caller() -> Caller:
    return Caller(ACCOUNT, REGION, "AIDATESTER")


@pytest.fixture
def clock() -> TestClock:
    """Stands at noon of one day until a test moves ``clock.fixed``."""
    clock = TestClock()
    clock.fixed = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
    return clock


@pytest.fixture
def wakeups(database: Database) -> RecordingWakeups:
    return RecordingWakeups(database)


@pytest.fixture
async def engine(
    database: Database, clock: TestClock, wakeups: RecordingWakeups
) -> AsyncIterator[Engine]:
    """The real parts; nothing runs in the background."""
    engine = engine_on(database, clock, wakeups)
    yield engine
    await engine.close()


@pytest.fixture
async def listening(engine: Engine) -> AsyncIterator[Engine]:
    """The engine with its wakeups running."""
    await engine.wakeups.start()
    yield engine
    await engine.wakeups.stop()
    await background_tasks.settle()


@pytest.fixture
async def other(database: Database, clock: TestClock) -> AsyncIterator[Engine]:
    """Another process on the same database."""
    engine = engine_on(database, clock)
    yield engine
    await engine.close()


@pytest.fixture
async def elsewhere(database_dsn: str, clock: TestClock) -> AsyncIterator[Engine]:
    """Another process with connections and wakeups of its own."""
    database = Database(database_dsn)
    await database.open()
    engine = engine_on(database, clock)
    await engine.wakeups.start()
    yield engine
    await engine.wakeups.stop()
    await background_tasks.settle()
    await engine.close()
    await database.close()


async def find_again(engine: Engine, queue: Queue) -> Queue:
    """Find the queue as a request does."""
    return await engine.queues.find(queue.account_id, queue.region, queue.name)


def bodies_of(received: list[Received]) -> list[str]:
    return [message.body for message in received]


@pytest.fixture
def sns(engine: Engine, caller: Caller) -> Sns:
    return Sns(engine, caller)


@pytest.fixture
def subscriber(engine: Engine, caller: Caller) -> Subscriber:
    return Subscriber(engine, caller)


@pytest.fixture
def events(engine: Engine, caller: Caller) -> Events:
    return Events(engine, caller)


@pytest.fixture
def orders(engine: Engine, caller: Caller) -> Orders:
    return Orders(engine, caller)


@pytest.fixture
def store(engine: Engine, caller: Caller) -> ScheduleStore:
    return ScheduleStore(engine, caller)


@pytest.fixture
def world(engine: Engine, caller: Caller) -> World:
    """Use this fixture in new tests. Older tests list its parts."""
    return World(engine, caller)


@pytest.fixture
def make_queue(world: World) -> MakeQueue:
    return world.make_queue


@pytest.fixture
def send(world: World) -> SendTo:
    return world.send


@pytest.fixture
def receive(world: World) -> ReceiveFrom:
    return world.receive
