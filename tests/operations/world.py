"""A caller at an engine on a clock that tests move."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.account_clocks import Clock
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue, Received
from tests.operations.sqs import create_queue
from tests.sqs_calls import ReceiveMessage, SendMessage, answered, receive_message, send_message


class TestClock(Clock):
    """A clock that stands still unless a test moves it."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.fixed: datetime | None = None

    def move_on(self, seconds: float = 0, **units: float) -> None:
        """Advance the clock by seconds, or by units of a timedelta."""
        assert self.fixed is not None
        self.fixed += timedelta(seconds=seconds, **units)

    def now(self) -> datetime | None:
        return self.fixed if self.fixed is not None else super().now()

    now_of_sends = now

    def instant(self) -> datetime:
        return self.fixed if self.fixed is not None else super().instant()


class HostAhead(Clock):
    """A clock of a host that is one hour ahead of the database."""

    def instant(self) -> datetime:
        return super().instant() + timedelta(hours=1)


class World:
    """A caller at an engine, with the common steps of tests of operations."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self.engine = engine
        self.caller = caller

    @property
    def clock(self) -> TestClock:
        return cast("TestClock", self.engine.clock)

    async def make_queue(self, queue_name: str = "orders", **attributes: str) -> Queue:
        """Create a queue with attributes as SQS names them; a FIFO queue by its name."""
        if queue_name.endswith(".fifo"):
            attributes = {"FifoQueue": "true", **attributes}
        return await create_queue(self.engine, self.caller, queue_name, attributes)

    async def send(self, queue: Queue, body: str = "body", **arguments: Any) -> None:
        """Send a message; further arguments are those of SendMessage."""
        request = SendMessage(body, **arguments)
        await answered(send_message, self.engine, self.caller, queue, request)

    async def receive(self, queue: Queue, count: int = 10) -> list[Received]:
        """Receive by a short poll."""
        request = ReceiveMessage(max_messages=count, wait_seconds=0)
        received: list[Received] = await answered(
            receive_message, self.engine, self.caller, queue, request
        )
        return received
