"""Deliveries to web hooks of the native API: their delays, their content type, what is tried again.

These are "HTTP endpoint returns non-2xx" and "HTTP endpoint unreachable / timeout" of
docs/seeds.md 1.5, and the back-off of docs/seeds.md 1.3.
"""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import pytest

from queuegate.protocol.delivery_policies import EVENT_DELAYS_SECONDS
from tests.scheduler.conftest import ACCOUNT, REGION
from tests.scheduler.endpoints import Behaviour, Endpoint, answer, close_at_once
from tests.scheduler.webhook_store import TOPIC_ARN, WebHookStore

PATTERN_ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:order.#"
SOON = {"healthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 1, "numRetries": 1}}
UNSIGNED = '{\n  "Type" : "Notification",\n  "Signature" : "",\n  "Message" : "ä"\n}'


async def native(hooks: WebHookStore, url: str, **attributes: str) -> UUID:
    """A subscription that the native API made, to a pattern."""
    subscription_id = await hooks.subscribe(url, **attributes)
    async with hooks.database.transaction() as tx:
        await tx.execute("UPDATE subscriptions SET is_native = true")
        await tx.execute("UPDATE topics SET topic_name = 'order.#', is_pattern = true")
    return subscription_id


async def deliver_once(hooks: WebHookStore) -> int:
    worker = hooks.worker()
    count = await worker.run_once()
    await worker.stop()
    return count


async def delays(hooks: WebHookStore) -> list[float]:
    """Tries until the delivery is given up; the seconds before each retry."""
    found: list[float] = []
    for _ in range(20):
        assert await deliver_once(hooks) == 1
        row = await hooks.row()
        if row["state"] == "exhausted":
            return found
        seconds = (row["due_at"] - hooks.clock.instant).total_seconds()
        hooks.later(seconds - 1)
        assert await deliver_once(hooks) == 0
        hooks.later(1)
        found.append(seconds)
    raise AssertionError("it is never given up")


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (answer(500), "HTTP 500"),
        (answer(404), "HTTP 404"),
        (answer(302, headers="Location: /elsewhere\r\n"), "HTTP 302"),
        (close_at_once, "the connection was closed before an answer"),
    ],
)
async def test_whatever_is_no_2xx_is_tried_five_times_and_then_kept(
    hooks: WebHookStore, endpoint: Endpoint, behaviour: Behaviour, error: str
) -> None:
    endpoint.behaviour = behaviour
    await hooks.add(await native(hooks, endpoint.url), endpoint.url, "{}")
    found = await delays(hooks)
    assert len(found) == len(EVENT_DELAYS_SECONDS) == 4
    for seconds, expected in zip(found, (10, 30, 60, 300), strict=True):
        assert expected <= seconds <= expected * 1.1
    assert len(endpoint.requests) == 5
    row = await hooks.row()
    assert (row["state"], row["attempt_count"], row["last_error"]) == ("exhausted", 5, error)
    assert hooks.tally.exhausted_count == 1
    hooks.later(timedelta(days=30).total_seconds())
    assert await deliver_once(hooks) == 0


async def test_a_policy_of_its_own_goes_before_these_delays(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = answer(404)
    subscription_id = await native(hooks, endpoint.url, DeliveryPolicy=json.dumps(SOON))
    await hooks.add(subscription_id, endpoint.url, "{}")
    [seconds] = await delays(hooks)
    assert 1 <= seconds <= 1.1
    assert len(endpoint.requests) == 2


async def test_a_policy_that_says_nothing_of_retries_leaves_the_delays(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = answer(503)
    throttled = '{"throttlePolicy":{"maxReceivesPerSecond":1000}}'
    await hooks.add(await native(hooks, endpoint.url, DeliveryPolicy=throttled), endpoint.url, "{}")
    assert len(await delays(hooks)) == 4


async def test_a_raw_delivery_is_json_and_names_the_subscription(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    """Published under another name than it subscribed to."""
    subscription_id = await native(hooks, endpoint.url)
    await hooks.add(subscription_id, endpoint.url, '{"a":1}')
    await deliver_once(hooks)
    [request] = endpoint.requests
    assert request.body == b'{"a":1}'
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-amz-sns-topic-arn"] == TOPIC_ARN
    assert request.headers["x-amz-sns-subscription-arn"] == f"{PATTERN_ARN}:{subscription_id}"


@pytest.mark.parametrize(
    ("attributes", "is_raw", "content_type"),
    [
        ({}, False, "text/plain; charset=UTF-8"),
        (
            {"DeliveryPolicy": '{"requestPolicy":{"headerContentType":"text/csv"}}'},
            True,
            "text/csv",
        ),
    ],
)
async def test_content_types_of_envelopes_and_of_policies(
    hooks: WebHookStore,
    endpoint: Endpoint,
    attributes: dict[str, str],
    is_raw: bool,
    content_type: str,
) -> None:
    subscription_id = await native(hooks, endpoint.url, **attributes)
    await hooks.add(subscription_id, endpoint.url, UNSIGNED, is_raw=is_raw)
    await deliver_once(hooks)
    [request] = endpoint.requests
    assert request.headers["content-type"] == content_type


async def test_a_subscription_of_sns_keeps_its_own_ways(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = answer(404)
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "{}")
    assert await delays(hooks) == []
    assert endpoint.requests[0].headers["content-type"] == "text/plain; charset=UTF-8"
