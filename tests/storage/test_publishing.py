"""The lane of publishes: numbers, duplicates, queues that are gone, and one transaction for all."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime, timedelta

import pytest

from queuegate.storage.database import Database
from queuegate.storage.model import NewDelivery, NewOutboxMessage
from queuegate.storage.queue_model import Row
from queuegate.storage.queues import messages
from queuegate.storage.queues.kinds import FIFO, STANDARD
from queuegate.storage.queues.messages import dedup_key
from queuegate.storage.topics import publishing
from queuegate.storage.topics.publishing import (
    ArchivedPublication,
    Copies,
    CopyPosition,
    Message,
    Numbering,
    Publication,
    PublishLane,
)
from tests.storage.fifo_queue import START, call, delete_queue, make_message, make_queue
from tests.storage.standard_queue import make_message as make_standard_message
from tests.storage.standard_queue import make_queue as make_standard_queue

Result = tuple[list[publishing.Written], frozenset[int]]


def new_id() -> str:
    return str(uuid.uuid4())


def standard(queue_id: int, body: str = "body") -> Row:
    return make_standard_message(queue_id, body)


def delivery(body: str = "body") -> NewDelivery:
    return NewDelivery(
        new_id(), "Notification", True, new_id(), "0", "r", "news", "http://example.com/", body
    )


def mail(body: str = "body") -> NewOutboxMessage:
    return NewOutboxMessage(
        "0", "r", "email", "a@b", "Notification", None, None, new_id(), None, body, None
    )


def plain(*rows: Row) -> Message:
    return Message(new_id(), None, lambda _: Copies({STANDARD: rows}))


class Topics:
    """A lane, its clock, and messages for it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now: datetime | None = START
        self.told: list[set[int]] = []
        self.made: list[int | None] = []
        self.publish = PublishLane(database, lambda: self.now, self._told)

    def _told(self, queue_ids: Iterable[int], _: datetime) -> None:
        self.told.append(set(queue_ids))

    def numbered(
        self,
        dedup: str,
        copies: Callable[[int | None], Copies] = lambda _: Copies(),
        *,
        topic_id: int = 1,
        group_id: str = "g",
    ) -> Message:
        def make(sequence: int | None) -> Copies:
            self.made.append(sequence)
            return copies(sequence)

        key = dedup_key(None, dedup)
        return Message(new_id(), Numbering(topic_id, group_id, key), make, 2)

    async def write(self, *messages: Message) -> Result:
        result = await call(self.publish.lane, lambda reply: Publication(list(messages), reply, 10))
        assert isinstance(result, publishing.WrittenPublications)
        return result[:2]

    async def bodies(self, table: str) -> list[str]:
        async with self.database.transaction() as tx:
            return [row["body"] for row in await tx.fetch(f"SELECT body FROM {table} ORDER BY 1")]


@pytest.fixture
async def topics(database: Database) -> AsyncIterator[Topics]:
    topics = Topics(database)
    yield topics
    await topics.publish.close()


async def test_messages_of_standard_topics_have_no_number(topics: Topics) -> None:
    queue_id = await make_standard_queue(topics.database)
    message = plain(standard(queue_id))
    written, gone = await topics.write(message)
    assert [tuple(one) for one in written] == [(message.message_id, None, False)]
    assert gone == frozenset()
    assert topics.told == [{queue_id}]


async def test_numbers_rise_in_the_order_of_messages(topics: Topics) -> None:
    first, _ = await topics.write(*[topics.numbered(str(n)) for n in range(5)])
    second, _ = await topics.write(topics.numbered("other", topic_id=2))
    numbers = [one.sequence or 0 for one in first + second]
    assert numbers == sorted(set(numbers))
    assert topics.made == numbers


async def test_a_duplicate_gets_the_id_and_number_of_the_first(topics: Topics) -> None:
    [first], _ = await topics.write(topics.numbered("d"))
    again, _ = await topics.write(topics.numbered("d", group_id="another"), topics.numbered("e"))
    assert again[0] == (first.message_id, first.sequence, True)
    assert not again[1].is_duplicate
    # It makes no copies.
    assert topics.made == [first.sequence, again[1].sequence]


async def test_duplicates_are_told_within_one_call_and_one_flush(topics: Topics) -> None:
    (one, two), _ = await topics.write(topics.numbered("d"), topics.numbered("d"))
    assert (two.message_id, two.sequence, two.is_duplicate) == (one.message_id, one.sequence, True)
    results = await asyncio.gather(*[topics.write(topics.numbered("flush")) for _ in range(9)])
    written = [written for [written], _ in results]
    assert sum(not one.is_duplicate for one in written) == 1
    assert len({(one.message_id, one.sequence) for one in written}) == 1
    assert len(topics.made) == 2


async def test_a_topic_knows_only_its_own_duplicates(topics: Topics) -> None:
    [first], _ = await topics.write(topics.numbered("d"))
    [other], _ = await topics.write(topics.numbered("d", topic_id=2))
    assert not other.is_duplicate
    assert other.message_id != first.message_id


@pytest.mark.parametrize(("seconds", "is_duplicate"), [(299.999, True), (300, False)])
async def test_duplicates_are_remembered_for_five_minutes(
    topics: Topics, seconds: float, is_duplicate: bool
) -> None:
    [first], _ = await topics.write(topics.numbered("d"))
    topics.now = START + timedelta(seconds=seconds)
    [again], _ = await topics.write(topics.numbered("d"))
    assert again.is_duplicate == is_duplicate
    assert (again.sequence == first.sequence) == is_duplicate
    # The five minutes begin anew with what is no duplicate, and only with that.
    topics.now = START + timedelta(seconds=seconds + 299)
    [third], _ = await topics.write(topics.numbered("d"))
    assert third.is_duplicate != is_duplicate


async def test_the_clock_of_the_database_is_the_default(topics: Topics) -> None:
    topics.now = None
    [first], _ = await topics.write(topics.numbered("d"))
    [again], _ = await topics.write(topics.numbered("d"))
    assert again == (first.message_id, first.sequence, True)


async def test_all_kinds_of_copies_are_one_transaction(topics: Topics) -> None:
    database = topics.database
    queue_id, fifo_id = await make_standard_queue(database), await make_queue(database)

    def copies(body: str) -> Callable[[int | None], Copies]:
        def make(sequence: int | None) -> Copies:
            archived = ArchivedPublication(
                1, sequence or 0, new_id(), "g", "d", None, body, None, "s", START, 0
            )
            row = make_message("g", body).row(fifo_id)
            return Copies(
                {STANDARD: [standard(queue_id, body)], FIFO: [row]},
                [delivery(body)],
                [mail(body)],
                archived,
            )

        return make

    async with database.transaction() as tx:
        await tx.execute("ALTER TABLE topic_archive ADD CONSTRAINT c CHECK (message <> 'poison')")
    results = await asyncio.gather(
        *[topics.write(topics.numbered(body, copies(body))) for body in ("a", "poison", "b")],
        return_exceptions=True,
    )
    assert [isinstance(result, Exception) for result in results] == [False, True, False]
    for table in ("messages", "fifo_messages", "deliveries", "outbox"):
        assert await topics.bodies(table) == ["a", "b"], table
    async with database.transaction() as tx:
        kept = await tx.fetch("SELECT message, archived_at FROM topic_archive ORDER BY 1")
        known = await tx.fetchval("SELECT count(*) FROM topic_dedup")
    assert [tuple(row) for row in kept] == [("a", START), ("b", START)]
    # What was not written is no first message of anything.
    assert known == 2
    [again], _ = await topics.write(topics.numbered("poison"))
    assert not again.is_duplicate


async def test_copies_for_queues_that_are_gone_are_told_and_the_others_written(
    topics: Topics,
) -> None:
    database = topics.database
    names = ("stays", "goes")
    standards = [await make_standard_queue(database, name) for name in names]
    fifos = [await make_queue(database, f"{name}.fifo") for name in names]
    for queue_id in (standards[1], fifos[1]):
        await delete_queue(database, queue_id)

    def copies(_: int | None) -> Copies:
        return Copies(
            {
                STANDARD: [standard(queue_id) for queue_id in standards],
                FIFO: [make_message("g").row(queue_id) for queue_id in fifos],
            },
            [delivery()],
        )

    _, gone = await topics.write(topics.numbered("d", copies))
    assert gone == {standards[1], fifos[1]}
    for table in ("messages", "fifo_messages", "deliveries"):
        assert await topics.bodies(table) == ["body"]


async def test_a_fifo_queue_may_fold_what_the_topic_does_not(topics: Topics) -> None:
    """The topic's scope is a group, the queue's is the queue."""
    queue_id = await make_queue(topics.database)

    def copies(body: str) -> Callable[[int | None], Copies]:
        return lambda _: Copies({FIFO: [make_message("g", body, "same").row(queue_id)]})

    messages = [topics.numbered(body, copies(body)) for body in ("one", "two")]
    written, gone = await topics.write(*messages)
    assert [one.is_duplicate for one in written] == [False, False]
    assert gone == frozenset()
    await topics.write(topics.numbered("three", copies("three")))
    assert await topics.bodies("fifo_messages") == ["one"]


async def test_large_copies_are_made_and_written_in_parts(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_CHUNK_ROWS", 7)
    queue_id = await make_standard_queue(topics.database)
    rows = iter([standard(queue_id, f"{n:02}") for n in range(20)])
    _, gone = await topics.write(Message(new_id(), None, lambda _: Copies({STANDARD: rows})))
    assert gone == frozenset()
    assert topics.told == [{queue_id}]
    assert await topics.bodies("messages") == [f"{n:02}" for n in range(20)]
    async with topics.database.transaction() as tx:
        assert await tx.fetchval("SELECT count(DISTINCT cmin::text) FROM messages") == 3


async def test_requests_and_mail_are_made_and_written_in_parts(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The envelopes of a long message for all web hooks of a topic fit neither into memory nor into
    one statement."""
    monkeypatch.setattr(messages, "_CHUNK_BYTES", 100)
    topics.now = None

    def copies(_: int | None) -> Copies:
        return Copies(
            deliveries=(delivery("x" * 60) for _ in range(20)),
            outbox=(mail("x" * 60) for _ in range(20)),
        )

    await topics.write(Message(new_id(), None, copies))
    async with topics.database.transaction() as tx:
        for table in ("deliveries", "outbox"):
            row = await tx.fetchrow(f"SELECT count(*), count(DISTINCT cmin::text) FROM {table}")
            assert row is not None
            assert tuple(row) == (20, 10), table


@pytest.mark.parametrize("limit", [1, 5, 1000])
async def test_a_flush_takes_no_more_locks_than_there_is_room_for(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(publishing, "_LOCKS_PER_FLUSH", limit)
    results = await asyncio.gather(*[topics.write(topics.numbered(str(n))) for n in range(12)])
    numbers = [written.sequence or 0 for [written], _ in results]
    assert numbers == sorted(set(numbers))


async def test_places_are_those_of_the_copies(topics: Topics) -> None:
    first, second = [await make_standard_queue(topics.database, name) for name in ("a", "b")]
    fifo = await make_queue(topics.database)
    gone = max(first, second, fifo) + 1
    copies = [
        Copies({STANDARD: [standard(first, "1"), standard(gone, "-"), standard(second, "2")]}),
        Copies(),
        Copies({STANDARD: [standard(second, "3")], FIFO: [make_message("g", "4").row(fifo)]}),
    ]
    new = [Message(new_id(), None, lambda _, one=one: one) for one in copies]  # type: ignore[misc]
    async with topics.database.transaction() as tx:
        outcome = await publishing.write(tx, None, new, wants_places=True)
    assert outcome.gone == {gone}
    assert set(outcome.sent) == {first, second}
    assert await _bodies_at(topics, outcome.places) == [["1", "2"], [], ["3", "4"]]


async def _bodies_at(topics: Topics, places: list[list[CopyPosition]]) -> list[list[str]]:
    found: dict[tuple[int, int], str] = {}
    async with topics.database.transaction() as tx:
        for table in ("messages", "fifo_messages"):
            for row in await tx.fetch(f"SELECT queue_id, sequence, body FROM {table}"):
                found[row[0], row[1]] = row[2]
    return [[found[place] for place in one] for one in places]


async def test_two_lanes_keep_one_order_in_all_queues(topics: Topics) -> None:
    """Two processes publish to the same groups: every queue gets the order of the numbers."""
    database = topics.database
    queues = [await make_queue(database, f"q{n}.fifo") for n in range(3)]
    other = Topics(database)
    topics.now = other.now = None

    def copies(sequence: int | None) -> Copies:
        rows = [make_message("g", f"{sequence:020}").row(queue_id) for queue_id in queues]
        return Copies({FIFO: rows})

    await asyncio.gather(
        *[
            lane.write(*[lane.numbered(new_id(), copies) for _ in range(3)])
            for _ in range(40)
            for lane in (topics, other)
        ]
    )
    await other.publish.close()
    async with database.transaction() as tx:
        found = await tx.fetch(
            "SELECT queue_id, body FROM fifo_messages ORDER BY queue_id, sequence"
        )
    for queue_id in queues:
        bodies = [row["body"] for row in found if row["queue_id"] == queue_id]
        assert len(bodies) == 240
        assert bodies == sorted(bodies)


async def test_two_lanes_agree_on_duplicates(topics: Topics) -> None:
    other = Topics(topics.database)
    topics.now = other.now = None
    results = await asyncio.gather(
        *[
            lane.write(
                topics.numbered(f"{n % 7}", group_id=str(n % 5)),
                topics.numbered(f"{n % 3}", group_id=str(n % 4)),
            )
            for n in range(60)
            for lane in (topics, other)
        ]
    )
    await other.publish.close()
    written = [one for both, _ in results for one in both]
    assert len({one.message_id for one in written}) == 7
    assert sum(not one.is_duplicate for one in written) == 7
