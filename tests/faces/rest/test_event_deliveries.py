"""Web hooks of events through a running gateway: the back-off, and what other processes hear.

A web hook that fails is tried again after 10, 30, 60 and 300 seconds, and stays after five attempts
(docs/seeds.md 1.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

import pytest

from tests.faces.clients import new_account
from tests.faces.rest.client import Rest
from tests.faces.rest.test_events import of_pattern, place, publish, subscribe
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.test_publish_processes import urls
from tests.faces.web_hooks import WebHook
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

__all__ = ["urls"]


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A gateway whose clock nobody else moves."""
    with Server() as server:
        yield server


def instant(server: Server) -> datetime:
    return datetime.fromisoformat(server.now())


def next_request(server: Server, hook: WebHook, step: float) -> tuple[datetime, datetime]:
    """Moves the clock until the next request comes; between which times it came."""
    before = instant(server)
    for _ in range(100):
        server.advance(step)
        moved = instant(server)
        if hook.next_within(0.1) is not None:
            return before, instant(server)
        before = moved
    raise AssertionError("it never comes")


def test_what_fails_comes_again_after_10_30_60_and_300_seconds(
    own_server: Server, hook: WebHook
) -> None:
    """Moves the clock in tenths of each delay, with a look at each."""
    hook.statuses += [500, 404, 302, 503, 500]
    with Rest(own_server.url) as rest:
        subscribe(rest, "order.#", endpoint=hook.url)
        failed_after = instant(own_server)
        publish(rest, "order.created", {"n": 1})
    assert hook.next().body == b'{"n": 1}'
    for delay in (10, 30, 60, 300):
        after, before = next_request(own_server, hook, delay / 10)
        # How much later depends on this machine; tests/seed has the times that are recorded.
        assert (before - failed_after).total_seconds() >= delay
        failed_after = after
    own_server.until("queue_delivery_exhausted_total", 1)
    own_server.advance(100_000)
    assert hook.next_within(0.3) is None


def test_a_policy_of_its_own_goes_first_and_its_queue_gets_the_rest(
    rest: Rest, hook: WebHook
) -> None:
    hook.statuses += [500, 500]
    rest.create("buried")
    policy = {"healthyRetryPolicy": {"numRetries": 1, "numNoDelayRetries": 1}}
    subscribe(rest, "a.b", endpoint=hook.url, delivery_policy=policy, dead_letter_queue="buried")
    publish(rest, "a.b", "x", headers={"tenant": "acme"})
    assert [hook.next().body, hook.next().body] == [b'"x"', b'"x"']
    [buried] = rest.receive("buried", wait=10)
    assert (buried["message"], buried["headers"]) == ("x", {"tenant": "acme"})


class Pair(NamedTuple):
    """The same account through two gateways."""

    one: Rest
    other: Rest


@pytest.fixture
def pair(urls: list[str]) -> Iterator[Pair]:
    account = new_account()
    with Rest(urls[0], account) as one, Rest(urls[1], account) as other:
        yield Pair(one, other)


def reaches(rest: Rest, key: str, count: int) -> Callable[[], bool]:
    """Return a check that publishes an event and expects so many copies."""
    return lambda: publish(rest, key)["queues_matched"] == count


def test_a_new_pattern_and_its_end_are_heard_elsewhere(pair: Pair) -> None:
    pair.one.create("jobs")
    for key in ("order.created", "orders"):
        assert reaches(pair.other, key, 0)()
    first = subscribe(pair.one, "order.*", queue_name="jobs")
    until(reaches(pair.other, "order.created", 1))
    second = subscribe(pair.one, "#", queue_name="jobs")
    until(reaches(pair.other, "order.created", 2))
    until(reaches(pair.other, "orders", 1))
    pair.one.call("DELETE", f"{place('#')}/{second['id']}", status=204)
    until(reaches(pair.other, "order.created", 1))
    until(reaches(pair.other, "orders", 0))
    pair.one.call("DELETE", f"{place('order.*')}/{first['id']}", status=204)
    until(reaches(pair.other, "order.created", 0))


def test_patterns_reach_what_sns_publishes_elsewhere(pair: Pair) -> None:
    pair.one.create("jobs")
    with Sns("query", pair.other.url, pair.other.account) as sns:
        topic = sns.create("orders")
        sns.publish(topic, "early")
        subscribe(pair.one, "#", queue_name="jobs")

        def arrives() -> bool:
            sns.publish(topic, "late")
            return bool(pair.one.receive("jobs"))

        until(arrives)


def test_a_topic_made_elsewhere_is_found(pair: Pair) -> None:
    assert reaches(pair.other, "orders", 0)()
    with Sns("query", pair.one.url, pair.one.account) as sns:
        sns.subscribe_queue(sns.create("orders"), "jobs")
    until(reaches(pair.other, "orders", 1))


def test_changes_of_a_patterns_subscription_are_heard_elsewhere(pair: Pair) -> None:
    pair.one.create("jobs")
    made = subscribe(pair.one, "a.*", queue_name="jobs")
    until(reaches(pair.other, "a.b", 1))
    with Sns("query", pair.one.url, pair.one.account) as sns:
        change = {"AttributeName": "FilterPolicy", "AttributeValue": json.dumps({"x": ["y"]})}
        sns.call("SetSubscriptionAttributes", SubscriptionArn=made["subscription_arn"], **change)
    until(reaches(pair.other, "a.b", 0))
    [shown] = of_pattern(pair.other, "a.*")
    assert shown["filter_policy"] == {"x": ["y"]}
