"""EventBridge Scheduler end to end: what boto3 schedules arrives when the clock says so."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.faces.clients import authorization
from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server
from tests.waiting import until

SEND = "arn:aws:scheduler:::aws-sdk:sqs:sendMessage"
PUBLISH = "arn:aws:scheduler:::aws-sdk:sns:publish"


class World(Scheduler):
    """An account with a queue ``q`` and a dead-letter queue ``dead``, and the server's clock."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url)
        self.server = server
        self.sqs, self.sns = self.client("sqs"), self.client("sns")
        self.queue = self.make_queue("q")
        self.dead = self.make_queue("dead")

    def make_queue(self, name: str, **attributes: str) -> str:
        """The URL of a queue."""
        url: str = self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def now(self) -> datetime:
        return datetime.fromisoformat(self.server.now())

    def at(self, seconds: int) -> str:
        """An expression for so many seconds from now."""
        time = self.now() + timedelta(seconds=seconds)
        return f"at({time:%Y-%m-%dT%H:%M:%S})"

    def receive(self, url: str | None = None, wait: int = 20) -> dict[str, Any] | None:
        """The next message, which is deleted; None when there is none in so many seconds."""
        url = url or self.queue
        found = self.sqs.receive_message(
            QueueUrl=url,
            WaitTimeSeconds=wait,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        messages: list[dict[str, Any]] = found.get("Messages", [])
        for message in messages:
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return messages[0] if messages else None

    def body(self, url: str | None = None) -> str:
        message = self.receive(url)
        assert message is not None, "nothing came"
        body: str = message["Body"]
        return body

    def outbox(self, **wanted: str) -> list[dict[str, Any]]:
        """Return the matching messages of the outbox."""
        headers = {
            "Host": self.url.partition("://")[2],
            "Authorization": authorization(self.account, service="scheduler"),
        }
        with contextlib.closing(Connection(self.url)) as connection:
            target = f"/_admin/outbox?{urlencode(wanted)}"
            connection.send(request_bytes("GET", target, headers))
            found: list[dict[str, Any]] = json.loads(connection.answer().body)["messages"]
        return found

    def run(self, name: str, query: str = "") -> Answer:
        """Run a schedule now, over the native API."""
        signed = authorization(self.account, service="scheduler")
        return fetch(
            self.url, f"/v1/schedules/{name}/runs{query}", "POST", b"", Authorization=signed
        )

    def nothing_comes(self) -> None:
        """Fire a schedule of another queue now: whatever was due before has been fired then."""
        url = self.make_queue("mark")
        self.create(
            "mark", ScheduleExpression="rate(1 day)", Target=self.target(self.queue_arn("mark"))
        )
        assert self.body(url) == "{}"
        self.call("delete_schedule", Name="mark")
        assert self.receive(wait=0) is None


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    world = World(server)
    yield world
    world.close()


def test_a_rate_begins_at_once_and_goes_on(world: World) -> None:
    target = world.target(Input='{"n": 1}')
    world.create(ScheduleExpression="rate(5 minutes)", Target=target)
    assert world.body() == '{"n": 1}'
    world.server.advance(290)
    world.nothing_comes()
    world.server.advance(11)
    assert world.body() == '{"n": 1}'
    world.call("delete_schedule", Name="one")
    world.server.advance(600)
    world.nothing_comes()


def test_a_run_by_hand_fires_now_and_changes_nothing(world: World) -> None:
    world.call("create_schedule_group", Name="reports")
    target = world.target(Input='{"of": "<aws.scheduler.schedule-arn>"}')
    for members in ({}, {"GroupName": "reports", "State": "DISABLED"}):
        world.create(ScheduleExpression="at(2098-01-01T00:00:00)", Target=target, **members)
    before = world.call("get_schedule", Name="one", GroupName="reports")
    for group in ("default", "reports"):
        answer = world.run("one", f"?group={group}")
        assert answer.status == 202, answer.text
        run = json.loads(answer.body)
        assert (run["out_of_band"], [one["queue"] for one in run["messages"]]) == (True, ["q"])
        assert json.loads(world.body())["of"].endswith(f":schedule/{group}/one")
    assert world.call("get_schedule", Name="one", GroupName="reports") == before
    for query in ("", "?group=absent", f"?group={'g' * 65}", "?group=", "?group=a%00", "?a=b"):
        assert world.run("one", query).status in (400, 404), query
    assert world.run("two", "?group=default").status == 404
    world.nothing_comes()


def test_a_run_by_hand_of_another_service_goes_to_the_outbox(world: World) -> None:
    target = world.target("arn:aws:lambda:us-east-1:123456789012:function:f")
    world.create(ScheduleExpression="at(2098-01-01T00:00:00)", Target=target)
    answer = world.run("one", "?group=default")
    assert (answer.status, json.loads(answer.body)["msg_ids"]) == (202, [])
    assert len(world.outbox(protocol="lambda")) == 1


def test_without_an_input_the_message_is_an_empty_object(world: World) -> None:
    world.create(ScheduleExpression="rate(1 day)")
    assert world.body() == "{}"


@pytest.mark.parametrize(
    ("arn", "protocol", "parameters"),
    [
        ("arn:aws:lambda:us-east-1:123456789012:function:f", "lambda", {}),
        ("arn:aws:states:us-east-1:123456789012:stateMachine:s", "states", {}),
        (
            "arn:aws:kinesis:us-east-1:123456789012:stream/s",
            "kinesis",
            {"KinesisParameters": {"PartitionKey": "k"}},
        ),
        (
            "arn:aws:ecs:us-east-1:123456789012:cluster/c",
            "ecs",
            {"EcsParameters": {"TaskDefinitionArn": "t", "Tags": [{"key": "k", "value": "v"}]}},
        ),
        ("arn:aws:scheduler:::aws-sdk:sqs:deleteQueue", "aws-sdk", {}),
        ("arn:aws:scheduler:::aws-sdk:lambda:invoke", "aws-sdk", {}),
    ],
)
def test_what_other_targets_would_get_is_in_the_outbox(
    world: World, arn: str, protocol: str, parameters: dict[str, Any]
) -> None:
    """AWS takes targets of every kind (docs/contract/scheduler.md 4.2)."""
    target = world.target(arn, Input='{"at": "<aws.scheduler.attempt-number>"}', **parameters)
    world.create(ScheduleExpression="rate(1 day)", Target=target)
    shown = world.get()["Target"]
    assert {name: shown[name] for name in target} == target
    [kept] = until(lambda: world.outbox(), bool)
    assert (kept["kind"], kept["protocol"], kept["destination"], kept["body"]) == (
        "Invocation",
        protocol,
        arn,
        '{"at": "1"}',
    )
    assert world.outbox(protocol=protocol, kind="Invocation") == [kept]


def test_placeholders(world: World) -> None:
    names = ("schedule-arn", "scheduled-time", "execution-id", "attempt-number", "unknown")
    text = "|".join(f"<aws.scheduler.{name}>" for name in names)
    before = world.now().replace(microsecond=0)
    arn = world.create(ScheduleExpression="rate(1 day)", Target=world.target(Input=text))
    found = world.body().split("|")
    assert found[0] == arn
    assert before <= datetime.fromisoformat(found[1]) <= world.now()
    assert len(found[2]) == 36
    assert found[3:] == ["1", "<aws.scheduler.unknown>"]


def test_at_fires_once_and_stays(world: World) -> None:
    world.create(ScheduleExpression=world.at(100))
    world.nothing_comes()
    world.server.advance(101)
    assert world.body() == "{}"
    world.server.advance(86_400)
    world.nothing_comes()
    assert world.get()["State"] == "ENABLED"


def test_what_is_done_is_deleted_when_asked_for(world: World) -> None:
    world.create("once", ScheduleExpression=world.at(10), ActionAfterCompletion="DELETE")
    end = world.now() + timedelta(seconds=100)
    rate = {"ScheduleExpression": "rate(1 minute)", "EndDate": end}
    world.create("rate", ActionAfterCompletion="DELETE", **rate)
    world.create("kept", State="DISABLED")
    assert world.body() == "{}"
    assert world.names() == ["kept", "once", "rate"]
    world.server.advance(11)
    assert world.body() == "{}"
    assert world.names() == ["kept", "rate"]
    world.server.advance(61)
    assert world.body() == "{}"
    assert world.names() == ["kept"]


def test_a_time_in_the_past_never_fires(world: World) -> None:
    world.create(ScheduleExpression=world.at(-3600), ActionAfterCompletion="DELETE")
    world.nothing_comes()
    assert world.names() == ["one"]


def test_a_start_and_an_end(world: World) -> None:
    start = world.now() + timedelta(seconds=50)
    end = start + timedelta(seconds=90)
    world.create(ScheduleExpression="rate(1 minute)", StartDate=start, EndDate=end)
    world.nothing_comes()
    world.server.advance(51)
    assert world.body() == "{}"
    world.server.advance(60)
    assert world.body() == "{}"
    world.server.advance(60)
    world.nothing_comes()


def test_a_disabled_schedule_waits_and_makes_up_for_nothing(world: World) -> None:
    members = {"ScheduleExpression": "rate(1 hour)"}
    world.create(**members, State="DISABLED")
    world.server.advance(3 * 3600 + 60)
    world.nothing_comes()
    world.update(**members)
    world.nothing_comes()
    world.server.advance(3541)
    assert world.body() == "{}"
    world.update(**members, State="DISABLED")
    world.server.advance(3600)
    world.nothing_comes()


def test_another_expression_begins_now(world: World) -> None:
    world.create(ScheduleExpression="cron(0 0 1 1 ? 2190)")
    world.update(ScheduleExpression="rate(10 minutes)")
    assert world.body() == "{}"
    world.server.advance(300)
    world.update(ScheduleExpression="rate(10 minutes)", Description="the times stay")
    world.nothing_comes()
    world.server.advance(301)
    assert world.body() == "{}"


def test_a_window_is_kept_and_one_message_comes(world: World) -> None:
    window = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 30}
    world.create(ScheduleExpression=world.at(10), FlexibleTimeWindow=window)
    world.server.advance(5)
    world.nothing_comes()
    world.server.advance(1806)
    assert world.body() == "{}"
    world.server.advance(3600)
    world.nothing_comes()


def test_a_cron_in_a_time_zone(world: World) -> None:
    world.create(
        ScheduleExpression="cron(30 6 ? * * *)",
        ScheduleExpressionTimezone="Asia/Tokyo",
        Target=world.target(Input="<aws.scheduler.scheduled-time>"),
    )
    world.server.advance(86_400)
    fired_for = datetime.fromisoformat(world.body())
    assert (fired_for.hour, fired_for.minute, fired_for.second) == (21, 30, 0)


def test_a_fifo_queue(world: World) -> None:
    url = world.make_queue("q.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    target = world.target(
        world.queue_arn("q.fifo"), Input="m", SqsParameters={"MessageGroupId": "g"}
    )
    world.create(ScheduleExpression="rate(1 day)", Target=target)
    message = world.receive(url)
    assert message is not None
    assert (message["Body"], message["Attributes"]["MessageGroupId"]) == ("m", "g")


def test_a_group_on_a_standard_queue(world: World) -> None:
    target = world.target(SqsParameters={"MessageGroupId": "tenant"})
    world.create(ScheduleExpression="rate(1 day)", Target=target)
    message = world.receive()
    assert message is not None
    assert message["Attributes"]["MessageGroupId"] == "tenant"


def test_a_topic_and_its_subscribers(world: World) -> None:
    arn = world.sns.create_topic(Name="t")["TopicArn"]
    world.sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=world.queue_arn())
    world.create(ScheduleExpression="rate(1 day)", Target=world.target(arn, Input="news"))
    envelope = json.loads(world.body())
    assert (envelope["Message"], envelope["TopicArn"]) == ("news", arn)
    # No request says how we are reached: links lead to the port that was taken.
    port = world.server.url.rpartition(":")[2]
    assert envelope["UnsubscribeURL"].startswith(f"http://localhost:{port}/?")
    assert envelope["SigningCertURL"].startswith(f"http://localhost:{port}/")


def test_a_queue_of_another_account_and_region(world: World, server: Server) -> None:
    other = Scheduler(server.url, region="eu-west-1")
    url = other.client("sqs").create_queue(QueueName="q")["QueueUrl"]
    world.create(ScheduleExpression="rate(1 day)", Target=world.target(other.queue_arn()))
    found = other.client("sqs").receive_message(QueueUrl=url, WaitTimeSeconds=20)
    assert [message["Body"] for message in found["Messages"]] == ["{}"]
    other.close()


def test_the_universal_target_of_queues(world: World) -> None:
    request = {
        "QueueUrl": world.queue,
        "MessageBody": "at <aws.scheduler.scheduled-time>",
        "MessageGroupId": "<aws.scheduler.attempt-number>",
        "MessageAttributes": {
            "text": {"DataType": "String", "StringValue": "<aws.scheduler.attempt-number>"},
            "bytes": {"DataType": "Binary", "BinaryValue": "AAE="},
        },
    }
    target = world.target(SEND, Input=json.dumps(request))
    world.create(ScheduleExpression="rate(1 day)", Target=target)
    message = world.receive()
    assert message is not None
    assert message["Body"].startswith("at 20")
    assert message["Attributes"]["MessageGroupId"] == "1"
    assert message["MessageAttributes"] == {
        "text": {"DataType": "String", "StringValue": "1"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }
    assert world.get()["Target"] == {
        **target,
        "RetryPolicy": {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185},
    }


def test_the_universal_target_of_queues_with_a_delay(world: World) -> None:
    request = {"QueueUrl": "q", "MessageBody": "later", "DelaySeconds": 600}
    target = world.target(SEND, Input=json.dumps(request))
    world.create(ScheduleExpression="rate(1 day)", Target=target)
    world.nothing_comes()
    world.server.advance(601)
    assert world.body() == "later"


def test_the_universal_target_of_topics(world: World) -> None:
    arn = world.sns.create_topic(Name="t")["TopicArn"]
    world.sns.subscribe(
        TopicArn=arn,
        Protocol="sqs",
        Endpoint=world.queue_arn(),
        Attributes={"FilterPolicy": '{"kind": ["good"]}'},
    )
    request = {
        "TopicArn": arn,
        "Subject": "S",
        "MessageStructure": "json",
        "Message": json.dumps({"default": "d", "sqs": "for queues"}),
        "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "good"}},
    }
    target = world.target(PUBLISH, Input=json.dumps(request))
    world.create(ScheduleExpression="rate(1 day)", Target=target)
    envelope = json.loads(world.body())
    assert (envelope["Message"], envelope["Subject"]) == ("for queues", "S")


def _failing(world: World, target: dict[str, Any]) -> dict[str, Any]:
    """The target with no repetition and a dead-letter queue."""
    return target | {
        "DeadLetterConfig": {"Arn": world.queue_arn("dead")},
        "RetryPolicy": {"MaximumRetryAttempts": 0},
    }


@pytest.mark.parametrize(
    ("arn", "text", "error"),
    [
        ("queue", "lost", "The specified queue does not exist."),
        ("topic", "lost", "Topic does not exist"),
        (SEND, '{"MessageBody":"b"}', "The Input has no QueueUrl that names a queue."),
        (SEND, '{"QueueUrl":"q"}', "The Input has no MessageBody."),
        (SEND, '{"QueueUrl":"q","MessageBody":5}', "NUMBER_VALUE can not be converted to a String"),
        (PUBLISH, "{}", "The text is not an ARN."),
        (PUBLISH, '{"PhoneNumber":"+15550100"}', "A schedule publishes to topics, not to phone"),
    ],
)
def test_what_cannot_be_delivered_goes_to_the_dead_letter_queue(
    world: World, arn: str, text: str, error: str
) -> None:
    places = {
        "queue": world.queue_arn("none"),
        "topic": world.queue_arn("none").replace(":sqs:", ":sns:"),
    }
    target = world.target(places.get(arn, arn), Input=text)
    made = world.create(ScheduleExpression="rate(1 day)", Target=_failing(world, target))
    message = world.receive(world.dead)
    assert message is not None
    assert message["Body"] == text
    found = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    assert error in found["ERROR_MESSAGE"]
    assert (found["SCHEDULE_ARN"], found["TARGET_ARN"]) == (made, target["Arn"])
    assert found["RETRY_ATTEMPTS"] == "0"
    assert {"ERROR_CODE", "EXECUTION_ID", "SCHEDULED_TIME"} <= set(found)


def test_what_fails_is_repeated_until_it_works(world: World) -> None:
    target = world.target(world.queue_arn("late"), Input="<aws.scheduler.attempt-number>")
    world.create(ScheduleExpression="rate(1 day)", Target=target)
    world.nothing_comes()
    url = world.make_queue("late")
    world.server.advance(600)
    assert int(world.body(url)) > 1
