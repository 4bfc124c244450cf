"""Patterns of routing keys in the database: kept like topics, apart from them, found by index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from queuegate.storage import notifications
from queuegate.storage.database import Database
from queuegate.storage.model import Topic
from queuegate.storage.topics import stored_topics, subscriptions
from queuegate.storage.topics.stored_topics import NewTopic
from queuegate.storage.topics.subscriptions import NewSubscription
from tests.storage.test_queries import watch_afterwards

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ACCOUNT, REGION = "111122223333", "eu-west-1"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
FILLED = 20_000


async def make(database: Database, name: str, *, is_pattern: bool = True) -> Topic:
    is_fifo = name.endswith(".fifo") and not is_pattern
    new = NewTopic(ACCOUNT, REGION, name, is_fifo, {}, {}, None, is_pattern)
    async with database.transaction() as tx:
        topic = await stored_topics.create(tx, NOON, new)
    assert topic is not None
    return topic


async def subscribe(
    database: Database, topic: Topic, endpoint: str = QUEUE, protocol: str = "sqs"
) -> None:
    new = NewSubscription(
        uuid4(), topic.topic_id, protocol, endpoint, ACCOUNT, REGION, {}, None, gets_events=True
    )
    async with database.transaction() as tx:
        await subscriptions.create(tx, NOON, new, token_seconds=0)


async def test_a_pattern_and_a_topic_may_have_one_name(database: Database) -> None:
    pattern = await make(database, "orders.fifo")
    topic = await make(database, "orders.fifo", is_pattern=False)
    await make(database, "order.*")
    async with database.transaction() as tx:
        again = NewTopic(ACCOUNT, REGION, "orders.fifo", False, {}, {}, None, True)
        assert await stored_topics.create(tx, NOON, again) is None
        assert await stored_topics.find(tx, ACCOUNT, REGION, "orders.fifo") == topic
        assert await stored_topics.find_pattern(tx, ACCOUNT, REGION, "orders.fifo") == pattern
        assert await stored_topics.find(tx, ACCOUNT, REGION, "order.*") is None
        assert await stored_topics.find_pattern(tx, ACCOUNT, "us-east-1", "order.*") is None
        names = await stored_topics.list_names(tx, ACCOUNT, REGION, after_name="", limit=9)
        assert names == ["orders.fifo"]
        found = await stored_topics.list_patterns(tx, ACCOUNT, REGION)
        assert list(found.values()) == ["orders.fifo", "order.*"]
        assert await stored_topics.count_patterns(tx, ACCOUNT, REGION, limit=9) == 2
        assert await stored_topics.count_patterns(tx, ACCOUNT, REGION, limit=1) == 1


async def test_a_subscription_says_where_it_belongs(database: Database) -> None:
    pattern, topic = await make(database, "order.#"), await make(database, "a", is_pattern=False)
    for one in (pattern, topic):
        await subscribe(database, one)
    async with database.transaction() as tx:
        found = await subscriptions.of_topics(tx, [pattern.topic_id, topic.topic_id])
        assert [(one.is_pattern, one.gets_events) for one in found] == [(True, True), (False, True)]
        assert found[0].arn == f"{pattern.arn}:{found[0].subscription_id}"
        assert found[0].created_at == NOON
        # Links in what the native API delivers need no credentials.
        assert not any(one.authenticate_on_unsubscribe for one in found)
        page = await subscriptions.page_of_queue(tx, QUEUE, after_position=0, limit=9)
        assert page == found
        rest = await subscriptions.page_of_queue(
            tx, QUEUE, after_position=found[0].position, limit=9
        )
        assert rest == found[1:]
        listed = await subscriptions.page_of_account(
            tx, NOON, account_id=ACCOUNT, region=REGION, after_position=0, limit=9
        )
        assert listed == found[1:]


async def test_pending_subscriptions_are_not_those_of_a_queue(database: Database) -> None:
    topic = await make(database, "a", is_pattern=False)
    new = NewSubscription(uuid4(), topic.topic_id, "sqs", QUEUE, ACCOUNT, REGION, {}, "token")
    async with database.transaction() as tx:
        await subscriptions.create(tx, NOON, new, token_seconds=60)
        assert await subscriptions.page_of_queue(tx, QUEUE, after_position=0, limit=9) == []


async def test_only_patterns_that_nobody_can_come_back_to_are_removed(database: Database) -> None:
    async def left() -> list[str]:
        async with database.transaction() as tx:
            return [row["topic_name"] for row in await tx.fetch("SELECT * FROM topics ORDER BY 1")]

    topic = await make(database, "a", is_pattern=False)
    unused, used, ended = [await make(database, name) for name in ("u.*", "s.*", "e.*")]
    for pattern in (used, ended):
        await subscribe(database, pattern)
    async with database.transaction() as tx:
        [one] = await subscriptions.of_topics(tx, [ended.topic_id])
        await subscriptions.remember_ended(
            tx, NOON, one.subscription_id, token="t", token_seconds=60
        )
        assert await subscriptions.delete(tx, one)
        ids = [each.topic_id for each in (topic, unused, used, ended)]
        await stored_topics.remove_unused_patterns(tx, ids)
    assert await left() == ["a", "s.*", "e.*"]
    async with database.transaction() as tx:
        assert await subscriptions.delete_expired(tx, NOON + timedelta(seconds=60), 9) == 1
    assert await left() == ["a", "s.*"]
    async with database.transaction() as tx:
        [one] = await subscriptions.of_topics(tx, [used.topic_id])
        assert await subscriptions.delete(tx, one)
    assert await left() == ["a"]


def test_a_namespace_has_a_number_that_no_topic_has() -> None:
    numbers = [
        notifications.namespace_number(account_id, region)
        for account_id in ("0" * 12, ACCOUNT, "9" * 12)
        for region in ("us-east-1", REGION)
    ]
    assert max(numbers) < 0
    assert len(set(numbers)) == len(numbers)
    assert numbers[3] == notifications.namespace_number(ACCOUNT, REGION)


async def use(database: Database, topic: Topic) -> None:
    """Run the statements of events; the last subscription of a pattern deletes the pattern."""
    async with database.transaction() as tx:
        await stored_topics.find_pattern(tx, ACCOUNT, REGION, topic.name)
        found = await stored_topics.list_patterns(tx, ACCOUNT, REGION)
        await subscriptions.of_topics(tx, found)
        await stored_topics.count_patterns(tx, ACCOUNT, REGION, limit=100)
        page = await subscriptions.page_of_queue(tx, QUEUE, after_position=0, limit=2)
        assert page
        await subscriptions.page_of_account(
            tx, NOON, account_id=ACCOUNT, region=REGION, after_position=0, limit=2
        )
    gone = await make(database, "gone.*")
    await subscribe(database, gone, "arn:aws:sqs:r:1:gone")
    async with database.transaction() as tx:
        await stored_topics.lock(tx, gone.topic_id)
        [one] = await subscriptions.of_topics(tx, [gone.topic_id])
        assert await subscriptions.delete(tx, one)


async def test_patterns_planned_when_there_were_few_never_scan(own_database_dsn: str) -> None:
    database = Database(own_database_dsn, max_connections=1)
    await database.open()
    pattern = await make(database, "order.*")
    topic = await make(database, "orders", is_pattern=False)
    for one in (pattern, topic):
        await subscribe(database, one)
    for _ in range(6):
        await use(database, pattern)
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO topics (account_id, region, topic_name, is_fifo, is_pattern, created_at)"
            " SELECT '999988887777', $1, 'n' || n, false, n % 2 = 0, now()"
            " FROM generate_series(1, $2::int) AS n",
            REGION,
            FILLED,
        )
        await tx.execute(
            "INSERT INTO subscriptions (subscription_id, topic_id, protocol, endpoint, account_id,"
            " region, is_confirmed, was_authenticated, created_at)"
            " SELECT gen_random_uuid(), t.topic_id, 'sqs', 'arn:aws:sqs:r:1:q' || t.topic_id,"
            " t.account_id, t.region, true, true, now()"
            " FROM topics AS t WHERE t.account_id = '999988887777'",
        )
    for _ in range(6):
        await use(database, pattern)
    watcher = await watch_afterwards(database)
    rows = await watcher.fetch(
        "SELECT relname, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables"
        " WHERE relname IN ('subscriptions', 'topics', 'ended_subscriptions')"
    )
    fetched = await watcher.fetchval(
        "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes"
        " WHERE relname IN ('subscriptions', 'topics')"
    )
    await watcher.close()
    read = {row["relname"]: row["seq_tup_read"] for row in rows}
    # The statement that fills reads all topics once.
    assert read["subscriptions"] < 500, read
    assert read["topics"] < FILLED + 1_000, read
    assert fetched < FILLED * 2 + 2_000, fetched
