"""Series of a queue end with the queue, and readiness reports lanes that hang."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queuegate.gateway.metrics import scraping as metrics_page
from queuegate.gateway.metrics.scraping import MetricsPage
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.logs.consumer_groups import delete_group
from queuegate.gateway.operations.queues.queues import TitledQueue, create_titled
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.telemetry import series as counters
from queuegate.gateway.operations.telemetry.series import GroupNumbers, Series, TopicNumbers
from queuegate.gateway.pages import operator_pages as pages
from queuegate.storage.model import ConsumerGroup, ConsumerGroupSettings, LogRetention, StoredLog
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics import stored_topics
from tests.operations.conftest import ACCOUNT, REGION, MakeQueue, SendTo
from tests.operations.log_groups import Orders
from tests.operations.sqs import delete_queue
from tests.operations.topics_and_subscriptions import Sns
from tests.operations.world import World


@pytest.fixture
def metrics(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> MetricsPage:
    """A page that asks the database each time."""
    monkeypatch.setattr(metrics_page, "_REFRESH_SECONDS", -1.0)
    return MetricsPage(engine, None, 0)


async def test_the_series_of_a_deleted_queue_end_when_they_rest(
    engine: Engine, caller: Caller, metrics: MetricsPage, make_queue: MakeQueue, send: SendTo
) -> None:
    kept, gone = await make_queue("kept"), await make_queue("gone")
    for queue in (kept, gone):
        await send(queue)
    await delete_queue(engine, caller, gone)
    sample = (
        f'queue_messages_sent_total{{{{account="{ACCOUNT}",queue="{{}}",region="{REGION}"}}}} 1.0'
    )
    # The first page after a use has its numbers, whatever became of the queue.
    page = (await metrics.render()).decode()
    assert sample.format("kept") in page
    assert sample.format("gone") in page
    page = (await metrics.render()).decode()
    assert sample.format("kept") in page
    assert 'queue="gone"' not in page
    assert list(engine.series.queues) == [kept.queue_id]


async def test_a_scrape_may_name_what_it_wants(world: World, metrics: MetricsPage) -> None:
    """By the name of a metric or of a sample of it, as Prometheus' library for Python has it."""
    await world.send(await world.make_queue("named"))

    async def named(*names: str) -> set[str]:
        page = (await metrics.render(metrics_page.Scrape(frozenset(names)))).decode()
        return set(re.findall("^# HELP (\\S+)", page, re.MULTILINE))

    assert await named("queue_depth", "queue_messages_sent_total") == {
        "queue_depth",
        "queue_messages_sent_total",
    }
    assert await named("queue_message_age_at_receive_seconds_bucket", "process_open_fds") == {
        "queue_message_age_at_receive_seconds",
        "process_open_fds",
    }
    assert await named("unheard_of") == set()
    assert {"queue_depth", "db_pool_size", "queue_messages_sent_total"} < await named()


async def test_a_worker_that_is_asked_by_its_sibling_forgets_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "_REFRESH_SECONDS", -1.0)
    asked = MetricsPage(world.engine, tmp_path, 1)
    queue = await world.make_queue("gone")
    await world.send(queue)
    await delete_queue(world.engine, world.caller, queue)
    async with asked.shared():
        for _ in range(100):
            await metrics_page._ask(tmp_path / "metrics-1", b"\n")
            if not world.engine.series.queues:
                break
    assert world.engine.series.queues == {}


async def test_of_a_worker_that_hangs_the_page_before_counts(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    over = asyncio.Event()

    async def sibling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readline()
        asked += 1
        if asked > 1:
            await over.wait()
        writer.write(b"# TYPE queuegate_db_pool_size gauge\nqueuegate_db_pool_size 1000.0\n")
        writer.close()

    page = MetricsPage(engine, tmp_path, 1)
    path = tmp_path / "metrics-2"
    server = await asyncio.start_unix_server(sibling, path)
    first = _pool_size(await page.render())
    assert first > 1000
    monkeypatch.setattr(metrics_page, "_PATIENCE_SECONDS", 0.05)
    assert _pool_size(await page.render()) == first
    over.set()
    server.close()
    await server.wait_closed()
    # Nobody listens there any more: that worker is dead, and what it counted is gone with it.
    assert _pool_size(await page.render()) == first - 1000


def _pool_size(page: bytes) -> float:
    line = next(
        line for line in page.decode().splitlines() if line.startswith("queuegate_db_pool_size ")
    )
    return float(line.split()[1])


async def test_without_the_database_the_page_has_what_this_process_knows(
    engine: Engine, metrics: MetricsPage, make_queue: MakeQueue, send: SendTo
) -> None:
    await send(await make_queue("kept"))
    await metrics.render()
    await engine.database.close()
    page = (await metrics.render()).decode()
    assert 'queue="kept"' in page
    assert "queue_depth{" not in page


async def test_gauges_say_how_full_a_queue_with_a_title_is_and_go_with_it(
    world: World, metrics: MetricsPage
) -> None:
    queue = await create_titled(world.engine, world.caller, TitledQueue("orders", 30, None, 1))
    await world.make_queue("untitled")

    async def gauges() -> dict[tuple[str, str], float]:
        page = (await metrics.render()).decode()
        found = re.findall(r'^simplemq_queue_(\w+){.*queue="([^"]+)".*} (.*)$', page, re.MULTILINE)
        return {(gauge, name): float(value) for gauge, name, value in found}

    for _ in range(3):
        await world.send(queue)
    await world.receive(queue, 1)
    world.clock.move_on(20)
    assert await gauges() == {
        ("depth", "orders"): 3,
        ("inflight", "orders"): 1,
        ("oldest_message_age_seconds", "orders"): 20,
    }
    world.clock.move_on(20)
    await world.receive(queue)
    assert {name for _, name in await gauges()} == {"orders", "orders-dead-letters"}
    world.engine.series.tried(queue, "enqueue", "success")
    await delete_queue(world.engine, world.caller, queue)
    await metrics.render()
    page = (await metrics.render()).decode()
    assert 'queue="orders' not in page
    assert world.engine.series.tries == {}


async def test_there_is_room_for_new_queues_after_others_were_forgotten(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "MOST_QUEUES", 1)
    queues: list[Queue] = [await make_queue(name) for name in ("a", "b", "c")]
    series = Series()
    names = [one.name for one in series.shown_queues()]
    series.sent(queues[0], 1, 0.0)
    names += [one.name for one in series.shown_queues()]
    assert names == ["a"]
    series.sent(queues[1], 1, 0.0)
    assert [one.name for one in series.shown_queues()] == ["a", "_other"]
    series.forget(queues[0].queue_id)
    series.sent(queues[2], 1, 0.0)
    assert [one.name for one in series.shown_queues()] == ["c", "_other"]


async def test_queues_that_were_used_are_not_looked_at(make_queue: MakeQueue) -> None:
    queue = await make_queue("a")
    series = Series()
    series.deleted(queue, 1, 0.0)
    assert series.unused_queues() == []
    series.received(queue, [], 0.0)
    assert series.unused_queues() == []
    assert series.unused_queues() == [queue.queue_id]


async def test_the_series_of_a_deleted_topic_end_when_they_rest(
    engine: Engine, caller: Caller, metrics: MetricsPage
) -> None:
    sns = Sns(engine, caller)
    for name in ("kept", "gone"):
        await sns.publish(await sns.topic(name))
    async with engine.database.transaction() as tx:
        await tx.execute("DELETE FROM topics WHERE topic_name = 'gone'")
    assert await _shown_topics(metrics) == {"kept", "gone"}
    assert await _shown_topics(metrics) == {"kept"}


async def _shown_topics(metrics: MetricsPage) -> set[str]:
    page = (await metrics.render()).decode()
    return set(re.findall('^queuegate_topic_messages_published_total.*topic="([^"]+)"', page, re.M))


async def test_topics_above_the_most_are_counted_together(engine: Engine, caller: Caller) -> None:
    sns = Sns(engine, caller)
    first, second = [await sns.topic(name) for name in ("first", "second")]
    numbers = TopicNumbers(1)
    numbers.of(first).published += 1
    assert [one.name for one in numbers.shown()] == ["first"]
    numbers.of(second).published += 1
    numbers.of_delivery(ACCOUNT, REGION, "third").attempts_failed += 1
    assert [one.labels() for one in numbers.shown()] == [
        (ACCOUNT, REGION, "first"),
        ("_other", "_other", "_other"),
    ]
    numbers.forget(first.arn)
    numbers.of(second).published += 1
    assert {one.name: one.uses() for one in numbers.shown()} == {"second": 1, "_other": 2}


async def test_groups_above_the_most_are_counted_together() -> None:
    log = StoredLog(1, ACCOUNT, REGION, "orders", datetime.now(UTC), None, LogRetention())
    first, second = [
        ConsumerGroup(n, 1, f"g{n}", log.created_at, ConsumerGroupSettings()) for n in range(2)
    ]
    numbers = GroupNumbers(1)
    numbers.of(log, first).fed += 1
    numbers.of(log, second).dead_lettered += 1
    assert [one.labels() for one in numbers.shown()] == [
        (ACCOUNT, REGION, "orders", "g0"),
        ("_other", "_other", "_other", "_other"),
    ]


async def test_the_series_of_a_deleted_group_end_when_they_rest(
    engine: Engine, caller: Caller, metrics: MetricsPage
) -> None:
    orders = Orders(engine, caller)
    await orders.publish("1")
    for name in ("kept", "gone"):
        consumer = await orders.consumer(group=name)
        assert await consumer.fetch()
    await delete_group(engine, consumer.log, "gone")

    async def shown() -> set[str]:
        page = (await metrics.render()).decode()
        return set(re.findall('^queuegate_log_records_delivered.*group="([^"]+)"', page, re.M))

    assert await shown() == {"kept", "gone"}
    assert await shown() == {"kept"}


async def test_routing_keys_have_no_series_of_their_own() -> None:
    numbers = TopicNumbers(10)
    for key in ("orders.created", "orders.paid"):
        numbers.of(stored_topics.passing(ACCOUNT, REGION, key)).published += 1
        numbers.of_delivery(ACCOUNT, REGION, key).attempts_succeeded += 1
    numbers.of_delivery(ACCOUNT, REGION, "orders.fifo").attempts_succeeded += 1
    assert {one.name: one.uses() for one in numbers.shown()} == {"_events": 4, "orders.fifo": 1}


async def test_waits_for_a_connection_in_vain_are_exported(
    engine: Engine, metrics: MetricsPage
) -> None:
    engine.database.acquire_timeouts = 3
    assert b"db_pool_acquire_timeouts_total 3.0" in await metrics.render()


async def _ready(page: pages._Pages) -> tuple[int, dict[str, str]]:
    request: Any = None
    response = await page.readyz(request)
    return response.status_code, json.loads(bytes(response.body))


@pytest.fixture
def page(engine: Engine, metrics: MetricsPage) -> pages._Pages:
    return pages._Pages(engine, metrics, lambda _: True)


async def test_a_gateway_whose_lane_hangs_is_not_ready(
    world: World, page: pages._Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await world.make_queue("orders")
    assert await _ready(page) == (200, {"status": "ok"})
    async with world.engine.database.transaction() as tx:
        await tx.execute("LOCK TABLE messages")
        flushing = asyncio.Event()
        world.engine.standard.send.observe = lambda _: flushing.set()
        sending = asyncio.ensure_future(world.send(queue))
        await flushing.wait()
        assert (await _ready(page))[0] == 200
        monkeypatch.setattr(pages, "_STUCK_SECONDS", 0.0)
        status, answer = await _ready(page)
        assert status == 503
        assert answer["reason"].endswith(": send.")
    await sending
    assert await _ready(page) == (200, {"status": "ok"})


async def test_a_database_that_does_not_answer_is_not_ready(
    engine: Engine, page: pages._Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_READY_SECONDS", 0.05)
    async with engine.database.transaction() as tx:
        await tx.execute("LOCK TABLE settings")
        for _ in range(3):
            assert (await _ready(page))[0] == 503
        # However often somebody asks, one question is under way.
        assert engine.database.pool_counts()[0] <= 2
    monkeypatch.undo()
    assert await _ready(page) == (200, {"status": "ok"})


async def test_a_database_that_is_away_is_not_ready(engine: Engine, page: pages._Pages) -> None:
    await engine.database.close()
    with pytest.raises(Unavailable) as unavailable:
        async with engine.database.transaction():
            pass
    assert await _ready(page) == (
        503,
        {"status": "degraded", "reason": str(unavailable.value)},
    )


async def test_scrapes_at_once_share_a_rendering(
    metrics: MetricsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that want the same do; of others one is rendered after the other."""
    running = most = count = 0
    render = metrics._render

    async def counted(scrape: metrics_page.Scrape) -> bytes:
        nonlocal running, most, count
        running, count = running + 1, count + 1
        most = max(most, running)
        try:
            return await render(scrape)
        finally:
            running -= 1

    monkeypatch.setattr(metrics, "_render", counted)
    total = metrics_page.Scrape(in_total=True)
    pages = await asyncio.gather(*[metrics.render() for _ in range(5)], metrics.render(total))
    assert len({*pages[:5]}) == 1
    assert (count, most) == (2, 1)
    await metrics.render()
    assert count == 3


async def test_queues_beyond_some_share_histograms(
    engine: Engine, metrics: MetricsPage, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "MOST_TIMED_QUEUES", 1)
    for name in ("own", "first", "second"):
        engine.series.sent(await make_queue(name), 2, 0.0)
    page = (await metrics.render()).decode()
    sent = re.findall(r'^queue_messages_sent_total{.*queue="(\w+)".* 2.0$', page, re.MULTILINE)
    assert sorted(sent) == ["first", "own", "second"]
    found = re.findall(
        r'^queue_message_send_duration_seconds_count{.*queue="(\w+)".* (\S+)$', page, re.MULTILINE
    )
    assert dict(found) == {"own": "1.0", "_other": "2.0"}
