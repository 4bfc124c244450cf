"""Redrive: what matches goes back to its queue, what does not stays, and nothing is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from spark_connectors.errors import Refused
from spark_connectors.pipelines.command.main import main
from spark_connectors.pipelines.redriving.conditions import sql_condition
from spark_connectors.pipelines.redriving.filters import Filters, duration
from spark_connectors.pipelines.redriving.move_task import MovePlan, move_all
from spark_connectors.pipelines.redriving.redrive import RedrivePlan, redrive
from spark_connectors.transport.aws import Connection, Transport, open_transport
from spark_connectors.transport.http.rate_limit import RateLimit
from tests.spark.clocks import Clock
from tests.spark.queues import client_of
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeQueue = Callable[..., str]

TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


@pytest.fixture
def transport(endpoint: str) -> Iterator[Transport]:
    opened = open_transport(Connection(endpoint_url=endpoint, region="us-east-1"))
    yield opened
    opened.close()


@pytest.fixture
def gateway_transport(gateway: str) -> Iterator[Transport]:
    """To the gateway: moto does not say which queue a dead letter came from."""
    opened = open_transport(Connection(endpoint_url=gateway, region="us-east-1"))
    yield opened
    opened.close()


def attribute(endpoint: str, url: str, name: str) -> str:
    client = client_of("sqs", endpoint)
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
    return str(found["Attributes"][name])


def visible(endpoint: str, url: str) -> int:
    return int(attribute(endpoint, url, "ApproximateNumberOfMessages"))


def dead_lettered(
    endpoint: str, make_queue: MakeQueue, messages: list[dict[str, Any]], *, fifo: bool = False
) -> tuple[str, str]:
    """A queue and its dead-letter queue, which has got these messages from it."""
    client = client_of("sqs", endpoint)
    dead = make_queue(endpoint, fifo=fifo)
    policy = {
        "deadLetterTargetArn": attribute(endpoint, dead, "QueueArn"),
        "maxReceiveCount": "1",
    }
    source = make_queue(endpoint, fifo=fifo, RedrivePolicy=json.dumps(policy))
    for message in messages:
        client.send_message(QueueUrl=source, **message)

    def are_dead() -> bool:
        client.receive_message(QueueUrl=source, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return visible(endpoint, dead) == len(messages)

    wait_for(are_dead)
    return source, dead


def message(number: int, error: str, **given: Any) -> dict[str, Any]:
    attributes = {
        "ErrorCode": {"DataType": "String", "StringValue": error},
        "raw": {"DataType": "Binary", "BinaryValue": b"\0\1"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": TRACE}}
    return {
        "MessageBody": f"body {number}",
        "MessageAttributes": attributes,
        "MessageSystemAttributes": trace,
        **given,
    }


def bodies(endpoint: str, url: str) -> list[str]:
    """The messages of a queue, which stay there."""
    client = client_of("sqs", endpoint)
    found: dict[str, str] = {}
    receipts: list[str] = []
    while batch := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found |= {one["MessageId"]: one["Body"] for one in batch}
        receipts += [one["ReceiptHandle"] for one in batch]
    for receipt in receipts:
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)
    return sorted(found.values())


def test_what_matches_goes_back_and_the_rest_stays(
    gateway: str, make_queue: MakeQueue, gateway_transport: Transport
) -> None:
    messages = [message(number, "Timeout" if number % 2 else "Broken") for number in range(24)]
    source, dead = dead_lettered(gateway, make_queue, messages)
    plan = RedrivePlan(dead, Filters(error_class="Time*"))
    counted = redrive(gateway_transport, plan)
    assert (counted.looked_at, counted.matched, counted.moved) == (24, 12, 0)
    assert len(bodies(gateway, dead)) == 24
    summary = redrive(gateway_transport, plan._replace(apply=True))
    assert (summary.matched, summary.moved, summary.failed) == (12, 12, 0)
    assert summary.destinations == {source.rpartition("/")[2]: 12}
    assert bodies(gateway, dead) == sorted(f"body {number}" for number in range(0, 24, 2))
    received = client_of("sqs", gateway).receive_message(
        QueueUrl=source, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )["Messages"][0]
    assert received["Attributes"]["AWSTraceHeader"] == TRACE
    assert received["MessageAttributes"]["raw"]["BinaryValue"] == b"\0\1"
    assert received["MessageAttributes"]["ErrorCode"]["StringValue"] == "Timeout"


def test_groups_keep_their_order(
    gateway: str, make_queue: MakeQueue, gateway_transport: Transport
) -> None:
    messages = [
        message(n, "E", MessageGroupId=f"g{n % 2}", MessageDeduplicationId=str(n))
        for n in range(10)
    ]
    source, dead = dead_lettered(gateway, make_queue, messages, fifo=True)
    plan = RedrivePlan(dead, Filters(groups=("g1",)), apply=True)
    assert redrive(gateway_transport, plan).moved == 5
    assert len(bodies(gateway, dead)) == 5
    found = client_of("sqs", gateway).receive_message(
        QueueUrl=source, MaxNumberOfMessages=10, AttributeNames=["MessageGroupId"]
    )["Messages"]
    assert [one["Body"] for one in found] == [f"body {n}" for n in (1, 3, 5, 7, 9)]
    assert {one["Attributes"]["MessageGroupId"] for one in found} == {"g1"}


def test_what_came_from_no_queue_needs_a_destination(
    endpoint: str, make_queue: MakeQueue, transport: Transport
) -> None:
    dead, other = make_queue(endpoint), make_queue(endpoint)
    client_of("sqs", endpoint).send_message(QueueUrl=dead, MessageBody="stray")
    plan = RedrivePlan(dead, Filters(), apply=True)
    summary = redrive(transport, plan)
    assert (summary.matched, summary.moved, summary.without_source) == (1, 0, 1)
    assert redrive(transport, plan._replace(destination=other)).moved == 1
    assert bodies(endpoint, other) == ["stray"]
    assert bodies(endpoint, dead) == []


def test_nothing_is_deleted_that_was_not_sent(
    gateway: str, make_queue: MakeQueue, gateway_transport: Transport
) -> None:
    source, dead = dead_lettered(gateway, make_queue, [message(n, "E") for n in range(3)])
    client_of("sqs", gateway).delete_queue(QueueUrl=source)
    with pytest.raises(Refused, match="QueueDoesNotExist"):
        redrive(gateway_transport, RedrivePlan(dead, Filters(), apply=True))
    assert visible(gateway, dead) == 3, "and what was held is released"


def test_a_rate_is_kept_between_requests(
    gateway: str,
    make_queue: MakeQueue,
    gateway_transport: Transport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    # Its clock stands still, so each pause is as long as everything that was sent before it.
    limit = partial(RateLimit, clock=lambda: 100.0, pause=pauses.append)
    monkeypatch.setattr("spark_connectors.pipelines.redriving.redrive.RateLimit", limit)
    _, dead = dead_lettered(gateway, make_queue, [message(n, "E") for n in range(25)])
    plan = RedrivePlan(dead, Filters(), apply=True, rate=50)
    assert redrive(gateway_transport, plan).moved == 25
    # The last request has ten at most.
    assert pauses == sorted(pauses)
    assert 15 / 50 <= pauses[-1] < 25 / 50


def test_what_a_rate_holds_back_is_held_on_to(
    gateway: str,
    make_queue: MakeQueue,
    gateway_transport: Transport,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round takes longer than the visibility timeout: meanwhile nobody else sees any of it."""
    module = "spark_connectors.pipelines.redriving.redrive"
    limit = partial(RateLimit, clock=time.time, pause=clock.advance)
    monkeypatch.setattr(f"{module}.RateLimit", limit)
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=time.time, time=time.time))
    source, dead = dead_lettered(gateway, make_queue, [message(n, "E") for n in range(60)])
    seen: list[int] = []

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(gateway_transport, name)

        def send(self, *given: Any) -> Any:
            seen.append(visible(gateway, dead))
            return gateway_transport.send(*given)

    # The last request is sent after more than 40 s; renewing comes long before it is too late.
    plan = RedrivePlan(dead, Filters(), apply=True, rate=1, visibility_seconds=40)
    assert redrive(cast("Transport", Watching()), plan).moved == 60
    assert visible(gateway, source) == 60
    assert set(seen) == {0}


def test_filters_by_source_age_limit_and_sql(
    spark: SparkSession, gateway: str, make_queue: MakeQueue, gateway_transport: Transport
) -> None:
    source, dead = dead_lettered(gateway, make_queue, [message(n, "E") for n in range(5)])

    def matched(**given: Any) -> int:
        limit = given.pop("limit", None)
        return redrive(gateway_transport, RedrivePlan(dead, Filters(**given), limit=limit)).matched

    assert matched(source=source.rpartition("/")[2]) == 5
    assert matched(source="another") == 0
    assert matched(older_than_seconds=3600) == 0
    assert matched(limit=2) == 2
    where = "body > 'body 2' and message_attributes['ErrorCode'].string_value = 'E'"
    assert matched(condition=sql_condition(spark, where, "dead")) == 2


def test_all_of_them_are_moved_by_the_service(
    gateway: str, make_queue: MakeQueue, gateway_transport: Transport
) -> None:
    source, dead = dead_lettered(gateway, make_queue, [message(n, "E") for n in range(12)])
    assert move_all(gateway_transport, MovePlan(dead)).messages == 12
    assert visible(gateway, dead) == 12
    summary = move_all(gateway_transport, MovePlan(dead, apply=True))
    assert (summary.status, summary.moved) == ("COMPLETED", 12)
    assert visible(gateway, source) == 12


def test_the_command_moves_only_when_told_so(
    gateway: str, make_queue: MakeQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    source, dead = dead_lettered(gateway, make_queue, [message(n, "E") for n in range(3)])
    command = ["redrive", "--queue", dead.rpartition("/")[2], "--endpoint-url", gateway]
    command += ["--error-class", "E", "--quiet"]
    assert main(command) == 0
    assert "dry run, nothing moved" in capsys.readouterr().out
    assert visible(gateway, dead) == 3
    assert main([*command, "--yes", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["moved"] == 3
    assert (visible(gateway, dead), visible(gateway, source)) == (0, 3)


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("1.5h", 5400), ("2d", 172_800)])
def test_durations(text: str, expected: float) -> None:
    assert duration(text) == expected
    with pytest.raises(ValueError, match="no duration"):
        duration(f"{text}x")
