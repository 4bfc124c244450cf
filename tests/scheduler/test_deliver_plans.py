"""The statements of deliveries go by index on a full table, whatever they were planned on."""

from __future__ import annotations

from uuid import UUID

from queuegate.scheduler.webhook_worker import Deliver
from queuegate.storage.database import Database
from queuegate.storage.topics import web_hook_deliveries
from tests.scheduler.conftest import ACCOUNT, REGION, StillClock
from tests.scheduler.endpoints import Endpoint, answer
from tests.scheduler.webhook_store import WebHookStore
from tests.storage.test_queries import watch_afterwards

FILLED = 20_000


async def fill(hooks: WebHookStore, subscription_id: UUID) -> None:
    """Twenty thousand exhausted, as many due of one subscription, and some of others."""
    async with hooks.database.transaction() as tx:
        for state, owner, count in (
            ("exhausted", subscription_id, FILLED),
            ("pending", subscription_id, FILLED),
            ("pending", None, 500),
        ):
            await tx.execute(
                "INSERT INTO deliveries (subscription_id, kind, state, is_raw, due_at, created_at,"
                " message_id, account_id, region, topic_name, endpoint, body)"
                " SELECT coalesce($1::uuid, gen_random_uuid()), 'Notification', $2, true,"
                " now() + CASE WHEN $1 IS NULL THEN 600 ELSE 0 END * interval '1 second', now(),"
                " gen_random_uuid(), $3, $4, 'news', 'http://127.0.0.1:1/', 'x'"
                " FROM generate_series(1, $5::int)",
                owner,
                state,
                ACCOUNT,
                REGION,
                count,
            )
        await tx.execute(
            "INSERT INTO subscriptions (subscription_id, topic_id, protocol, endpoint, account_id,"
            " region, is_confirmed, was_authenticated, created_at)"
            " SELECT gen_random_uuid(), topic_id, 'http', 'http://h/' || n, $1, $2, true, true,"
            " now() FROM topics, generate_series(1, $3::int) AS n",
            ACCOUNT,
            REGION,
            FILLED,
        )


async def use(hooks: WebHookStore, worker: Deliver, endpoint: Endpoint, owner: UUID) -> None:
    """A delivery that succeeds, one that fails, and a look at the gauges."""
    for behaviour in (answer(200), answer(500)):
        endpoint.behaviour = behaviour
        await hooks.add(owner, endpoint.url, "a")
        await worker.run_once()
    async with hooks.database.transaction() as tx:
        await web_hook_deliveries.gauges(tx, None)


async def test_deliveries_planned_when_empty_never_scan(
    own_database_dsn: str, clock: StillClock
) -> None:
    clock.instant = None
    database = Database(own_database_dsn, max_connections=1)
    await database.open()
    hooks = WebHookStore(database, clock)
    async with Endpoint(answer(200)).listening() as endpoint:
        throttled = '{"throttlePolicy":{"maxReceivesPerSecond":1000}}'
        owner = await hooks.subscribe(endpoint.url, DeliveryPolicy=throttled)
        worker = hooks.worker()
        for _ in range(6):
            await use(hooks, worker, endpoint, owner)
        await fill(hooks, owner)
        for _ in range(6):
            await use(hooks, worker, endpoint, owner)
        await worker.stop()
    watcher = await watch_afterwards(database)
    rows = await watcher.fetch(
        "SELECT relname, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables"
        " WHERE relname IN ('deliveries', 'subscriptions', 'topics')"
    )
    await watcher.close()
    read = {row["relname"]: row["seq_tup_read"] for row in rows}
    assert max(read.values()) < 500, read
    fetched = {row["relname"]: row["idx_tup_fetch"] for row in rows}
    # The gauges count up to ten thousand of either state, six times; nothing else reads that much.
    assert fetched["deliveries"] < 6 * 2 * 10_000 + FILLED, fetched
    assert fetched["subscriptions"] < 1_000, fetched


async def test_gauges_tell_counts_and_ages(database: Database, clock: StillClock) -> None:
    hooks = WebHookStore(database, clock)
    async with Endpoint(answer(404)).listening() as endpoint:
        first = await hooks.subscribe(endpoint.url)
        await hooks.add(first, endpoint.url, "a")
        worker = hooks.worker()
        await worker.run_once()
        await worker.stop()
        await hooks.add(first, endpoint.url, "b")
        hooks.later(40)
        await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "c", "d")
    async with database.transaction() as tx:
        assert await web_hook_deliveries.gauges(tx, clock.now()) == (3, 1, 40.0)


async def test_gauges_of_nothing_are_zero(database: Database) -> None:
    async with database.transaction() as tx:
        assert await web_hook_deliveries.gauges(tx, None) == (0, 0, 0.0)


async def test_gauges_of_a_large_backlog_are_estimated(
    database: Database, clock: StillClock
) -> None:
    hooks = WebHookStore(database, clock)
    await fill(hooks, await hooks.subscribe("http://127.0.0.1:1/"))
    watcher = await database.connect()
    await watcher.execute("ANALYZE deliveries")
    await watcher.close()
    async with database.transaction() as tx:
        gauges = await web_hook_deliveries.gauges(tx, None)
    assert abs(gauges.pending - FILLED - 500) < FILLED / 10
    assert abs(gauges.exhausted - FILLED) < FILLED / 10
