"""Publishing while subscriptions come, go and change: never an error, and nothing after the end."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faces.clients import Refused
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.test_publish import RAW

pytestmark = pytest.mark.timeout(120)

ROUNDS = 15


class Publishers:
    """Threads that publish numbers to a topic until they are stopped."""

    def __init__(self, server: Server, account: str, topic: str, *, fifo: bool = False) -> None:
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._topic = topic
        self._fifo = fifo
        self.published: list[str] = []
        self.statuses: Counter[int] = Counter()
        self._pool = ThreadPoolExecutor(4)
        wires = ("query", "query-long", "json", "json-long")
        self._clients = [Sns(wire, server.url, account) for wire in wires]
        self._running = [self._pool.submit(self._publish, sns) for sns in self._clients]

    def _publish(self, sns: Sns) -> None:
        while not self._stop.is_set():
            message = str(next(self._numbers))
            members = {"MessageGroupId": "g"} if self._fifo else {}
            try:
                sns.publish(self._topic, message, **members)
            except Refused as refused:
                self.statuses[refused.status] += 1
            else:
                self.statuses[200] += 1
                self.published.append(message)

    def __enter__(self) -> Publishers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for running in self._running:
            running.result(60)
        self._pool.shutdown()
        for sns in self._clients:
            sns.close()


@pytest.fixture
def news(server: Server) -> Iterator[Sns]:
    with Sns("query", server.url) as sns:
        yield sns


def everything(sns: Sns, url: str) -> list[str]:
    found: list[str] = []
    while received := sns.sqs().receive(url):
        found += [message["Body"] for message in received]
        sns.sqs().delete(url, *received)
    return found


def test_subscriptions_come_and_go(server: Server, news: Sns) -> None:
    """Fifteen subscriptions, each changed four times under load."""
    topic = news.create()
    always = news.subscribe_queue(topic, "always", **RAW)
    sqs = news.sqs()
    url = sqs.create("sometimes")
    with Publishers(server, news.account, topic) as publishers:
        for round_number in range(ROUNDS):
            arn = news.subscribe(topic, "sqs", sqs.arn(url), **RAW)
            for name, value in (
                ("FilterPolicy", '{"a":[{"exists":false}]}'),
                ("RawMessageDelivery", "false"),
                ("RawMessageDelivery", "true"),
                ("FilterPolicy", "{}"),
            ):
                members = {"AttributeName": name, "AttributeValue": value}
                news.call("SetSubscriptionAttributes", SubscriptionArn=arn, **members)
            # This gateway knows of the subscription: what is published now reaches it.
            news.publish(topic, f"in {round_number}")
            news.call("Unsubscribe", SubscriptionArn=arn)
            news.publish(topic, f"out {round_number}")
    assert set(publishers.statuses) == {200}
    got = everything(news, url)
    assert [one for one in got if one.startswith("out")] == []
    assert sorted(one for one in got if one.startswith("in")) == sorted(
        f"in {number}" for number in range(ROUNDS)
    )
    # Whoever stayed missed nothing and got nothing twice.
    numbers = [one for one in everything(news, always) if one.isdigit()]
    assert sorted(numbers) == sorted(publishers.published)


def test_a_topic_comes_and_goes(server: Server, news: Sns) -> None:
    topic = news.create()
    url = news.subscribe_queue(topic, "orders", **RAW)
    with Publishers(server, news.account, topic) as publishers:
        for number in range(ROUNDS):
            news.call("DeleteTopic", TopicArn=topic)
            refused = news.refusal("Publish", TopicArn=topic, Message="never")
            assert (refused.status, refused.code) == (404, "NotFound")
            assert news.create() == topic
            news.publish(topic, f"nobody {number}")
            news.subscribe(topic, "sqs", news.sqs().arn(url), **RAW)
            news.publish(topic, f"all {number}")
    assert set(publishers.statuses) <= {200, 404}
    got = everything(news, url)
    assert len(set(got)) == len(got)
    assert sorted(one for one in got if not one.isdigit()) == sorted(
        f"all {number}" for number in range(ROUNDS)
    )
    assert {one for one in got if one.isdigit()} <= set(publishers.published)


def test_queues_come_and_go(relaxed_server: Server) -> None:
    """A copy that cannot reach its queue goes to the dead-letter queue, once."""
    with Sns("query", relaxed_server.url) as news:
        sqs = news.sqs()
        dead = sqs.create("dead")
        redrive = f'{{"deadLetterTargetArn":"{sqs.arn(dead)}"}}'
        topic = news.create()
        url = news.subscribe_queue(topic, "orders", RedrivePolicy=redrive, **RAW)
        always = news.subscribe_queue(topic, "always", **RAW)
        taken: list[str] = []
        with Publishers(relaxed_server, news.account, topic) as publishers:
            for _ in range(10):
                taken += everything(news, dead)
                sqs.call("DeleteQueue", QueueUrl=url)
                news.publish(topic, "into the dead-letter queue")
                assert sqs.create("orders") == url
        assert set(publishers.statuses) == {200}
        taken += everything(news, dead)
        assert taken.count("into the dead-letter queue") == 10
        assert len([one for one in taken if one.isdigit()]) == len(set(taken)) - 1
        numbers = [one for one in everything(news, always) if one.isdigit()]
        assert sorted(numbers) == sorted(publishers.published)


def test_the_order_of_a_group_is_the_same_in_queues_that_come_and_go(
    server: Server, news: Sns
) -> None:
    topic = news.create_fifo()
    always = news.subscribe_queue(topic, "always.fifo", **RAW)
    sqs = news.sqs()
    url = sqs.create_fifo("sometimes.fifo")
    with Publishers(server, news.account, topic, fifo=True) as publishers:
        for _ in range(ROUNDS):
            arn = news.subscribe(topic, "sqs", sqs.arn(url), **RAW)
            for number in range(3):
                news.publish(topic, f"{arn} {number}", MessageGroupId="g")
            news.call("Unsubscribe", SubscriptionArn=arn)
    assert set(publishers.statuses) == {200}
    all_of_them, some = everything(news, always), everything(news, url)
    places = {message: place for place, message in enumerate(all_of_them)}
    assert len(places) == len(all_of_them)
    assert {one for one in all_of_them if one.isdigit()} == set(publishers.published)
    assert [places[one] for one in some] == sorted(places[one] for one in some)
    assert len([one for one in some if not one.isdigit()]) == 3 * ROUNDS
