"""The sinks in Spark: columns, destinations, what a user gets to see."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from spark_connectors.errors import ConnectorError
from spark_connectors.sink.sns_data_source import OnlyWritable, SnsDataSource, sqs_writer
from tests.spark.faulty_endpoint import Faults, faulty
from tests.spark.queues import client_of
from tests.spark.test_sink_faults import bodies_by_group, drained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., str]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session that knows both formats."""
    from spark_connectors.source.sqs_data_source import SqsDataSource

    spark.dataSource.register(SqsDataSource)
    spark.dataSource.register(SnsDataSource)
    return spark


@pytest.fixture
def make_topic() -> Callable[..., str]:
    """Create a topic and return its ARN."""

    def make(endpoint: str, *, fifo: bool = False) -> str:
        suffix = ".fifo" if fifo else ""
        attributes = {"FifoTopic": "true"} if fifo else {}
        created = client_of("sns", endpoint).create_topic(
            Name=f"spark-{uuid.uuid4()}{suffix}", Attributes=attributes
        )
        arn: str = created["TopicArn"]
        return arn

    return make


def subscribe(endpoint: str, topic: str, url: str) -> None:
    """Let a queue have what is published, as it was published."""
    sqs = client_of("sqs", endpoint)
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    client_of("sns", endpoint).subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn["QueueArn"],
        Attributes={"RawMessageDelivery": "true"},
    )


def write(frame: DataFrame, endpoint: str, *, format: str = "sqs", **options: object) -> None:
    """Write a DataFrame with these options."""
    given = {name: str(value) for name, value in options.items()}
    frame.write.format(format).mode("append").options(endpointUrl=endpoint, **given).save()


def last_line(error: PySparkException) -> str:
    """Return Python's last line, before the lines of the JVM."""
    found = re.findall(r"(?:^|: )spark_connectors\.\S+: (.*)$", str(error), re.MULTILINE)
    assert found, str(error)
    line: str = found[-1]
    return line


TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
TYPED = "map<string,struct<data_type:string,string_value:string,binary_value:binary>>"


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_all_columns_of_a_message_arrive(
    session: SparkSession, endpoint: str, make_queue: MakeQueue, transport: str
) -> None:
    url = make_queue(endpoint, fifo=True)
    attributes = {
        "text": ("String", "one", None),
        "number": ("Number", "2", None),
        "bytes": ("Binary", None, bytearray(b"\x00\xff")),
    }
    frame = session.createDataFrame(
        [("h\u00e9llo", "g1", "id-1", attributes, "ignored"), ("plain", "g2", "id-2", None, None)],
        f"body string, message_group_id string, message_deduplication_id string, "
        f"message_attributes {TYPED}, message_id string",
    )
    write(frame, endpoint, queueUrl=url, transport=transport)
    first, second = sorted(drained(endpoint, url), key=lambda message: message["Body"])
    assert (first["Body"], second["Body"]) == ("h\u00e9llo", "plain")
    assert first["Attributes"]["MessageGroupId"] == "g1"
    assert first["Attributes"]["MessageDeduplicationId"] == "id-1"
    sent = first["MessageAttributes"]
    assert sent["text"] == {"StringValue": "one", "DataType": "String"}
    assert sent["number"] == {"StringValue": "2", "DataType": "Number"}
    assert sent["bytes"] == {"BinaryValue": b"\x00\xff", "DataType": "Binary"}
    assert "MessageAttributes" not in second


def test_names_of_other_connectors_work(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    url = make_queue(gateway, fifo=True)
    frame = session.createDataFrame(
        [("a", {"k": "v"}, "g")], "value string, msg_attributes map<string,string>, group_id string"
    )
    (
        frame.write.format("sqs")
        .mode("append")
        .option("queueName", url.rpartition("/")[2])
        .option("batchSize", 10)
        .option("region", "us-east-1")
        .option("endpoint", gateway)
        .option("deduplication", "content")
        .save()
    )
    (message,) = drained(gateway, url)
    assert message["Body"] == "a"
    assert message["MessageAttributes"] == {"k": {"StringValue": "v", "DataType": "String"}}


def test_delay_of_a_row(session: SparkSession, gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway)
    frame = session.createDataFrame(
        [("now", None), ("later", 900)], "body string, delay_seconds int"
    )
    write(frame, gateway, queueUrl=url)
    assert [message["Body"] for message in drained(gateway, url)] == ["now"]
    sqs = client_of("sqs", gateway)
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesDelayed"] == "1"


def test_rows_go_where_their_column_says_unless_an_option_does(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    urls = [make_queue(gateway), make_queue(gateway, fifo=True)]
    frame = session.createDataFrame(
        [(f"{n}", urls[n % 2], "g", f"{n}") for n in range(40)],
        "body string, queue_url string, group_id string, message_deduplication_id string",
    ).coalesce(1)
    write(frame, gateway)
    evens, odds = (drained(gateway, url) for url in urls)
    assert sorted(int(m["Body"]) for m in evens) == list(range(0, 40, 2))
    assert [int(m["Body"]) for m in odds] == list(range(1, 40, 2))
    chosen = make_queue(gateway)
    write(frame, gateway, queueUrl=chosen)
    assert len(drained(gateway, chosen)) == 40


def test_rows_of_the_source_are_written_unchanged(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    from spark_connectors.rows.row_columns import RowShape, spark_schema

    schema = spark_schema(RowShape())
    given = {
        "queue": "old.fifo",
        "message_id": "m1",
        "body": "text",
        "message_group_id": "g",
        "message_deduplication_id": "d",
        "message_attributes": {"k": ("String", "v", None)},
        "aws_trace_header": TRACE,
    }
    row = tuple(given.get(name) for name in schema.fieldNames())
    frame = session.createDataFrame([row], schema)
    fifo, standard = make_queue(gateway, fifo=True), make_queue(gateway)
    write(frame, gateway, queueUrl=fifo)
    write(frame, gateway, queueUrl=standard)
    (ordered,), (plain,) = drained(gateway, fifo), drained(gateway, standard)
    assert ordered["Attributes"]["MessageDeduplicationId"] == "d"
    assert ordered["MessageAttributes"] == plain["MessageAttributes"]
    assert set(plain["MessageAttributes"]) == {"k"}
    # moto loses it from batches.
    assert ordered["Attributes"]["AWSTraceHeader"] == plain["Attributes"]["AWSTraceHeader"] == TRACE


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_topic_gets_full_batches(
    session: SparkSession,
    endpoint: str,
    make_queue: MakeQueue,
    make_topic: Callable[..., str],
    tmp_path: Path,
    transport: str,
) -> None:
    topic, url = make_topic(endpoint), make_queue(endpoint)
    subscribe(endpoint, topic, url)
    frame = (
        session.range(300)
        .selectExpr(
            "CAST(id AS STRING) AS body",
            "'news' AS subject",
            "map('k', CAST(id AS STRING)) AS message_attributes",
        )
        .coalesce(1)
    )
    summary = tmp_path / "summary"
    write(
        frame,
        endpoint,
        format="sns",
        topicArn=topic,
        transport=transport,
        summaryPath=summary,
    )
    told = json.loads(summary.read_text())
    assert (told["rows"], told["calls"], told["partitions"]) == (300, 30, 1)
    found = drained(endpoint, url)
    assert sorted(int(message["Body"]) for message in found) == list(range(300))
    assert all(m["MessageAttributes"]["k"]["StringValue"] == m["Body"] for m in found)


def test_topics_by_row_and_their_limit(
    session: SparkSession,
    gateway: str,
    make_queue: MakeQueue,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic, url = make_topic(gateway, fifo=True), make_queue(gateway, fifo=True)
    subscribe(gateway, topic, url)
    frame = (
        session.range(12)
        .selectExpr(
            f"'{topic}' AS topic_arn", "repeat('x', 204800) AS value", "id", "'g' || id AS group_id"
        )
        .coalesce(1)
    )
    summary = tmp_path / "summary"
    write(frame, gateway, format="sns", deduplicationColumns="id", summaryPath=summary)
    assert json.loads(summary.read_text())["calls"] == 12
    assert len(drained(gateway, url)) == 12


def test_same_replay_twice_adds_nothing(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    url = make_queue(gateway, fifo=True)
    frame = session.range(50).selectExpr(
        "CAST(id AS STRING) AS body", "'q' AS queue", "'m' || id AS message_id", "'g' AS group_id"
    )
    for _ in range(2):
        write(frame.repartition(3), gateway, queueUrl=url, replayId="monday")
    assert len(drained(gateway, url)) == 50
    write(frame, gateway, queueUrl=url, replayId="tuesday")
    assert len(drained(gateway, url)) == 50


def test_id_goes_into_an_attribute_where_there_is_no_fifo(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    url = make_queue(gateway)
    frame = session.createDataFrame([("a", 7)], "body string, id long")
    write(frame, gateway, queueUrl=url, deduplicationColumns="id")
    write(frame, gateway, queueUrl=url, deduplicationColumns="id", deduplicationAttribute="none")
    write(frame, gateway, queueUrl=url, deduplicationColumns="id", deduplicationAttribute="key")
    named = [sorted(m.get("MessageAttributes", {})) for m in drained(gateway, url)]
    assert sorted(named) == [[], ["key"], ["spark_dedup_id"]]


def test_split_group_is_told_after_sending(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    url = make_queue(gateway, fifo=True)
    frame = session.range(40).selectExpr(
        "CAST(id AS STRING) AS body", "'g' || id % 4 AS group_id", "id"
    )
    options = {"queueUrl": url, "deduplicationColumns": "id", "checkGroups": "true"}
    with pytest.raises(PySparkException) as raised:
        write(frame.repartition(2), gateway, **options)
    assert "came from partitions 0 and 1" in last_line(raised.value)
    assert "have been sent already" in last_line(raised.value)
    assert len(drained(gateway, url)) == 40
    write(frame.repartition(2, "group_id"), gateway, **options)


def test_refused_row_is_the_last_thing_python_says(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    frame = session.createDataFrame([("ok",), (None,)], "body string").coalesce(1)
    with pytest.raises(PySparkException) as raised:
        write(frame, gateway, queueUrl=make_queue(gateway))
    assert last_line(raised.value) == (
        "row 1 of partition 0: MissingBody: body is null; deadLetterQueueUrl would set such rows "
        "aside"
    )


def test_stream_tells_each_batch_and_its_totals(
    session: SparkSession, gateway: str, make_queue: MakeQueue, tmp_path: Path
) -> None:
    url = make_queue(gateway, fifo=True)
    (tmp_path / "in").mkdir()
    for part in range(3):
        rows = [json.dumps({"body": f"{part}-{n}", "id": part * 10 + n}) for n in range(10)]
        (tmp_path / "in" / f"{part}.json").write_text("\n".join(rows))
    frame = (
        session.readStream.schema("body string, id long")
        .option("maxFilesPerTrigger", 1)
        .json(str(tmp_path / "in"))
        .selectExpr("*", "'g' || id % 3 AS message_group_id")
    )
    summary = tmp_path / "summary"
    query = (
        frame.writeStream.format("sqs")
        .option("endpointUrl", gateway)
        .option("queueUrl", url)
        .option("deduplication", "position")
        .option("summaryPath", str(summary))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [json.loads(line) for line in summary.read_text().splitlines()]
    assert [(line["batch"], line["rows"]) for line in told] == [(0, 10), (1, 10), (2, 10)]
    found = drained(gateway, url)
    assert len(found) == 30
    assert all(m["Attributes"]["MessageDeduplicationId"].startswith(f"{query.id}|") for m in found)
    assert len({m["Attributes"]["MessageDeduplicationId"] for m in found}) == 30
    assert sum(map(len, bodies_by_group(found).values())) == 30


def test_concurrent_writes_of_one_task(
    session: SparkSession, gateway: str, make_queue: MakeQueue
) -> None:
    url = make_queue(gateway)
    faults = Faults(entry=lambda number, entry: number % 10 == 0)
    frame = session.range(200).selectExpr("CAST(id AS STRING) AS body").coalesce(1)
    with faulty(gateway, faults) as endpoint:
        write(frame, endpoint, queueUrl=url, concurrency=8)
    assert faults.failed_count >= 20
    assert sorted(int(m["Body"]) for m in drained(gateway, url)) == list(range(200))


REFUSALS = [
    ("id long", {}, "a column 'body' \\(or 'value'\\).*there is only id.*to_json"),
    ("body long", {}, "column 'body' is bigint, expected string or binary"),
    ("body string, value string", {}, "columns 'body' and 'value' mean the same"),
    ("body string, group_id int", {}, "column 'group_id' is int, expected string"),
    ("body string, delay_seconds string", {}, "'delay_seconds' is string, expected a whole number"),
    (
        "body string, msg_attributes map<string,int>",
        {},
        "'msg_attributes' is map<string,int>, expected map<string,string> or",
    ),
    ("body string", {"deduplicationColumns": "nr"}, "there is no column 'nr' among body"),
    (
        "body string, m map<string,string>",
        {"deduplicationColumns": "m"},
        "column 'm' is map<string,string>, which cannot be used",
    ),
    ("body string, a array<int>", {"orderBy": "a"}, "column 'a' is array<int>, which cannot"),
    ("body string", {"deduplication": "column"}, "no column message_deduplication_id"),
    ("body string", {"replayId": "r"}, "column 'queue' is missing"),
    ("body string", {"queueUrl": ""}, "option 'queueUrl': expected a text"),
    ("body string", {"onError": "deadletter"}, "needs deadLetterQueueUrl"),
    ("body string", {"bachSize": "5"}, "unknown option 'bachSize': did you mean 'batchSize'"),
    (
        "body string",
        {"fifoOrdering": "relaxed", "concurrency": "2"},
        "concurrency above 1 would break the order",
    ),
    (
        "body string",
        {"deduplication": "content", "replayId": "r"},
        "deduplication and replayId: a message has one deduplication id",
    ),
]


@pytest.mark.parametrize(("schema", "options", "why"), REFUSALS)
def test_what_cannot_work_is_refused_while_planning(
    session: SparkSession, schema: str, options: dict[str, str], why: str
) -> None:
    given = {"queueUrl": "http://127.0.0.1:9/0/q", **options}
    with pytest.raises(ConnectorError, match=why):
        sqs_writer(given, session.createDataFrame([], schema).schema, False)


def test_fifo_without_ids_is_refused_with_the_choice(session: SparkSession) -> None:
    frame = session.createDataFrame([], "body string, group_id string")
    with pytest.raises(PySparkException) as raised:
        write(frame, "http://127.0.0.1:9", queueName="q.fifo")
    assert "give deduplicationColumns=" in last_line(raised.value)
    with pytest.raises(PySparkException) as raised:
        write(frame, "http://127.0.0.1:9", format="sns", topicArn="arn:aws:sns:r:1:t.fifo")
    assert "messages to a FIFO topic need" in last_line(raised.value)


def test_destination_is_required(session: SparkSession) -> None:
    frame = session.createDataFrame([], "body string")
    with pytest.raises(PySparkException) as raised:
        write(frame, "http://127.0.0.1:9")
    assert last_line(raised.value) == (
        "where to: give the option queueUrl or queueName, or a column queue_url"
    )
    with pytest.raises(PySparkException) as raised:
        write(frame, "http://127.0.0.1:9", format="sns", topicArn="news")
    assert "'news' is not the ARN of a topic" in last_line(raised.value)


def test_overwriting_is_refused(session: SparkSession) -> None:
    frame = session.createDataFrame([], "body string").write.format("sqs").mode("overwrite")
    with pytest.raises(PySparkException) as raised:
        frame.option("queueUrl", "http://127.0.0.1:9/0/q").save()
    assert "cannot be overwritten" in last_line(raised.value)


def test_topic_cannot_be_read(session: SparkSession) -> None:
    with pytest.raises(PySparkException) as raised:
        session.read.format("sns").load()
    assert "can only be written; subscribe a queue" in last_line(raised.value)
    with pytest.raises(OnlyWritable):
        SnsDataSource({}).streamReader(session.range(1).schema)
