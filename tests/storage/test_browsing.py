"""Browsing: pages and parts of a queue, as the statements make them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from queuegate.storage.database import Database
from queuegate.storage.queue_model import (
    END,
    START,
    Browsed,
    BrowsedMessages,
    BrowseFilter,
    BrowsePosition,
    Queue,
)
from queuegate.storage.queues import browsing, stored_queues
from queuegate.storage.queues.kinds import STANDARD
from tests.storage.fifo_queue import START as NOON
from tests.storage.fifo_queue import FifoQueue, make_message, make_queue
from tests.storage.standard_queue import StandardQueue
from tests.storage.standard_queue import make_message as make_standard_message
from tests.storage.standard_queue import make_queue as make_standard_queue

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

MUCH = 1 << 40
ANY = BrowseFilter(as_of=END.sequence)


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    """A sample of a table sees what the tests before have left in its pages."""
    return own_database_dsn


async def queue_of(database: Database, name: str) -> Queue:
    async with database.transaction() as tx:
        found = await stored_queues.find(tx, "0", "r", name)
    assert found is not None
    return found


async def read(
    queue: StandardQueue | FifoQueue,
    wanted: BrowseFilter = ANY,
    *,
    limit: int = 1000,
    most_bytes: int = MUCH,
) -> BrowsedMessages:
    name = "orders.fifo" if isinstance(queue, FifoQueue) else "orders"
    now = queue.now if isinstance(queue, FifoQueue) else queue.clock.now()
    found = await queue_of(queue.database, name)
    async with queue.database.transaction() as tx:
        return await found.kind.read_page(
            tx, now, found, wanted, limit=limit, most_bytes=most_bytes
        )


async def last_number(queue: StandardQueue | FifoQueue) -> int:
    name = "orders.fifo" if isinstance(queue, FifoQueue) else "orders"
    found = await queue_of(queue.database, name)
    async with queue.database.transaction() as tx:
        return await found.kind.last_number(tx)


def bodies(found: BrowsedMessages) -> list[str]:
    return [one.message.body for one in found.messages]


async def all_of(
    queue: StandardQueue | FifoQueue, wanted: BrowseFilter = ANY, *, limit: int = 1000
) -> list[Browsed]:
    found: list[Browsed] = []
    following: BrowsePosition | None = wanted.after
    while following is not None:
        part = await read(queue, wanted._replace(after=following), limit=limit)
        found += part.messages
        following = part.next
    return found


async def test_a_page_ends_at_its_limit_or_its_size(
    standard: StandardQueue, fifo: FifoQueue
) -> None:
    await standard.send("aaaa", "bb", "c", "d")
    await fifo.send(*(make_message(group, body) for group, body in ("g4", "f2", "f1", "g1")))
    page = await read(standard, limit=2)
    assert bodies(page) == ["aaaa", "bb"]
    assert page.next == BrowsePosition("", page.messages[1].message.sequence)
    assert bodies(await read(standard, most_bytes=1)) == ["aaaa"]
    assert bodies(await read(standard, most_bytes=5)) == ["aaaa", "bb"]
    whole = await read(standard, limit=4)
    assert (len(whole.messages), whole.next) == (4, None)
    page = await read(fifo, limit=3)
    assert bodies(page) == ["2", "1", "4"]
    assert page.next == BrowsePosition("g", page.messages[2].message.sequence)
    assert bodies(await read(fifo, most_bytes=1)) == ["2"]
    assert (await read(fifo, limit=4)).next is None


async def test_a_page_looks_at_so_many_messages(
    standard: StandardQueue, fifo: FifoQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a filter it may be empty and not the last; the pages together find all."""
    monkeypatch.setattr(browsing, "_LOOKED_AT", 5)
    await standard.send(*(str(number) for number in range(10)))
    await standard.send("late", delay_seconds=60)
    await fifo.send(*(make_message("g", str(number)) for number in range(11)))
    wanted = ANY._replace(state="delayed")
    page = await read(standard, wanted)
    assert page.messages == []
    assert page.next is not None
    assert [one.message.body for one in await all_of(standard, wanted)] == ["late"]
    [last] = (await fifo.send(make_message("h")))[0][1:2]
    wanted = ANY._replace(message_ids=[(await all_of(fifo))[-1].message.message_id])
    page = await read(fifo, wanted)
    assert page.messages == []
    assert page.next is not None
    assert [one.message.sequence for one in await all_of(fifo, wanted)] == [last]
    assert len(await all_of(standard)) == 11
    assert len(await all_of(fifo, limit=2)) == 12


async def test_a_fresh_database_has_no_number_yet(standard: StandardQueue, fifo: FifoQueue) -> None:
    """The sequences say 1 before and after their first number."""
    for queue in (standard, fifo):
        before = await last_number(queue)
        if isinstance(queue, FifoQueue):
            await queue.send(make_message("g"))
        else:
            await queue.send("first")
        assert await all_of(queue, BrowseFilter(before)) == []
        assert len(await all_of(queue, BrowseFilter(await last_number(queue)))) == 1


async def test_a_send_that_commits_late(standard: StandardQueue, database: Database) -> None:
    """Its number is drawn, so `as_of` is above it: it comes if its page is read after the commit,
    and moves nobody else to another page."""
    await standard.send("a")
    drawn, go_on = asyncio.Event(), asyncio.Event()

    async def send_slowly() -> None:
        async with database.transaction() as tx:
            row = make_standard_message(standard.queue_id, "slow")
            await STANDARD.send(tx, NOON, [row])
            drawn.set()
            await go_on.wait()

    sending = asyncio.create_task(send_slowly())
    await drawn.wait()
    await standard.send("b")
    wanted = BrowseFilter(await last_number(standard))
    await standard.send("later")
    first = await read(standard, wanted, limit=1)
    assert (bodies(first), bodies(await read(standard, wanted))) == (["a"], ["a", "b"])
    go_on.set()
    await sending
    assert first.next is not None
    second = await read(standard, wanted._replace(after=first.next))
    assert bodies(second) == ["slow", "b"]


async def test_what_a_group_has_passed_by_is_gone(fifo: FifoQueue) -> None:
    await fifo.send(*(make_message("g", str(number)) for number in range(12)))
    received = await fifo.receive(10)
    await fifo.delete(received[0], received[5])
    assert await fifo.hide(received[2], 0) == "ok"
    found = await all_of(fifo)
    assert [(one.message.body, one.state, one.message.receive_count) for one in found] == [
        *((str(n), "visible" if n == 2 else "in_flight", 1) for n in (1, 2, 3, 4, 6, 7, 8, 9)),
        ("10", "visible", 0),
        ("11", "visible", 0),
    ]
    assert all((m.first_received_at_ms is None) == (not m.receive_count) for m, *_ in found)


async def split(queue: StandardQueue | FifoQueue, parts: int) -> list[BrowsePosition]:
    name = "orders.fifo" if isinstance(queue, FifoQueue) else "orders"
    found = await queue_of(queue.database, name)
    async with queue.database.transaction() as tx:
        return await found.kind.find_ends(
            tx, found.queue_id, await found.kind.last_number(tx), parts
        )


@pytest.mark.parametrize("parts", [1, 3, 10])
async def test_parts_of_many_messages_come_from_a_sample(
    standard: StandardQueue, fifo: FifoQueue, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """Here it holds every page of the table, so the parts are equal."""
    monkeypatch.setattr(browsing, "_MOST_SPLIT", 10)
    other = await make_standard_queue(standard.database, "other")
    for _ in range(6):
        await standard.send(*(str(number) for number in range(10)))
        await StandardQueue(standard.database, other, standard.clock).send("x", "y")
    other_fifo = await make_queue(fifo.database, "other.fifo")
    await fifo.send(*(make_message(f"g{number % 7}") for number in range(60)))
    await fifo.send(*(make_message(f"g{number % 7}") for number in range(60)), queue_id=other_fifo)
    for queue in (standard, fifo):
        ends = await split(queue, parts)
        assert len(ends) == parts - 1
        found = [
            await all_of(queue, ANY._replace(after=after, until=until))
            for after, until in zip([START, *ends], [*ends, END], strict=True)
        ]
        assert [len(part) for part in found] == [60 // parts] * parts
        assert len({one.message.sequence for part in found for one in part}) == 60


async def test_dead_letters_draw_a_number_when_they_come(standard: StandardQueue) -> None:
    """The moved message keeps its own, and who was sent to the queue has no other."""
    dead = await make_standard_queue(standard.database, "dead")
    await standard.send("a", "b")
    received = await standard.receive(1)
    assert await standard.bury(dead, *received) == 1

    async def rows(tx: Transaction) -> list[tuple[int, int, int | None]]:
        found = await tx.fetch("SELECT queue_id, sequence, arrival FROM messages ORDER BY sequence")
        return [(row["queue_id"], row["sequence"], row["arrival"]) for row in found]

    async with standard.database.transaction() as tx:
        [moved, stayed] = await rows(tx)
    assert moved == (dead, received[0].sequence, stayed[1] + 1)
    assert stayed[2] is None
