"""Topics in the database: creating, locking, counting, and what their archives lose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from queuegate.storage.database import Database, probe_by_key
from queuegate.storage.model import Topic
from queuegate.storage.queries import load
from queuegate.storage.topics import stored_topics
from queuegate.storage.topics.stored_topics import NewTopic, OutdatedArchive

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ACCOUNT = "111122223333"
REGION = "eu-west-1"
TEN_DAYS = {"ArchivePolicy": '{"MessageRetentionPeriod":"10"}'}


async def make_topic(database: Database, name: str = "news", **attributes: str) -> Topic:
    is_fifo = name.endswith(".fifo")
    new = NewTopic(ACCOUNT, REGION, name, is_fifo, attributes, {"z": "1", "a": "2"}, None)
    async with database.transaction() as tx:
        topic = await stored_topics.create(tx, NOON, new)
    assert topic is not None
    return topic


async def archive(database: Database, topic_id: int, *days_ago: int) -> None:
    async with database.transaction() as tx:
        for days in days_ago:
            await tx.execute(
                "INSERT INTO topic_archive SELECT $1, nextval('topic_sequence'), $2,"
                " gen_random_uuid(), 'g', 'd', NULL, 'm', NULL, 's', $2, 0",
                topic_id,
                NOON - timedelta(days=days),
            )


async def outdated(
    tx: Transaction, after: int = 0, limit: int = 10
) -> tuple[list[OutdatedArchive], int | None]:
    return await stored_topics.find_outdated_archives(tx, NOON, after, limit)


async def test_a_topic_is_found_as_it_was_created(database: Database) -> None:
    made = await make_topic(
        database, "news.fifo", ContentBasedDeduplication="true", SignatureVersion="2", **TEN_DAYS
    )
    async with database.transaction() as tx:
        assert await stored_topics.find(tx, ACCOUNT, REGION, "news.fifo") == made
        assert await stored_topics.find_by_id(tx, made.topic_id) == made
        assert await stored_topics.lock(tx, made.topic_id) == made
        assert await stored_topics.find(tx, ACCOUNT, "us-east-1", "news.fifo") is None
        assert await stored_topics.find_by_id(tx, made.topic_id + 1) is None
    assert made.arn == f"arn:aws:sns:{REGION}:{ACCOUNT}:news.fifo"
    assert list(made.tags) == ["z", "a"]
    assert (made.archive_days, made.signature_version) == (10, "2")
    assert made.content_based_deduplication
    assert not made.deduplication_per_group
    assert (made.created_at, made.subscriptions_deleted) == (NOON, 0)


async def test_deleting_takes_the_subscriptions_along(database: Database) -> None:
    topic = await make_topic(database)
    states = ((True, None), (False, NOON + timedelta(days=1)), (False, NOON))
    async with database.transaction() as tx:
        for is_confirmed, expires_at in states:
            await tx.execute(
                "INSERT INTO subscriptions (subscription_id, topic_id, protocol, endpoint,"
                " account_id, region, is_confirmed, was_authenticated, token_expires_at,"
                " created_at) SELECT gen_random_uuid(), $1, 'http', gen_random_uuid()::text,"
                " $2, $3, $4, false, $5, now()",
                topic.topic_id,
                ACCOUNT,
                REGION,
                is_confirmed,
                expires_at,
            )
        # Nobody can confirm the third one any more.
        assert await stored_topics.count_subscriptions(tx, NOON, topic.topic_id) == (1, 1)
    async with database.transaction() as tx:
        assert await stored_topics.delete(tx, topic.topic_id)
        assert not await stored_topics.delete(tx, topic.topic_id)
        assert await tx.fetchval("SELECT count(*) FROM subscriptions") == 0


async def test_names_are_listed_in_byte_order(database: Database) -> None:
    for name in ("b", "B", "a-1", "a"):
        await make_topic(database, name)
    async with database.transaction() as tx:
        found = await stored_topics.list_names(tx, ACCOUNT, REGION, after_name="", limit=3)
        assert found == ["B", "a", "a-1"]
        assert await stored_topics.list_names(tx, ACCOUNT, REGION, after_name="a-1", limit=3) == [
            "b"
        ]


async def test_archives_lose_what_their_policy_does_not_keep(database: Database) -> None:
    keeps = await make_topic(database, "keeps.fifo", **TEN_DAYS)
    loses = await make_topic(database, "loses.fifo", **TEN_DAYS)
    stopped = await make_topic(database, "stopped.fifo")
    gone = stopped.topic_id + 1
    await archive(database, keeps.topic_id, 9, 1)
    await archive(database, loses.topic_id, 1, 11, 10)
    await archive(database, stopped.topic_id, 1)
    await archive(database, gone, 0, -1)
    async with database.transaction() as tx:
        found, last_topic_id = await outdated(tx)
        ten_days_ago = NOON - timedelta(days=10)
        assert found == [
            OutdatedArchive(loses.topic_id, ten_days_ago),
            OutdatedArchive(stopped.topic_id, None),
            OutdatedArchive(gone, None),
        ]
        assert last_topic_id is None
        assert await outdated(tx, limit=2) == (found[:1], loses.topic_id)
        assert await outdated(tx, after=loses.topic_id) == (found[1:], None)

        assert await stored_topics.remove_archived(tx, found[0], limit=1) == 1
        assert await stored_topics.remove_archived(tx, found[0], limit=9) == 1
        assert await stored_topics.remove_archived(tx, found[1], limit=9) == 1
        assert await stored_topics.remove_archived(tx, found[2], limit=9) == 2
        assert await outdated(tx) == ([], None)
        assert await tx.fetchval("SELECT count(*) FROM topic_archive") == 3
        oldest = await stored_topics.oldest_archived_at(tx, loses.topic_id)
        assert oldest == NOON - timedelta(days=1)
        assert await stored_topics.oldest_archived_at(tx, gone) is None


async def test_archives_are_trimmed_by_index_whatever_they_hold(database: Database) -> None:
    topic = await make_topic(database, "news.fifo", **TEN_DAYS)
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO topic_archive SELECT $1, n, $2, gen_random_uuid(), 'g', 'd', NULL, 'm',"
            " NULL, 's', $2, 0 FROM generate_series(1, 20000) AS n",
            topic.topic_id,
            NOON - timedelta(days=11),
        )
        await tx.execute("ANALYZE topic_archive")
        await probe_by_key(tx)
        statements = load("topics/stored_topics")
        for name, arguments in (
            ("find_outdated_archives", "NULL, 0, 500, '{}', false"),
            ("remove_archived", f"{topic.topic_id}, now(), 10"),
            ("forget_deduplication", "NULL, 10"),
        ):
            await tx.execute(f"PREPARE {name} AS {statements[name].text}")
            rows = await tx.fetch(f"EXPLAIN (COSTS OFF) EXECUTE {name} ({arguments})")
            plan = "\n".join(row[0] for row in rows)
            assert "Seq Scan" not in plan, plan
            assert "topic_archive" in plan or "topic_dedup" in plan, plan
