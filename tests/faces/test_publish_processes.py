"""Two gateways on one database: what one changes holds for publishes through the other.

The other is told; a change that it was not told of would never show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.cli.processes import Gateway
from tests.databases import Databases
from tests.faces.clients import new_account
from tests.faces.servers import Background, Server
from tests.faces.sns_client import Sns
from tests.faces.test_publish import RAW, text
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

_NEVER_LOOKED_SECONDS = 0.5


class Pair(NamedTuple):
    """The same account through two gateways."""

    one: Sns
    other: Sns


@pytest.fixture(scope="module")
def urls(databases: Databases) -> Iterator[list[str]]:
    settings = {
        "DATABASE_URL": databases.copy(),
        "QUEUEGATE_LOG_LEVEL": "error",
        "QUEUEGATE_QUEUE_RECREATE_SECONDS": "0",
    }
    with Gateway(**settings) as one, Gateway(**settings) as other:
        yield [one.url, other.url]


@pytest.fixture
def pair(urls: list[str]) -> Iterator[Pair]:
    account = new_account()
    with Sns("query", urls[0], account) as one, Sns("query", urls[1], account) as other:
        yield Pair(one, other)


def gets(sns: Sns, topic: str, url: str, **members: Any) -> Callable[[], bool]:
    """Return a check that publishes a message and expects it in the queue."""

    def attempt() -> bool:
        sns.publish(topic, "x", **members)
        sqs = sns.sqs()
        received = sqs.receive(url)
        sqs.delete(url, *received)
        return bool(received)

    return attempt


def test_a_new_subscription(pair: Pair) -> None:
    topic = pair.one.create()
    pair.other.publish(topic)
    url = pair.one.subscribe_queue(topic, "orders")
    until(gets(pair.other, topic, url))


def test_the_end_of_a_subscription(pair: Pair) -> None:
    topic = pair.one.create()
    url = pair.one.subscribe_queue(topic, "orders")
    until(gets(pair.other, topic, url))
    [found] = pair.one.call("ListSubscriptionsByTopic", TopicArn=topic)["Subscriptions"]
    pair.one.call("Unsubscribe", SubscriptionArn=found["SubscriptionArn"])
    arrives = gets(pair.other, topic, url)
    until(lambda: not arrives())


def test_a_changed_filter(pair: Pair) -> None:
    topic = pair.one.create()
    queue = pair.one.sqs()
    url = queue.create()
    arn = pair.one.subscribe(topic, "sqs", queue.arn(url), FilterPolicy='{"a":["b"]}')
    good = gets(pair.other, topic, url, MessageAttributes={"a": text("b")})
    bad = gets(pair.other, topic, url, MessageAttributes={"a": text("c")})
    assert good()
    assert not bad()
    changed = {"AttributeName": "FilterPolicy", "AttributeValue": '{"a":["c"]}'}
    pair.one.call("SetSubscriptionAttributes", SubscriptionArn=arn, **changed)
    until(bad)
    assert not good()


def test_a_changed_topic(pair: Pair) -> None:
    topic = pair.one.create()
    url = pair.one.subscribe_queue(topic, "orders")
    until(gets(pair.other, topic, url))
    pair.one.set(topic, "SignatureVersion", "2")

    def is_signed_anew() -> bool:
        pair.other.publish(topic)
        [body] = pair.other.sqs().bodies(url)
        return bool(json.loads(body)["SignatureVersion"] == "2")

    until(is_signed_anew)


def test_a_deleted_topic_and_one_made_again(pair: Pair) -> None:
    topic = pair.one.create()
    pair.other.publish(topic)
    pair.one.call("DeleteTopic", TopicArn=topic)

    def status() -> int:
        return pair.other.ask("Publish", {"TopicArn": topic, "Message": "x"}).status

    until(lambda: status() == 404)
    url = pair.one.subscribe_queue(pair.one.create(), "orders")
    until(gets(pair.other, topic, url))


def test_a_deleted_queue_and_one_made_again(pair: Pair) -> None:
    sqs = pair.one.sqs()
    dead = sqs.create("dead")
    topic = pair.one.create()
    redrive = json.dumps({"deadLetterTargetArn": sqs.arn(dead)})
    url = pair.one.subscribe_queue(topic, "orders", RedrivePolicy=redrive)
    until(gets(pair.other, topic, url))
    sqs.call("DeleteQueue", QueueUrl=url)
    # The transaction itself notices: no copy is lost, however late the notification is.
    for _ in range(5):
        pair.other.publish(topic, "dead")
    assert len(sqs.receive(dead)) == 5
    assert sqs.create("orders") == url
    until(gets(pair.other, topic, url))


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_a_receive_parked_at_the_other_gateway_is_woken(pair: Pair, kind: str) -> None:
    if kind == "fifo":
        topic = pair.one.create_fifo()
        url = pair.one.subscribe_queue(topic, "orders.fifo", **RAW)
    else:
        topic = pair.one.create()
        url = pair.one.subscribe_queue(topic, "orders", **RAW)
    taken = []
    for number in range(8):
        poll = Background(pair.one.sqs().receive, url, WaitTimeSeconds=20)
        _until_parked(pair.one.url)
        begun = time.monotonic()
        more = {"MessageGroupId": str(number)} if kind == "fifo" else {}
        pair.other.publish(topic, str(number), **more)
        assert [one["Body"] for one in poll.result()] == [str(number)]
        taken.append(time.monotonic() - begun)
    # Whoever is not woken looks after nearly a second.
    assert sorted(taken)[3] < _NEVER_LOOKED_SECONDS, taken


def _until_parked(url: str) -> None:
    """Look at the gateway's own numbers until a receive waits there."""
    watched = Server.__new__(Server)
    watched.url = url
    watched.until_parked()


def test_every_worker_of_a_gateway_hears_of_a_subscription() -> None:
    with Server("--workers", "2") as server, Sns("query", server.url) as first:
        others = [first.other() for _ in range(12)]
        topic = first.create()
        for sns in others:
            sns.publish(topic)
        url = first.subscribe_queue(topic, "orders", **RAW)
        for number, sns in enumerate(others):
            until(gets(sns, topic, url, Subject=str(number)))
        for sns in others:
            sns.close()
