"""Messages that go straight from the send to a receive that waits."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import asyncpg
import pytest

from queuegate.storage.database import Database
from queuegate.storage.queue_model import ATTRIBUTES, MESSAGE_ID, Row
from queuegate.storage.queues.messages import Receive, Send
from queuegate.storage.storage_errors import QueueDoesNotExist
from tests.storage.fifo_queue import RETENTION, Replied, bodies, call, delete_queue
from tests.storage.standard_queue import StandardQueue, make_message, make_queue


class Line:
    """Receives that wait, and what each was answered."""

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.handed: dict[int, int] = {}
        self.entries: list[Receive] = []
        self.answers: list[asyncio.Future[Any]] = []

    def wait(self, limit: int = 10, visibility: float = 30) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        self.entries.append(
            Receive(self.queue_id, limit, int(visibility * 1000), RETENTION, Replied(answer))
        )
        return answer

    def waits(self, queue_id: int) -> bool:
        return queue_id == self.queue_id and bool(self.entries)

    def take(self, queue_id: int) -> Receive | None:
        assert queue_id == self.queue_id
        return self.entries.pop(0) if self.entries else None


@pytest.fixture
def line(standard: StandardQueue) -> Line:
    line = standard.lanes.waiting = Line(standard.queue_id)
    return line


async def test_it_is_as_a_receive_would_have_found_it(standard: StandardQueue, line: Line) -> None:
    made = make_message(standard.queue_id, "a", system='{"AWSTraceHeader":"x"}')
    attributes = '{"n":{"DataType":"Number","StringValue":"1"}}'
    row = cast(Row, (*made[:ATTRIBUTES], attributes, *made[ATTRIBUTES + 1 :]))
    answer = line.wait(visibility=30)
    await call(standard.lanes.send, lambda reply: Send([row], reply, 0))
    [handed] = await answer
    assert (handed.receive_count, handed.body) == (1, "a")
    assert (await standard.counts()).in_flight == 1
    assert await standard.counted() == (1, 1)
    standard.clock.wait(29)
    assert await standard.receive() == []
    standard.clock.wait(2)
    [again] = await standard.receive()
    assert again.receive_count == 2
    assert handed == again._replace(receive_count=1, leased_at=handed.leased_at)
    assert (handed.first_received_at_ms, handed.message_id.hex) == (
        again.first_received_at_ms,
        again.message_id.hex,
    )


async def test_its_receipt_deletes_it(standard: StandardQueue, line: Line) -> None:
    answer = line.wait()
    await standard.send("a")
    await standard.delete(*await answer)
    assert await standard.counted() == (0, 0)


async def test_who_has_waited_longest_gets_as_much_as_it_asked_for(
    standard: StandardQueue, line: Line
) -> None:
    first, second, third = line.wait(2), line.wait(1), line.wait(10)
    await standard.send("a", "b", "c")
    assert (bodies(await first), bodies(await second)) == (["a", "b"], ["c"])
    assert (third.done(), len(line.entries)) == (False, 1)


async def test_what_nobody_waits_for_can_be_received(standard: StandardQueue, line: Line) -> None:
    answer = line.wait(1)
    await standard.send("a", "b")
    assert (bodies(await answer), bodies(await standard.receive())) == (["a"], ["b"])


async def test_what_is_delayed_is_not_handed_over(standard: StandardQueue, line: Line) -> None:
    answer = line.wait()
    await standard.send("a", delay_seconds=5)
    assert not answer.done()
    rows = [
        make_message(standard.queue_id, "b", delay_seconds=5),
        make_message(standard.queue_id, "c"),
    ]
    await call(standard.lanes.send, lambda reply: Send(rows, reply, 0))
    assert bodies(await answer) == ["c"]
    standard.clock.wait(6)
    assert bodies(await standard.receive()) == ["a", "b"]


async def test_nobody_is_woken_for_what_somebody_has(standard: StandardQueue, line: Line) -> None:
    line.wait(2)
    seen: list[dict[int, int]] = []

    class Noting:
        def done(self, _: object) -> None:
            seen.append(dict(line.handed))

        def failed(self, error: BaseException) -> None:
            raise error

    rows = [make_message(standard.queue_id, body) for body in "abc"]
    standard.lanes.send.submit(Send(rows, Noting(), 0))
    await line.answers[0]
    assert (seen, line.handed) == ([{standard.queue_id: 2}], {})


async def test_a_send_to_a_queue_that_is_gone_leaves_the_receive_with_nothing(
    database: Database, standard: StandardQueue, line: Line
) -> None:
    answer = line.wait()
    await delete_queue(database, standard.queue_id)
    with pytest.raises(QueueDoesNotExist):
        await standard.send("a")
    assert await answer == []


async def test_a_send_that_fails_hands_nothing_over(standard: StandardQueue, line: Line) -> None:
    answer = line.wait()
    made = make_message(standard.queue_id, "broken")
    broken = cast(Row, (*made[:MESSAGE_ID], "no uuid", *made[MESSAGE_ID + 1 :]))

    async def send_broken() -> None:
        with pytest.raises(asyncpg.DataError):
            await call(standard.lanes.send, lambda reply: Send([broken], reply, 0))

    await asyncio.gather(send_broken(), standard.send("good"))
    assert await answer == []
    assert bodies(await standard.receive()) == ["good"]
    assert line.handed == {}


async def test_other_queues_of_the_flush_have_nothing_to_do_with_it(
    database: Database, standard: StandardQueue, line: Line
) -> None:
    other = StandardQueue(database, await make_queue(database, "other"), standard.clock)
    other.lanes = standard.lanes
    answer = line.wait(1)
    await asyncio.gather(other.send("x"), standard.send("a"), other.send("y"))
    assert bodies(await answer) == ["a"]
    assert sorted(bodies(await other.receive())) == ["x", "y"]
