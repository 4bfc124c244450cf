"""Replay: each message once for a replay id, groups in their order, whatever happens between."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_connectors
from spark_connectors.pipelines.archive_replay import (
    BadReplay,
    ReplayMismatch,
    ReplayPlan,
    ReplaySelection,
    in_order,
    ledger_in,
    new_replay_id,
    replay,
    selected,
    sent_count,
)
from spark_connectors.pipelines.queue_archive import ArchivePlan, read_archive
from spark_connectors.pipelines.queue_archive import archive as archive_queue
from tests.spark.archived_rows import BEGINNING, append, frame, ids, micros, row, text_attributes
from tests.spark.crash.points import kill_session
from tests.spark.queues import client_of
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE = datetime.timedelta(minutes=1)
GROUPS = 5


def fifo_rows(count: int) -> list[dict[str, Any]]:
    """Of a FIFO queue: sequence numbers grow by one digit on the way, as texts they do not sort."""
    return [
        row(
            number,
            queue="orders.fifo",
            sequence_number=str(10**19 - count // 2 + number),
            message_group_id=f"g{number % GROUPS}",
            message_attributes={
                "kind": ("String", "x", None),
                "raw": ("Binary", None, bytearray(b"\0\1")),
            },
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("replay")
    append(spark, root, fifo_rows(200), tmp_path_factory.mktemp("work"))
    return root


def plan(archive: Path, endpoint: str, to: str, **given: Any) -> ReplayPlan:
    replay_id = given.pop("replay_id", None) or new_replay_id()
    ledger = ledger_in(str(archive), replay_id)
    return ReplayPlan(to, {"endpointUrl": endpoint}, ledger, replay_id, chunk=20, **given)


def received(endpoint: str, url: str) -> list[dict[str, Any]]:
    """Every message of a queue, deleted."""
    client = client_of("sqs", endpoint)
    found: list[dict[str, Any]] = []
    while True:
        messages = client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        if not messages:
            return found
        found += messages
        for message in messages:
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def by_group(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for message in messages:
        found[message["Attributes"]["MessageGroupId"]].append(message["Body"])
    return dict(found)


def expected_groups(count: int) -> dict[str, list[str]]:
    found = defaultdict(list)
    for one in fifo_rows(count):
        found[one["message_group_id"]].append(one["body"])
    return dict(found)


def test_a_fifo_queue_gets_each_group_in_order_and_once(
    spark: SparkSession, archive: Path, gateway: str, make_queue: Callable[..., str]
) -> None:
    to = make_queue(gateway, fifo=True)
    wanted = plan(archive, gateway, to)
    rows = read_archive(spark, str(archive))
    first = replay(rows, wanted)
    assert (first.selected, first.sent, first.groups) == (200, 200, GROUPS)
    again = replay(rows, wanted)
    assert (again.sent, again.sent_before) == (0, 200)
    shutil.rmtree(wanted.ledger.removeprefix("file://"))
    assert replay(rows, wanted).sent == 200, "without its ledger it sends them"
    messages = received(gateway, to)
    assert by_group(messages) == expected_groups(200), "and the queue drops them"
    attributes = messages[0]["MessageAttributes"]
    assert attributes["raw"]["BinaryValue"] == b"\0\1"
    assert attributes["kind"]["StringValue"] == "x"
    origin = attributes["replayed_from"]["StringValue"].split("/")
    assert origin[:2] == [wanted.replay_id, "orders.fifo"]


def test_an_archive_of_a_replay_is_the_archive_again(
    spark: SparkSession,
    archive: Path,
    gateway: str,
    make_queue: Callable[..., str],
    tmp_path: Path,
) -> None:
    """By group, order within it, and digest of the body."""
    spark_connectors.register(spark)
    to = make_queue(gateway, fifo=True)
    first = read_archive(spark, str(archive))
    replay(first, plan(archive, gateway, to))
    options = {"queueUrl": to, "endpointUrl": gateway, "waitTimeSeconds": "1"}
    assert archive_queue(spark, str(tmp_path), ArchivePlan(options, "parquet")).rows == 200
    second = read_archive(spark, str(tmp_path))
    assert digests(second) == digests(first)


def digests(rows: DataFrame) -> dict[str, list[str]]:
    """Of each group's bodies, in the order of sequence numbers."""
    found = defaultdict(list)
    for one in rows.orderBy(*in_order()).select("message_group_id", "md5_of_body").collect():
        found[one[0]].append(one[1])
    return dict(found)


def test_a_standard_queue_gets_nothing_from_a_second_run(
    spark: SparkSession, archive: Path, endpoint: str, make_queue: Callable[..., str]
) -> None:
    to = make_queue(endpoint)
    wanted = plan(archive, endpoint, to, selection=ReplaySelection(limit=45))
    rows = read_archive(spark, str(archive))
    assert replay(rows, wanted).sent == 45
    assert replay(rows, wanted._replace(selection=ReplaySelection(limit=50))).sent == 5
    assert sorted(one["Body"] for one in received(endpoint, to)) == sorted(
        f"body {number}" for number in range(50)
    )
    assert replay(rows, wanted._replace(replay_id="another"), dry_run=True).selected == 45


def test_a_dry_run_sends_nothing(
    spark: SparkSession, archive: Path, gateway: str, make_queue: Callable[..., str]
) -> None:
    to = make_queue(gateway)
    wanted = plan(archive, gateway, to, selection=ReplaySelection(groups=("g1",)))
    summary = replay(read_archive(spark, str(archive)), wanted, dry_run=True)
    assert (summary.selected, summary.groups, summary.sent) == (40, 1, 0)
    assert received(gateway, to) == []


@pytest.mark.soak
def test_killed_in_the_middle_and_run_again(
    archive: Path, gateway: str, make_queue: Callable[..., str], spark: SparkSession
) -> None:
    to = make_queue(gateway, fifo=True)
    wanted = plan(archive, gateway, to)
    command = [sys.executable, "-m", "spark_connectors.pipelines", "replay"]
    command += ["--archive", str(archive), "--to", to, "--endpoint-url", gateway]
    command += ["--replay-id", wanted.replay_id, "--chunk", "20", "--rate", "20"]
    command += ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_for(lambda: sent_count(wanted.ledger) >= 40, 200)
    finally:
        kill_session(process.pid)
        process.wait(30)
    assert sent_count(wanted.ledger) < 200
    replay(read_archive(spark, str(archive)), wanted)
    assert by_group(received(gateway, to)) == expected_groups(200)


def test_a_replay_id_belongs_to_one_destination(
    spark: SparkSession, archive: Path, gateway: str, make_queue: Callable[..., str]
) -> None:
    wanted = plan(archive, gateway, make_queue(gateway), selection=ReplaySelection(limit=1))
    rows = read_archive(spark, str(archive))
    replay(rows, wanted)
    with pytest.raises(ReplayMismatch, match="was used to send to"):
        replay(rows, wanted._replace(to=make_queue(gateway)))
    with pytest.raises(BadReplay, match="no replay id"):
        ledger_in(str(archive), "../elsewhere")


def test_messages_without_room_for_an_attribute_go_without(
    spark: SparkSession, tmp_path: Path, gateway: str, make_queue: Callable[..., str]
) -> None:
    full = text_attributes(**{f"a{number}": "v" for number in range(10)})
    replayed = text_attributes(**{f"a{number}": "v" for number in range(9)}, replayed_from="old")
    large = "x" * ((1 << 20) - 40)
    rows = frame(
        spark,
        [
            row(1, message_attributes=full),
            row(2, message_attributes=replayed),
            row(3, body=large),
            row(4, message_attributes=None),
        ],
    )
    to = make_queue(gateway)
    wanted = plan(tmp_path, gateway, to)
    assert replay(rows, wanted).without_origin == 2
    found = {one["Body"]: one.get("MessageAttributes", {}) for one in received(gateway, to)}
    assert sorted(found["body 1"]) == [f"a{number}" for number in range(10)]
    assert found[large] == {}
    origin = f"{wanted.replay_id}/orders/{row(2)['message_id']}"
    assert found["body 2"]["replayed_from"]["StringValue"] == origin
    assert [*found["body 4"]] == ["replayed_from"]


def test_a_topic_gets_them_too(
    spark: SparkSession, archive: Path, gateway: str, make_queue: Callable[..., str]
) -> None:
    topic = client_of("sns", gateway).create_topic(Name="replayed")["TopicArn"]
    url = make_queue(gateway)
    arn = client_of("sqs", gateway).get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    client_of("sns", gateway).subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn["Attributes"]["QueueArn"],
        Attributes={"RawMessageDelivery": "true"},
    )
    wanted = plan(archive, gateway, topic, selection=ReplaySelection(limit=3))
    assert replay(read_archive(spark, str(archive)), wanted).sent == 3
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found.extend(received(gateway, url))
        return len(found) == 3

    wait_for(are_there)
    assert sorted(one["Body"] for one in found) == ["body 0", "body 1", "body 2"]


def test_a_selection_is_by_time_group_and_condition(spark: SparkSession) -> None:
    rows = frame(spark, fifo_rows(30))
    since, until = micros(BEGINNING + 10 * MINUTE), micros(BEGINNING + 20 * MINUTE)
    assert len(ids(selected(rows, ReplaySelection(since, until)))) == 10
    chosen = ReplaySelection(since, until, groups=("g1",), where="body <> 'body 11'")
    assert ids(selected(rows, chosen)) == [row(16)["message_id"]]
    assert ids(selected(rows, ReplaySelection(limit=2))) == [
        row(0)["message_id"],
        row(1)["message_id"],
    ]
