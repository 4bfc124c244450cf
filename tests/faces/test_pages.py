"""/livez, /readyz and /metrics: what probes and Prometheus see."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.servers import Background, Server
from tests.faces.sns_client import PUBLISH_WIRES, Sns
from tests.faces.web_hooks import WebHook
from tests.seed.pages import Page

QUEUE_COUNTERS = (
    "queue_messages_sent_total",
    "queue_messages_received_total",
    "queue_messages_deleted_total",
    "queue_messages_redelivered_total",
)
HISTOGRAMS = (
    "queue_message_send_duration_seconds",
    "queue_message_receive_duration_seconds",
    "queue_message_delete_duration_seconds",
    "queue_message_age_at_receive_seconds",
)
OTHERS = (
    "http_requests_total",
    "http_request_duration_seconds_bucket",
    "http_connections_active",
    "queue_coalescer_flush_batch_size_bucket",
    "db_pool_size",
    "db_pool_active",
    "db_pool_idle",
    "db_pool_acquire_timeouts_total",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A gateway of this module: one with a thousand queues counts new ones together."""
    with Server() as running:
        yield running


def test_probes_need_no_credentials(server: Server) -> None:
    live = fetch(server.url, "/livez")
    assert live.status == 200
    assert json.loads(live.body)["status"] == "ok"
    ready = fetch(server.url, "/readyz")
    assert (ready.status, json.loads(ready.body)) == (200, {"status": "ok"})
    metrics = fetch(server.url, "/metrics")
    assert metrics.status == 200
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_the_metrics_of_the_queue_and_of_http_are_there(json_sqs: Sqs, server: Server) -> None:
    name = f"counted-{json_sqs.account}"
    url = json_sqs.create(name)
    for number in range(3):
        json_sqs.send(url, str(number))
    json_sqs.receive(url, 1, VisibilityTimeout=0)
    json_sqs.delete(url, *json_sqs.receive(url, 2))
    text = server.metrics()
    values = (3, 3, 2, 1)
    own = f'account="{json_sqs.account}"'
    labels = f'queue="{name}",region="us-east-1"'
    for metric, value in zip(QUEUE_COUNTERS, values, strict=True):
        assert f"{metric}{{{own},{labels}}} {value}.0" in text
    for metric in HISTOGRAMS:
        assert f'{metric}_bucket{{{own},le="+Inf",{labels}}}' in text
    for metric in OTHERS:
        assert re.search(rf"^{metric}(\{{| )", text, re.MULTILINE), metric


def test_http_metrics_count_actions_and_statuses(sqs: Sqs, server: Server) -> None:
    url = sqs.create()
    sqs.receive(url)
    ok = 'queuegate_actions_total{action="ReceiveMessage",status="200"}'
    bad = 'queuegate_actions_total{action="ReceiveMessage",status="400"}'
    all_ok = 'http_requests_total{method="POST",path="/",status="200"}'
    before = [server.metric(sample) for sample in (ok, bad, all_ok)]
    for _ in range(3):
        sqs.receive(url)
    sqs.refusal("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=11)
    after = [server.metric(sample) for sample in (ok, bad, all_ok)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [3, 1, 3]


def test_requests_in_flight_are_counted(sqs: Sqs, server: Server) -> None:
    url = sqs.create()
    idle = server.metric("http_connections_active")
    poll = Background(sqs.receive, url, 1, WaitTimeSeconds=20)
    server.until_parked()
    assert server.metric("http_connections_active") == idle + 1
    sqs.send(url)
    assert poll.result()
    server.until("http_connections_active", idle)


def test_names_of_queues_as_labels_do_not_grow_with_paths(server: Server) -> None:
    for number in range(5):
        fetch(server.url, f"/somewhere/{number}/else")
    assert "/somewhere" not in server.metrics("http_requests")


def test_depths_appear_and_vanish_with_their_queue() -> None:
    """Depths are read anew at most every ten seconds, so each look has a gateway of its own."""
    with Server() as server, Sqs("json", server.url) as sqs:
        kept, gone = sqs.create("kept"), sqs.create("gone")
        for url in (kept, gone):
            sqs.send(url)
            sqs.send(url)
        sqs.receive(kept, 1)
        sqs.call("DeleteQueue", QueueUrl=gone)
        text = server.metrics()
        labels = f'account="{sqs.account}",queue="kept",region="us-east-1"'
        for gauge in ("queue_depth", "queue_in_flight"):
            assert re.findall(f"^{gauge}{{.*", text, re.MULTILINE) == [f"{gauge}{{{labels}}} 1.0"]


def test_queues_of_one_name_are_told_apart_by_account_and_region() -> None:
    with (
        Server() as server,
        Sqs("json", server.url) as first,
        Sqs("json", server.url, first.account, "eu-west-1") as second,
        Sqs("json", server.url) as third,
    ):
        for count, client in enumerate((first, second, third), 1):
            url = client.create("orders")
            for _ in range(count):
                client.send(url)
            client.receive(url, 1)
        page = Page(server.metrics())
        for count, client in enumerate((first, second, third), 1):
            labels = {"account": client.account, "region": client.region, "queue": "orders"}
            assert page.value("queue_messages_sent_total", **labels) == count
            assert page.value("queue_messages_received_total", **labels) == 1
            assert page.value("queue_message_send_duration_seconds_count", **labels) == count
            assert page.value("queue_depth", **labels) == count - 1
            assert page.value("queue_in_flight", **labels) == 1


def test_a_queue_that_was_created_again_goes_on_with_its_series(relaxed_server: Server) -> None:
    with Sqs("json", relaxed_server.url) as sqs:
        for _ in range(2):
            url = sqs.create("again")
            sqs.send(url)
            sqs.call("DeleteQueue", QueueUrl=url)
        labels = f'account="{sqs.account}",queue="again",region="us-east-1"'
        text = relaxed_server.metrics("queue_messages_sent_total")
        assert text.count(labels) == 1
        assert f"queue_messages_sent_total{{{labels}}} 2.0" in text


def test_two_workers_add_up() -> None:
    with Server("--workers", "2") as server, Sqs("json", server.url) as first:
        url = first.create("shared")
        for _ in range(30):
            with first.other() as client:
                client.send(url)
        for _ in range(3):
            assert server.metric('queue_messages_sent_total{queue="shared"}') == 30
            assert server.metric('queuegate_actions_total{action="SendMessage",status="200"}') == 30


@pytest.mark.parametrize("wire", PUBLISH_WIRES)
def test_publishes_are_counted_by_topic(server: Server, wire: str) -> None:
    with Sns(wire, server.url) as sns, sns.other(region="eu-west-1") as elsewhere:
        topic = sns.create("counted")
        sqs = sns.sqs()
        for name in ("a", "b"):
            sns.subscribe(topic, "sqs", sqs.arn(sqs.create(name)))
        sns.publish(topic, "one")
        sns.call(
            "PublishBatch",
            TopicArn=topic,
            PublishBatchRequestEntries=[{"Id": "1", "Message": "a"}, {"Id": "2", "Message": "b"}],
        )
        elsewhere.publish(elsewhere.create("counted"), "one")
        own = f'account="{sns.account}",topic="counted"'
        published = "queuegate_topic_messages_published_total"
        assert server.metric(f'{published}{{{own},region="us-east-1"}}') == 3
        assert server.metric(f'{published}{{{own},region="eu-west-1"}}') == 1
        copies = f'queuegate_topic_copies_total{{{own},region="us-east-1"'
        assert server.metric(f'{copies},kind="queue"}}') == 6
        assert server.metric(f'{copies},kind="web_hook"}}') == 0
        assert server.metric(f'queue_messages_sent_total{{account="{sns.account}"}}') == 6


def test_copies_of_every_kind_are_counted_by_topic(server: Server, hook: WebHook) -> None:
    with Sns("query", server.url) as sns:
        topic = sns.create("kinds")
        sqs = sns.sqs()
        sns.subscribe(topic, "sqs", sqs.arn(sqs.create("a")))
        sns.subscribe(topic, "sms", "+15550100")
        sns.subscribe(topic, "http", hook.url)
        sns.call("ConfirmSubscription", TopicArn=topic, Token=hook.next().envelope["Token"])
        hook.statuses.append(410)
        sns.publish(topic, "one")
        hook.next()
        own = f'account="{sns.account}",region="us-east-1",topic="kinds"'
        for kind in ("queue", "web_hook", "outbox"):
            assert server.metric(f'queuegate_topic_copies_total{{{own},kind="{kind}"}}') == 1
        attempts = f"queuegate_topic_delivery_attempts_total{{{own}"
        # The request to confirm was taken, the message was not.
        server.until(f'{attempts},outcome="failure"}}', 1)
        server.until(f'{attempts},outcome="success"}}', 1)
        server.until(f"queuegate_topic_deliveries_exhausted_total{{{own}}}", 1)


def test_refused_copies_are_counted(server: Server) -> None:
    with Sns("query", server.url) as sns:
        topic = sns.create("refused")
        missing = f"arn:aws:sqs:us-east-1:{sns.account}:missing"
        sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=missing)
        sns.publish(topic, "nowhere")
        own = f'account="{sns.account}",region="us-east-1",topic="refused"'
        name = "queuegate_topic_copies_refused_total"
        assert server.metric(f'{name}{{{own},outcome="dropped"}}') == 1
        assert server.metric(f'{name}{{{own},outcome="kept"}}') == 0
