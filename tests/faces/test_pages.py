"""/livez, /readyz and /metrics: what probes and Prometheus see."""

from __future__ import annotations

import json
import re

from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.servers import Background, Server
from tests.faces.sns_client import Sns

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
    for metric, value in zip(QUEUE_COUNTERS, values, strict=True):
        assert f'{metric}{{queue="{name}"}} {value}.0' in text
    for metric in HISTOGRAMS:
        assert f'{metric}_bucket{{le="+Inf",queue="{name}"}}' in text
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
    assert "/somewhere" not in server.metrics()


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
        assert 'queue_depth{queue="kept"} 1.0' in text
        assert 'queue_in_flight{queue="kept"} 1.0' in text
        assert 'queue_depth{queue="gone"}' not in text
        assert 'queue_in_flight{queue="gone"}' not in text


def test_two_workers_add_up() -> None:
    with Server("--workers", "2") as server, Sqs("json", server.url) as first:
        url = first.create("shared")
        for _ in range(30):
            with first.other() as client:
                client.send(url)
        for _ in range(3):
            assert server.metric('queue_messages_sent_total{queue="shared"}') == 30
            assert server.metric('queuegate_actions_total{action="SendMessage",status="200"}') == 30


def test_publishes_are_counted_by_topic(server: Server) -> None:
    with Sns("query", server.url) as sns:
        topic = sns.create("counted")
        name = 'queuegate_topic_messages_published_total{topic="counted"}'
        before = server.metric(name)
        sns.publish(topic, "one")
        sns.call(
            "PublishBatch",
            TopicArn=topic,
            PublishBatchRequestEntries=[{"Id": "1", "Message": "a"}, {"Id": "2", "Message": "b"}],
        )
        assert server.metric(name) == before + 3


def test_refused_copies_are_counted(server: Server) -> None:
    with Sns("query", server.url) as sns:
        topic = sns.create("refused")
        missing = f"arn:aws:sqs:us-east-1:{sns.account}:missing"
        sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=missing)
        name = 'queuegate_topic_copies_refused_total{outcome="dropped"}'
        before = server.metric(name)
        sns.publish(topic, "nowhere")
        assert server.metric(name) == before + 1
