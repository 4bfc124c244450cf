"""Priorities and time to live on the faces: what sets them, what is seen of them, what refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuegate.gateway.metrics import exposition
from queuegate.gateway.metrics.snapshots import DatabaseSnapshot
from queuegate.storage.queues.depths import PriorityAge
from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.rest.schedule_client import Scheduling, to_queue
from tests.faces.servers import Background, Server
from tests.faces.sns_client import Sns
from tests.waiting import until

PRIORITY = "Queuegate.Priority"
TTL = "Queuegate.TTL"
RAW = {"RawMessageDelivery": "true"}


def urgency(priority: object = None, ttl: object = None) -> dict[str, dict[str, str]]:
    given = {PRIORITY: priority, TTL: ttl}
    return {
        name: {"DataType": "Number", "StringValue": str(value)}
        for name, value in given.items()
        if value is not None
    }


def test_producers_set_them_by_attributes_that_receivers_see(sqs: Sqs, server: Server) -> None:
    url = sqs.create()
    sqs.send(url, "plain")
    sqs.send(url, "low", MessageAttributes=urgency(1))
    sqs.send(url, "short", MessageAttributes=urgency(ttl=60))
    sqs.send(url, "high", MessageAttributes=urgency(10, 3600))
    found = sqs.receive(url, 1, MessageAttributeNames=["All"], VisibilityTimeout=0)
    assert [one["MessageAttributes"] for one in found] == [urgency(10, 3600)]
    server.advance(61)
    assert sqs.counts(url) == (3, 0, 0)
    assert sqs.bodies(url) == ["high", "low", "plain"]


def test_a_batch_may_have_some_of_each(sqs: Sqs) -> None:
    url = sqs.create()
    entries: list[dict[str, Any]] = [
        {"Id": str(number), "MessageBody": str(number)} for number in range(4)
    ]
    entries[1]["MessageAttributes"] = urgency(11)
    entries[2]["MessageAttributes"] = urgency(3)
    answer = sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["0", "2", "3"]
    assert [one["Id"] for one in answer["Failed"]] == ["1"]
    assert PRIORITY in answer["Failed"][0]["Message"]
    assert sqs.bodies(url) == ["2", "0", "3"]


@pytest.mark.parametrize("name", [PRIORITY, TTL])
@pytest.mark.parametrize(
    "value", ["-1", "1209601", "5.5", "1e1", "٣", "0" * 10], ids=lambda value: repr(value)
)
def test_numbers_that_are_none_are_refused(json_sqs: Sqs, name: str, value: str) -> None:
    attributes = {name: {"DataType": "Number", "StringValue": value}}
    refused = json_sqs.refusal(
        "SendMessage", QueueUrl=json_sqs.create(), MessageBody="x", MessageAttributes=attributes
    )
    assert refused.status == 400
    assert refused.code == "InvalidParameterValue"
    assert name in refused.text


@pytest.mark.parametrize(
    "value",
    [
        {"DataType": "String", "StringValue": "5"},
        {"DataType": "Binary", "BinaryValue": b"5"},
        {"DataType": "Number", "StringValue": "11"},
    ],
)
def test_a_priority_is_a_number_up_to_10(sqs: Sqs, value: dict[str, Any]) -> None:
    url = sqs.create()
    refused = sqs.refusal(
        "SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes={PRIORITY: value}
    )
    assert refused.code == "InvalidParameterValue"
    assert PRIORITY in refused.text
    typed = {"DataType": "Number.custom", "StringValue": "5"}
    sqs.send(url, "typed", MessageAttributes={PRIORITY: typed})
    assert sqs.bodies(url) == ["typed"]


def test_a_fifo_queue_refuses_a_priority(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    refused = sqs.refusal(
        "SendMessage",
        QueueUrl=url,
        MessageBody="x",
        MessageGroupId="g",
        MessageAttributes=urgency(5),
    )
    assert refused.code == "InvalidParameterValue"
    assert refused.text.startswith(f"Value 5 for message attribute {PRIORITY} is invalid. Reason:")


@pytest.mark.parametrize("attributes", [RAW, {}], ids=["raw", "envelope"])
def test_copies_of_a_publish_have_them(publisher: Sns, attributes: dict[str, str]) -> None:
    topic = publisher.warm(publisher.create())
    url = publisher.subscribe_queue(topic, "orders", **attributes)
    ordered = publisher.subscribe_queue(publisher.create("other"), "unrelated")
    publisher.warm(topic)
    for message, priority in (("low", None), ("high", 9), ("middle", 4)):
        more = {} if priority is None else {"MessageAttributes": urgency(priority)}
        publisher.publish(topic, message, **more)
    bodies = publisher.sqs().bodies(url)
    if not attributes:
        bodies = [json.loads(body)["Message"] for body in bodies]
    assert bodies == ["high", "middle", "low"]
    assert publisher.sqs().bodies(ordered) == []


def test_copies_for_several_kinds_of_queues_are_one_publish(query_sns: Sns, server: Server) -> None:
    topic = query_sns.create()
    plain = query_sns.subscribe_queue(topic, "plain", **RAW)
    urgent = query_sns.subscribe_queue(topic, "urgent", **RAW)
    query_sns.subscribe(topic, "email", "a@b.example")
    sqs = query_sns.sqs()
    sqs.send(urgent, "first", MessageAttributes=urgency(2))
    query_sns.publish(topic, "plain")
    query_sns.publish(topic, "urgent", MessageAttributes=urgency(8, 60))
    query_sns.publish(topic, "again")
    assert sqs.bodies(plain, 1) == ["urgent"]
    assert sqs.bodies(urgent, 2) == ["urgent", "first"]
    server.advance(61)
    assert sqs.counts(plain)[0] == 2
    assert sqs.bodies(plain) == ["plain", "again"]


def test_a_publish_with_a_bad_value_is_refused(sns: Sns) -> None:
    topic = sns.create()
    refused = sns.refusal("Publish", TopicArn=topic, Message="x", MessageAttributes=urgency(ttl=0))
    assert refused.status == 400
    assert TTL in refused.text


def test_native_messages_have_fields_for_them(rest: Rest, server: Server) -> None:
    name = rest.create()
    rest.send(name, "plain")
    assert "priority" not in rest.receive(name, vt=0)[0]
    rest.send(name, "low", priority=0, ttl=3600)
    rest.send(name, "high", priority=7)
    found = rest.receive(name, vt=0)
    assert [(one["message"], one["priority"]) for one in found if "priority" in one] == [
        ("high", 7),
        ("low", 0),
    ]
    assert [one["message"] for one in found if "expires_at" in one] == ["low"]
    page = rest.call("GET", f"/v1/queues/{name}/browse")["messages"]
    assert [one.get("priority") for one in page] == [None, 0, 7]
    assert sum(["expires_at" in one for one in page]) == 1
    server.advance(3601)
    assert rest.messages(name) == ["high", "plain"]
    page = rest.call("GET", f"/v1/queues/{name}/browse")["messages"]
    assert [one.get("priority") for one in page] == [None, 7]


def test_headers_say_what_fields_do_not(rest: Rest) -> None:
    name = rest.create()
    rest.send(name, "by header", headers={PRIORITY: 3})
    rest.send(name, "by field", priority=5, headers={PRIORITY: 1})
    assert rest.messages(name) == ["by field", "by header"]
    assert PRIORITY in rest.refusal(
        "POST", f"/v1/queues/{name}/messages", {"message": 1, "headers": {PRIORITY: "high"}}
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"priority": 11},
        {"priority": -1},
        {"priority": 1.5},
        {"priority": "5"},
        {"ttl": 0},
        {"ttl": 1_209_601},
        {"ttl": 1 << 70},
    ],
)
def test_native_fields_have_their_ranges(rest: Rest, bad: dict[str, object]) -> None:
    name = rest.create()
    [member] = bad
    text = rest.refusal("POST", f"/v1/queues/{name}/messages", {"message": 1} | bad)
    assert member in text


def test_a_native_fifo_queue_refuses_a_priority(rest: Rest) -> None:
    name = rest.create(fifo=True)
    body = {"message": 1, "group_id": "g", "priority": 5}
    assert "no priority" in rest.refusal("POST", f"/v1/queues/{name}/messages", body)


def test_a_long_poll_wakes_for_the_first_urgent_message(json_sqs: Sqs, server: Server) -> None:
    url = json_sqs.create()
    with json_sqs.other() as other:
        polling = Background(other.receive, url, WaitTimeSeconds=20)
        server.until_parked()
        json_sqs.send(url, "urgent", MessageAttributes=urgency(10))
        assert [one["Body"] for one in polling.result()] == ["urgent"]


def test_a_dead_letter_and_its_redrive_keep_the_priority(json_sqs: Sqs, server: Server) -> None:
    dead = json_sqs.create("dead")
    policy = {"deadLetterTargetArn": json_sqs.arn(dead), "maxReceiveCount": 1}
    url = json_sqs.create(RedrivePolicy=json.dumps(policy), VisibilityTimeout="0")
    json_sqs.send(url, "low", MessageAttributes=urgency(1, 60))
    json_sqs.send(url, "high", MessageAttributes=urgency(6, 60))
    assert len(json_sqs.receive(url)) == 2
    assert json_sqs.receive(url) == []
    server.advance(3600)
    assert json_sqs.bodies(dead, VisibilityTimeout=0) == ["high", "low"]
    other = json_sqs.create("other")
    json_sqs.call(
        "StartMessageMoveTask", SourceArn=json_sqs.arn(dead), DestinationArn=json_sqs.arn(other)
    )
    until(lambda: json_sqs.counts(other)[0] == 2)
    assert json_sqs.bodies(other) == ["high", "low"]


def test_a_schedule_sends_urgent_messages(server: Server) -> None:
    with Scheduling(server.url) as rest:
        rest.create("jobs")
        bad = {"name": "bad", "cron": "0 * * * *"} | {
            "target": to_queue("jobs", 1, headers={PRIORITY: 12})
        }
        assert PRIORITY in rest.refusal("POST", "/v1/schedules", bad)
        rest.schedule("s", to_queue("jobs", "fired", headers={PRIORITY: 9}))
        rest.send("jobs", "plain")
        rest.call("POST", "/v1/schedules/s/runs", status=202)
        until(lambda: rest.call("GET", "/v1/queues/jobs/browse")["messages"][1:])
        assert rest.messages("jobs") == ["fired", "plain"]


def test_a_starving_priority_is_a_metric() -> None:
    stored = DatabaseSnapshot([], [], [PriorityAge("1", "r", "q", 0, 360.5)], None, [], [], [])
    page = exposition.depth_page(
        stored, exposition.requested(frozenset(["queuegate_queue_oldest_age_seconds"]))
    )
    labels = b'account="1",priority="0",queue="q",region="r"'
    assert b"queuegate_queue_oldest_age_seconds{" + labels + b"} 360.5" in page
