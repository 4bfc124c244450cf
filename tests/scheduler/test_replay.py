"""Replays: what is sent, in which order, and that a crash neither repeats nor loses anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from queuegate.protocol import opaque_tokens
from queuegate.scheduler.replay import ReplayArchives
from queuegate.scheduler.sweeps import trim_archives
from queuegate.storage.model import TopicSubscription
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues import stored_queues
from queuegate.storage.topics import replays, subscriptions
from queuegate.storage.topics.publishing import PublishLane
from tests.scheduler.archive_store import BASE_URL, ArchiveStore, Outgoing, md5
from tests.scheduler.conftest import ACCOUNT, NOON, REGION, StillClock, Store
from tests.waiting import until_async

RAW = {"RawMessageDelivery": "true"}
MANY = 1_000
MINUTE = timedelta(minutes=1)
COLOURS = '{"colour":{"DataType":"String","StringValue":"%s"}}'


@pytest.fixture
async def archive(store: Store, clock: StillClock) -> AsyncIterator[ArchiveStore]:
    made = ArchiveStore(store, clock)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def queue(archive: ArchiveStore) -> Queue:
    return await archive.store.make_queue("orders.fifo")


async def finish(archive: ArchiveStore, job: ReplayArchives | None = None, rows: int = MANY) -> int:
    """Rounds until there is nothing more to do; how many."""
    job = job or archive.worker()
    rounds = 1
    while await job.run_round(rows):
        rounds += 1
    return rounds


async def test_replays_wait_while_there_is_no_room(archive: ArchiveStore, queue: Queue) -> None:
    await archive.publish(Outgoing("hello", "g1"))
    await archive.ask(await archive.subscribe(queue))
    archive.clock.instant = NOON + timedelta(hours=1)
    has_room = False
    job = archive.worker(lambda: has_room)
    assert await job.run_round(MANY) == 0
    assert await archive.messages(queue) == []
    has_room = True
    await finish(archive, job)
    assert len(await archive.messages(queue)) == 1


async def test_a_replay_goes_on_when_its_queue_has_room(
    archive: ArchiveStore, queue: Queue
) -> None:
    resize = "UPDATE queues SET most_messages = $1 WHERE queue_id = $2 RETURNING 1"
    await archive.store.number(resize, 2, queue.queue_id)
    await archive.publish(*"abcde")
    subscription = await archive.subscribe(queue)
    await archive.ask(subscription)
    archive.clock.instant = NOON + timedelta(hours=1)
    await finish(archive)
    assert (await archive.replay(subscription))["replayed_count"] == 2
    assert (await archive.status(subscription))[0] == "In progress"
    assert len(await archive.messages(queue)) == 2
    await archive.store.number(resize, 9, queue.queue_id)
    assert await archive.worker().run_round(MANY) == 0
    archive.clock.instant += timedelta(seconds=2)
    await finish(archive)
    assert await archive.status(subscription) == ("Completed", 5)
    texts = [json.loads(one["body"])["Message"] for one in await archive.messages(queue)]
    assert texts == list("abcde")


# What is sent


async def test_envelope_is_the_original_one(archive: ArchiveStore, queue: Queue) -> None:
    attributes = {
        "colour": {"DataType": "String", "StringValue": "red"},
        "data": {"DataType": "Binary", "BinaryValue": "AAEC"},
    }
    [message_id] = await archive.publish(
        Outgoing("hello", "g1", subject="about", attributes=json.dumps(attributes))
    )
    subscription = await archive.subscribe(queue)
    await archive.ask(subscription)
    assert await archive.status(subscription) == ("Pending", 0)
    archive.clock.instant = NOON + timedelta(hours=1)
    await finish(archive)

    [message] = await archive.messages(queue)
    async with archive.database.transaction() as tx:
        kept = await tx.fetchrow("SELECT * FROM topic_archive")
    assert kept is not None
    assert json.loads(message["body"]) == {
        "Type": "Notification",
        "MessageId": str(message_id),
        "SequenceNumber": opaque_tokens.topic_sequence_number(kept["sequence"]),
        "TopicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:news.fifo",
        "Subject": "about",
        "Message": "hello",
        "Timestamp": "2026-11-21T12:00:00.000Z",
        "UnsubscribeURL": f"{BASE_URL}/?Action=Unsubscribe&SubscriptionArn={subscription.arn}",
        "MessageAttributes": {
            "colour": {"Type": "String", "Value": "red"},
            "data": {"Type": "Binary", "Value": "AAEC"},
        },
    }
    assert (message["group_id"], message["deduplication_id"]) == ("g1", kept["deduplication_id"])
    assert (message["sender_id"], message["attributes"]) == ("publisher", None)
    assert await archive.status(subscription) == ("Completed", 1)
    assert archive.moved == [(queue.queue_id, 1)]


async def test_raw_copies_for_a_standard_queue_are_plain(archive: ArchiveStore) -> None:
    queue = await archive.store.make_queue("orders")
    await archive.publish(Outgoing("a", attributes=COLOURS % "red"), Outgoing("b"))
    await archive.ask(await archive.subscribe(queue, **RAW))
    await finish(archive)

    first, second = await archive.messages(queue)
    assert (first["body"], first["body_md5"], second["body"]) == ("a", md5("a"), "b")
    assert (json.loads(first["attributes"]), second["attributes"]) == (
        json.loads(COLOURS % "red"),
        None,
    )
    assert (first["system"], second["system"]) == (None, None)
    assert (await archive.store.counts(queue)).visible == 2


async def test_replay_goes_from_its_start_to_its_end(archive: ArchiveStore, queue: Queue) -> None:
    for number in range(6):
        archive.clock.instant = NOON + number * MINUTE
        await archive.publish(str(number))
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription, NOON + MINUTE, NOON + 3 * MINUTE)
    await finish(archive)

    assert await archive.bodies(queue) == ["1", "2", "3"]
    assert await archive.status(subscription) == ("Completed", 3)


@pytest.mark.parametrize(
    ("policy", "scope", "expected"),
    [
        ('{"colour":["red"]}', "MessageAttributes", ["1", '{"n":3}']),
        ('{"colour":[{"exists":false}]}', "MessageAttributes", ["0"]),
        ('{"n":[{"numeric":[">",2]}]}', "MessageBody", ['{"n":3}']),
    ],
)
async def test_filter_applies(
    archive: ArchiveStore, queue: Queue, policy: str, scope: str, expected: list[str]
) -> None:
    await archive.publish(
        "0",
        Outgoing("1", attributes=COLOURS % "red"),
        Outgoing('{"n":2}', attributes=COLOURS % "blue"),
        Outgoing('{"n":3}', attributes=COLOURS % "red"),
    )
    subscription = await archive.subscribe(
        queue, FilterPolicy=policy, FilterPolicyScope=scope, **RAW
    )
    await archive.ask(subscription)
    await finish(archive, rows=2)

    assert await archive.bodies(queue) == expected
    assert await archive.status(subscription) == ("Completed", len(expected))


async def test_copies_that_the_queue_cannot_take_go_to_the_dead_letter_queue(
    archive: ArchiveStore, store: Store
) -> None:
    queue = await store.make_queue("orders.fifo", MaximumMessageSize="1024")
    dead = await store.make_queue("dead.fifo")
    many = {f"a{n}": {"DataType": "String", "StringValue": "v"} for n in range(11)}
    await archive.publish(
        "good", "large" * 300, Outgoing("many", attributes=json.dumps(many)), "last"
    )
    redrive = json.dumps({"deadLetterTargetArn": dead.arn})
    kept = await archive.subscribe(queue, RedrivePolicy=redrive, **RAW)
    await archive.ask(kept)
    await finish(archive)

    assert await archive.bodies(queue) == ["good", "last"]
    assert await archive.status(kept) == ("Completed", 2)
    letters = await archive.messages(dead)
    assert [letter["body"] for letter in letters] == ["large" * 300, "many"]
    # With nothing but what they were published with.
    assert letters[0]["attributes"] is None
    assert json.loads(letters[1]["attributes"]) == many
    assert sorted(archive.moved) == sorted([(queue.queue_id, 2), (dead.queue_id, 2)])


async def test_copies_that_nobody_can_take_are_dropped(archive: ArchiveStore, store: Store) -> None:
    queue = await store.make_queue("orders.fifo", MaximumMessageSize="1024")
    await archive.publish("large" * 300, "good")
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    await finish(archive)
    assert await archive.bodies(queue) == ["good"]


# What the queue and other messages have to do with it


async def test_queue_does_not_take_a_replay_for_a_duplicate(
    archive: ArchiveStore, queue: Queue
) -> None:
    subscription = await archive.subscribe(queue, **RAW)
    await archive.publish(*[Outgoing(text, live=queue, knows=[subscription]) for text in "ab"])
    for _ in range(2):
        await archive.ask(subscription)
        await finish(archive)

    assert await archive.bodies(queue) == ["a", "b"] * 3
    assert len({row["deduplication_id"] for row in await archive.messages(queue)}) == 2


async def test_what_is_published_during_a_replay_comes_once(
    archive: ArchiveStore, queue: Queue
) -> None:
    job = archive.worker()
    await archive.publish("1", "2", "3")
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    # The gateway of the first has not heard of the subscription, that of the second has.
    await archive.publish(Outgoing("4"), Outgoing("live", live=queue, knows=[subscription]))
    assert await job.run_round(2) == 2
    await archive.publish(Outgoing("5"), Outgoing("lively", live=queue, knows=[subscription]))
    await finish(archive, job)
    assert await archive.status(subscription) == ("Completed", 4)

    # Nor has that of the next, which is late.
    late = Outgoing("6")
    await archive.publish(late, Outgoing("liveliest", live=queue, knows=[subscription]))
    assert await job.run_round(MANY) == 0
    archive.clock.instant = NOON + timedelta(seconds=2)
    assert await job.run_round(MANY) == 4
    assert [body for body in await archive.bodies(queue) if body.isdigit()] == list("123456")
    assert [b for b in await archive.bodies(queue) if not b.isdigit()] == [
        "live",
        "lively",
        "liveliest",
    ]
    assert await archive.status(subscription) == ("Completed", 6)


async def test_looks_for_stragglers_end(archive: ArchiveStore, queue: Queue) -> None:
    job = archive.worker()
    subscription = await archive.subscribe(queue)
    await archive.ask(subscription)
    looks = 0
    for second in range(120):
        archive.clock.instant = NOON + timedelta(seconds=second)
        before = (await archive.replay(subscription))["due_at"]
        await job.run_round(MANY)
        looks += (await archive.replay(subscription))["due_at"] != before
    assert looks == 8
    assert (await archive.replay(subscription))["due_at"] is None


async def test_another_subscription_does_not_make_a_new_one_known(
    archive: ArchiveStore, store: Store, queue: Queue
) -> None:
    older = await archive.subscribe(await store.make_queue("other.fifo"))
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    newer = await archive.subscribe(await store.make_queue("third.fifo"))
    await archive.publish(Outgoing("not offered", knows=[older]))
    await archive.publish(Outgoing("offered", knows=[older, subscription, newer]))
    await finish(archive)
    assert await archive.bodies(queue) == ["not offered"]


async def test_end_in_the_future_is_waited_for(archive: ArchiveStore, queue: Queue) -> None:
    job = archive.worker()
    await archive.publish("1")
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription, NOON, NOON + timedelta(hours=1))
    await job.run_round(MANY)
    assert await archive.status(subscription) == ("In progress", 1)

    archive.clock.instant = NOON + timedelta(minutes=59)
    await archive.publish("2")
    await job.run_round(MANY)
    assert await archive.status(subscription) == ("In progress", 2)
    archive.clock.instant = NOON + timedelta(minutes=61)
    await archive.publish("3")
    await job.run_round(MANY)
    assert await archive.status(subscription) == ("Completed", 2)
    assert await archive.bodies(queue) == ["1", "2"]


async def test_publish_under_way_is_waited_for(archive: ArchiveStore, queue: Queue) -> None:
    """Somebody drew a lower number, and commits after a higher one."""
    subscription = await archive.subscribe(queue, **RAW)
    async with archive.database.transaction() as tx:
        row = await tx.fetchrow(
            "SELECT sequences[1] AS sequence FROM topic_number($1, ARRAY[$2::int], ARRAY['slow'],"
            " ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()])",
            NOON,
            archive.topic.topic_id,
        )
        assert row is not None
        await archive.publish("higher")
        await archive.ask(subscription)
        round_under_way = asyncio.create_task(archive.worker().run_round(MANY))
        waiting = "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        await until_async(lambda: archive.store.number(waiting))
        assert not round_under_way.done()
        await tx.execute(
            "INSERT INTO topic_archive SELECT $1, $2, $3, gen_random_uuid(), 'slow', 'd', NULL,"
            " 'lower', NULL, 's', $3, 0",
            archive.topic.topic_id,
            row["sequence"],
            NOON,
        )
    await round_under_way
    assert await archive.bodies(queue) == ["lower", "higher"]


async def test_unconfirmed_subscription_gets_nothing_until_it_is_confirmed(
    archive: ArchiveStore, queue: Queue
) -> None:
    await archive.publish("1")
    subscription = await archive.subscribe(queue, token="ab", **RAW)
    await archive.ask(subscription)
    # Its publisher knew it, but unconfirmed: it was not offered.
    await archive.publish(Outgoing("2", knows=[subscription]))
    await finish(archive)
    assert await archive.status(subscription) == ("Pending", 0)

    async with archive.database.transaction() as tx:
        await subscriptions.confirm(
            tx, subscription, was_authenticated=True, authenticate_on_unsubscribe=False
        )
        confirmed = await subscriptions.find(tx, subscription.subscription_id, NOON)
    assert confirmed is not None
    await archive.publish(Outgoing("live", live=queue, knows=[confirmed]))
    await finish(archive)
    assert await archive.bodies(queue) == ["live", "1", "2"]
    assert await archive.status(subscription) == ("Completed", 2)


# Batches, workers and crashes


def by_group(bodies: list[str]) -> dict[str, list[str]]:
    """Bodies that begin with the name of their group."""
    found: dict[str, list[str]] = {}
    for body in bodies:
        found.setdefault(body.partition("-")[0], []).append(body)
    return found


async def fill(archive: ArchiveStore, count: int) -> list[str]:
    """Messages of three groups, in one batch after the other; what was published."""
    published = []
    for start in range(0, count, 10):
        texts = [f"{'xyz'[number % 3]}-{number}" for number in range(start, start + 10)]
        await archive.publish(*[Outgoing(text, text[0]) for text in texts])
        published += texts
    return published


async def test_groups_keep_their_order_over_small_batches(
    archive: ArchiveStore, queue: Queue
) -> None:
    published = await fill(archive, 40)
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    job = archive.worker()
    handled = [await job.run_round(3) for _ in range(15)]

    assert sum(handled) == 40
    assert handled[:13] == [3] * 13
    assert await archive.bodies(queue) == published
    assert await archive.status(subscription) == ("Completed", 40)


async def test_replay_among_publishers_at_work(archive: ArchiveStore, queue: Queue) -> None:
    """Of two gateways one has heard of the subscription, and one has not for a while."""
    subscription = await archive.subscribe(queue, **RAW)
    published: list[str] = []

    async def publish(groups: str, lane: PublishLane, live_from: int) -> None:
        for number in range(60):
            knows = number >= live_from
            texts = [f"{group}-{number}{'live' if knows else ''}" for group in groups]
            for text in texts:
                outgoing = Outgoing(text, text[0])
                if knows:
                    outgoing.knows, outgoing.live = [subscription], queue
                await archive.publish(outgoing, lane=lane)
                published.append(text)

    await archive.publish("old-1", "old-2")
    await archive.ask(subscription)
    publishing = asyncio.gather(
        publish("ab", archive.publishing, 1), publish("cd", archive.other_gateway, 40)
    )
    job = archive.worker()
    while not publishing.done():
        assert archive.clock.instant is not None
        # Within the minute in which it looks for stragglers.
        later = archive.clock.instant + timedelta(milliseconds=400)
        archive.clock.instant = min(later, NOON + timedelta(seconds=50))
        await job.run_round(7)
    await publishing
    archive.clock.instant = (await archive.replay(subscription))["due_at"]
    await finish(archive, job)

    bodies = await archive.bodies(queue)
    assert sorted(bodies) == sorted([*published, "old-1", "old-2"])
    for live in (True, False):
        kept = [body for body in bodies if body.endswith("live") == live]
        sent = [body for body in published if body.endswith("live") == live]
        found = by_group(kept)
        found.pop("old", None)
        assert found == by_group(sent)


async def test_batches_are_bounded_in_bytes(
    archive: ArchiveStore, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.scheduler.replay._BATCH_BYTES", 20)
    texts = ["a" * 30, "b" * 5, "c" * 5, "d" * 15, "e" * 30]
    await archive.publish(*texts)
    await archive.ask(await archive.subscribe(queue, **RAW))
    await finish(archive)

    assert [count for _, count in archive.moved] == [1, 3, 1]
    assert await archive.bodies(queue) == texts


async def test_broken_off_rounds_repeat_nothing_and_lose_nothing(
    archive: ArchiveStore, queue: Queue
) -> None:
    published = await fill(archive, 60)
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    broken_off = 0
    for step in range(60):
        job = archive.worker()
        try:
            async with asyncio.timeout(0.001 * step / 4):
                await job.run_round(7)
        except TimeoutError:
            broken_off += 1
    assert broken_off
    await finish(archive)

    assert await archive.bodies(queue) == published
    assert await archive.status(subscription) == ("Completed", 60)


async def test_workers_share_the_work(archive: ArchiveStore, store: Store, queue: Queue) -> None:
    published = await fill(archive, 60)
    targets = [queue, await store.make_queue("b.fifo"), await store.make_queue("c")]
    made: list[TopicSubscription] = []
    for target in targets:
        made.append(await archive.subscribe(target, **RAW))
        await archive.ask(made[-1])
    await asyncio.gather(*[finish(archive, rows=7) for _ in range(4)])
    await finish(archive)

    for subscription, target in zip(made, targets, strict=True):
        assert await archive.status(subscription) == ("Completed", 60)
        bodies = await archive.bodies(target)
        # The clock stands still: batches for a standard queue are visible at the same time.
        assert bodies == published if target.is_fifo else sorted(bodies) == sorted(published)


async def test_two_workers_at_one_replay(archive: ArchiveStore, queue: Queue) -> None:
    published = await fill(archive, 60)
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    first, second = archive.worker(), archive.worker()
    for _ in range(40):
        await asyncio.gather(first.run_round(4), second.run_round(4))
    assert by_group(await archive.bodies(queue)) == by_group(published)
    assert await archive.status(subscription) == ("Completed", 60)


async def test_replay_does_not_look_at_the_whole_archive(
    archive: ArchiveStore, queue: Queue
) -> None:
    for day in range(10):
        archive.clock.instant = NOON + timedelta(days=day)
        await archive.publish(*[f"{day}-{number}" for number in range(10)])
    subscription = await archive.subscribe(queue, **RAW)
    start = NOON + timedelta(days=4)
    await archive.ask(subscription, start, start + timedelta(hours=1))
    job = archive.worker()
    looked_at = 0
    while handled := await job.run_round(5):
        looked_at += handled

    assert looked_at <= 40
    assert await archive.bodies(queue) == [f"4-{number}" for number in range(10)]
    assert await archive.status(subscription) == ("Completed", 10)


async def test_archive_may_be_trimmed_meanwhile(archive: ArchiveStore, queue: Queue) -> None:
    await archive.publish("1", "2", "3")
    archive.clock.instant = NOON + timedelta(days=300)
    await archive.publish("4")
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    assert await archive.worker().run_round(1) == 1
    archive.clock.instant = NOON + timedelta(days=365)
    await trim_archives.job(archive.database, archive.clock.now).run_round(MANY)
    await finish(archive)
    assert await archive.bodies(queue) == ["1", "4"]
    assert await archive.status(subscription) == ("Completed", 2)


# Ends


async def test_replay_without_its_queue_fails(archive: ArchiveStore, queue: Queue) -> None:
    await archive.publish("1", "2")
    subscription = await archive.subscribe(queue)
    await archive.ask(subscription)
    await archive.worker().run_round(1)
    await archive.store.delete_queue(queue)
    assert await finish(archive) == 1

    row = await archive.replay(subscription)
    assert (row["status"], row["replayed_count"]) == ("Failed", 1)
    assert row["failure_reason"] == "The queue of the subscription does not exist."
    assert (row["finished_at"], row["due_at"]) == (NOON, None)
    await archive.ask(subscription)
    assert await archive.status(subscription) == ("Pending", 0)


async def test_complete_replay_stays_so_without_its_queue(
    archive: ArchiveStore, queue: Queue
) -> None:
    subscription = await archive.subscribe(queue)
    await archive.ask(subscription)
    await finish(archive)
    await archive.store.delete_queue(queue)
    archive.clock.instant = NOON + timedelta(seconds=5)
    await finish(archive)
    row = await archive.replay(subscription)
    assert (row["status"], row["failure_reason"], row["due_at"]) == ("Completed", None, None)


@pytest.mark.parametrize("name", ["late.fifo", "late"])
async def test_queue_deleted_under_a_batch(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    queue = await archive.store.make_queue(name)
    await archive.publish("1")
    subscription = await archive.subscribe(queue)
    await archive.ask(subscription)
    find = stored_queues.find

    async def find_and_delete(*arguments: str) -> Queue | None:
        found = await find(*arguments)  # type: ignore[arg-type]
        if found is not None:
            await archive.store.delete_queue(found)
        return found

    monkeypatch.setattr("queuegate.storage.queues.stored_queues.find", find_and_delete)
    await finish(archive)
    assert await archive.status(subscription) == ("Failed", 0)


async def test_replay_goes_with_its_subscription(archive: ArchiveStore, queue: Queue) -> None:
    await archive.publish("1", "2")
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    await archive.worker().run_round(1)
    async with archive.database.transaction() as tx:
        await subscriptions.delete(tx, subscription)

    assert await finish(archive) == 1
    assert await archive.store.number("SELECT count(*)::int FROM replays") == 0
    assert await archive.bodies(queue) == ["1"]


@pytest.mark.parametrize("goes_further", [False, True])
async def test_subscription_that_is_deleted_under_a_batch_waits_for_it(
    archive: ArchiveStore, queue: Queue, *, goes_further: bool
) -> None:
    """And not each for the other."""
    await archive.publish("1")
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)

    async def delete() -> None:
        async with archive.database.transaction() as tx:
            await subscriptions.delete(tx, subscription)

    async with archive.database.transaction() as tx:
        replay = await replays.claim(tx, NOON)
    async with archive.database.transaction() as tx:
        assert replay is not None
        if goes_further:
            replay = await replays.extend(tx, replay, replays.Line(1 << 40, NOON))
        else:
            replay = await replays.claim(tx, NOON)
        assert replay is not None
        deleting = asyncio.create_task(delete())
        waiting = "SELECT count(*)::int FROM pg_locks WHERE NOT granted"
        await until_async(lambda: archive.store.number(waiting))
        assert not deleting.done()
        page = await replays.read(tx, replay, limit=MANY, most_bytes=MANY)
        await replays.advance(tx, NOON, replay, page, replayed_count=1)
        await replays.end(tx, NOON, replay, "")
    await deleting
    assert await archive.store.number("SELECT count(*)::int FROM replays") == 0


async def test_new_replay_is_not_mistaken_for_the_old_one(
    archive: ArchiveStore, queue: Queue
) -> None:
    """The line was drawn for a replay in whose place there is another one by now."""
    await archive.publish("1")
    subscription = await archive.subscribe(queue, **RAW)
    await archive.ask(subscription)
    async with archive.database.transaction() as tx:
        await tx.execute("SELECT pg_advisory_xact_lock(hashtextextended('', -1 - 1))")
        round_under_way = asyncio.create_task(archive.worker().run_round(MANY))
        waiting = "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        await until_async(lambda: archive.store.number(waiting))
        assert not round_under_way.done()
        await archive.store.number("WITH gone AS (DELETE FROM replays) SELECT 1")
        await archive.ask(subscription, NOON + timedelta(seconds=1))
    with contextlib.suppress(TimeoutError):
        await round_under_way
    await finish(archive)
    assert await archive.bodies(queue) == []
    assert await archive.status(subscription) == ("Completed", 0)
