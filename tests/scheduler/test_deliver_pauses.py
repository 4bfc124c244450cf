"""Pauses of subscriptions and topics: their deliveries wait as rows that nobody claims."""

from __future__ import annotations

import pytest

from queuegate.storage.topics import stored_topics, subscriptions
from tests.scheduler.endpoints import Endpoint, answer
from tests.scheduler.webhook_store import WebHookStore
from tests.waiting import until_so


async def set_paused(hooks: WebHookStore, what: str, subscription_id: object, paused: bool) -> None:
    async with hooks.database.transaction() as tx:
        found = await subscriptions.find(tx, subscription_id, hooks.clock.now())  # type: ignore[arg-type]
        assert found is not None
        if what == "topic":
            await stored_topics.set_paused(tx, hooks.clock.now(), found.topic_id, is_paused=paused)
        else:
            await subscriptions.set_paused(tx, hooks.clock.now(), found, is_paused=paused)


@pytest.mark.parametrize("what", ["topic", "subscription"])
async def test_deliveries_wait_for_the_end_of_a_pause(hooks: WebHookStore, what: str) -> None:
    async with Endpoint(answer(200)).listening() as endpoint:
        subscription_id = await hooks.subscribe(endpoint.url)
        await hooks.add(subscription_id, endpoint.url, "a", "b")
        await set_paused(hooks, what, subscription_id, True)
        worker = hooks.worker()
        worker.start()
        # A look finds them, and gives them up again: nothing is leased.
        for _ in range(3):
            assert await worker.run_once() == 0
        rows = await hooks.rows()
        assert [(row["is_leased"], row["attempt_count"]) for row in rows] == [(False, 0)] * 2
        await set_paused(hooks, what, subscription_id, False)
        worker.wake()
        await until_so(lambda: len(endpoint.requests) == 2)
        await worker.stop()
    assert await hooks.rows() == []


async def test_others_go_on_during_a_pause(hooks: WebHookStore) -> None:
    async with (
        Endpoint(answer(200)).listening() as endpoint,
        Endpoint(answer(200)).listening() as other,
    ):
        paused = await hooks.subscribe(endpoint.url)
        await hooks.add(paused, endpoint.url, *["a"] * 50)
        await set_paused(hooks, "subscription", paused, True)
        for _ in range(3):
            await hooks.add(await hooks.subscribe(other.url), other.url, "b")
        worker = hooks.worker(concurrency=2)
        worker.start()
        await until_so(lambda: len(other.requests) == 3)
        await worker.stop()
    assert endpoint.requests == []
    assert len(await hooks.rows()) == 50
