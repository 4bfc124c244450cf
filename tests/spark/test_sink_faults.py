"""A sink's task while the service, or the way to it, fails; without Spark."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_connectors.errors import Fault, Refused
from spark_connectors.sink.deduplication import Identity
from spark_connectors.sink.message_columns import find_columns
from spark_connectors.sink.message_sink import Messages, MessageSinkPlan, RowRefused
from spark_connectors.sink.packing import Batching, Destination, OutgoingRow
from spark_connectors.sink.sender import NotTaken, Pace, Sender, SendTotals
from spark_connectors.sink.sink_options import queue_settings
from spark_connectors.sink.writers import SendSettings, send
from spark_connectors.transport.aws import open_transport
from spark_connectors.transport.aws.message_calls import MessageEntry
from tests.spark.faulty_endpoint import Faults, faulty
from tests.spark.queues import client_of

MakeQueue = Callable[..., str]


def write(endpoint: str, columns: Mapping[str, object], **options: object) -> SendTotals:
    """Send one partition of these columns."""
    table = pa.table(columns)
    given = {"endpointUrl": endpoint, **{name: str(value) for name, value in options.items()}}
    settings = queue_settings(given)
    plan = MessageSinkPlan(
        "test", settings, find_columns(from_arrow_schema(table.schema), settings)
    )
    transport = open_transport(settings.connection)
    try:
        target = Messages(plan, Identity("job", 0), transport)
        return send(target, plan.manner, table.to_batches(97))
    finally:
        transport.close()


def drained(endpoint: str, url: str) -> list[dict[str, Any]]:
    """Every message of a queue, deleted, in the order received."""
    return list(_drained(client_of("sqs", endpoint), url))


def _drained(sqs: Any, url: str) -> Iterator[dict[str, Any]]:
    while True:
        got = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        if not got:
            return
        yield from got
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(got)]
        sqs.delete_message_batch(QueueUrl=url, Entries=entries)


def orders(count: int, groups: int) -> dict[str, object]:
    """Rows with a business key, whose bodies count up in each group."""
    return {
        "body": [f"{n:06d}" for n in range(count)],
        "message_group_id": [f"g{n % groups}" for n in range(count)],
        "id": list(range(count)),
    }


def bodies_by_group(messages: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for message in messages:
        found[message["Attributes"]["MessageGroupId"]].append(message["Body"])
    return dict(found)


def tenth_fails(seed: int) -> Callable[[int, dict[str, Any]], bool]:
    chance = random.Random(seed)
    return lambda number, entry: chance.random() < 0.1


@pytest.mark.parametrize("groups", [20, 3])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_strict_order_holds_while_a_tenth_of_the_entries_fails(
    gateway: str, make_queue: MakeQueue, groups: int, concurrency: int
) -> None:
    url = make_queue(gateway, fifo=True)
    faults = Faults(entry=tenth_fails(groups))
    with faulty(gateway, faults) as endpoint:
        totals = write(
            endpoint,
            orders(1000, groups),
            queueUrl=url,
            deduplicationColumns="id",
            concurrency=concurrency,
        )
    assert totals.rows == 1000
    assert totals.retries == faults.failed_count > 50
    found = bodies_by_group(drained(gateway, url))
    assert found == {
        f"g{group}": [f"{n:06d}" for n in range(group, 1000, groups)] for group in range(groups)
    }


def test_standard_queue_gets_every_row_while_a_tenth_of_the_entries_fails(
    gateway: str, make_queue: MakeQueue
) -> None:
    url = make_queue(gateway)
    with faulty(gateway, Faults(entry=tenth_fails(1))) as endpoint:
        totals = write(
            endpoint, {"body": [str(n) for n in range(500)]}, queueUrl=url, concurrency=3
        )
    assert totals.rows == 500
    assert sorted(int(m["Body"]) for m in drained(gateway, url)) == list(range(500))


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_lost_answer_duplicates_nothing_on_fifo(
    gateway: str, make_queue: MakeQueue, transport: str
) -> None:
    url = make_queue(gateway, fifo=True)
    with faulty(gateway, Faults(loses_answer=lambda number: number % 3 == 1)) as endpoint:
        write(
            endpoint,
            orders(100, 7),
            queueUrl=url,
            deduplicationColumns="id",
            transport=transport,
        )
    found = bodies_by_group(drained(gateway, url))
    assert found == {f"g{group}": [f"{n:06d}" for n in range(group, 100, 7)] for group in range(7)}


def test_entry_that_always_fails_ends_the_task(gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway)
    faults = Faults(entry=lambda number, entry: entry["MessageBody"] == "bad")
    with (
        faulty(gateway, faults) as endpoint,
        pytest.raises(NotTaken, match=r"row 1 of its partition failed 3 times, .*InternalError"),
    ):
        write(endpoint, {"body": ["a", "bad", "b"]}, queueUrl=url, maxRetries=2)
    assert faults.failed_count == 3
    assert sorted(m["Body"] for m in drained(gateway, url)) == ["a", "b"]


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_missing_queue_is_named(gateway: str, make_queue: MakeQueue, transport: str) -> None:
    url = make_queue(gateway) + "-no-such"
    with pytest.raises(Refused, match=r"^QueueDoesNotExist: .*\(sending to http.*-no-such\)$"):
        write(gateway, {"body": ["x"]}, queueUrl=url, transport=transport)
    with pytest.raises(Refused, match=r"^QueueDoesNotExist: .*'no-such-queue'"):
        write(gateway, {"body": ["x"]}, queueName="no-such-queue", transport=transport)


def test_row_the_service_refuses_ends_the_task(gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway, fifo=True)
    rows = {"body": ["a"], "group_id": ["not allowed \u00e9"], "message_deduplication_id": ["1"]}
    with pytest.raises(RowRefused, match=r"row 0 of partition 0, .*deadLetterQueueUrl would set"):
        write(gateway, rows, queueUrl=url)


BAD_ROWS = [
    ({"body": [None]}, "MissingBody: body is null"),
    ({"body": [""]}, "MissingBody: body is empty"),
    ({"body": ["bell \x07"]}, "InvalidMessageContents: body holds a character"),
    ({"body": ["\ufffe"]}, "InvalidMessageContents: body holds a character"),
    ({"body": [b"\xff\x00"]}, "InvalidMessageContents: body is not UTF-8 at byte 0; .*base64"),
    ({"body": ["x" * 1_100_000]}, "MessageTooLong: 1100000 bytes .* takes 1048576"),
    ({"body": ["x"], "delay_seconds": [901]}, "InvalidDelay: delay_seconds 901"),
    ({"body": ["x"], "message_attributes": [[("a", "v" * 1_048_576)]]}, "MessageTooLong"),
]


@pytest.mark.parametrize(("row", "why"), BAD_ROWS, ids=[why[:24] for _, why in BAD_ROWS])
def test_bad_row_is_refused_before_anything_is_sent(
    gateway: str, make_queue: MakeQueue, row: dict[str, list[object]], why: str
) -> None:
    faults = Faults()
    types: dict[str, pa.DataType] = {
        "body": pa.binary() if isinstance(row["body"][0], bytes) else pa.string(),
        "delay_seconds": pa.int32(),
        "message_attributes": pa.map_(pa.string(), pa.string()),
    }
    columns = {name: pa.array(values, types[name]) for name, values in row.items()}
    url = make_queue(gateway)
    with (
        faulty(gateway, faults) as endpoint,
        pytest.raises(RowRefused, match=f"^row 0 of partition 0: {why}"),
    ):
        write(endpoint, columns, queueUrl=url)
    assert faults.send_count == 0


def test_fifo_rows_need_group_and_id(gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway, fifo=True)
    ids = ["1", None]
    rows = {"body": ["a", "b"], "group_id": ["g", "g"], "message_deduplication_id": ids}
    with pytest.raises(RowRefused, match=r"^row 1 .*'g': MissingDeduplicationId: message_dedup"):
        write(gateway, rows, queueUrl=url)
    none = pa.array([None, "g"], pa.string())
    with pytest.raises(RowRefused, match=r"^row 0 of partition 0: MissingGroupId: "):
        write(gateway, {**rows, "group_id": none}, queueUrl=url, deduplication="content")


def test_dead_letters_say_what_was_refused_and_why(gateway: str, make_queue: MakeQueue) -> None:
    url, letters = make_queue(gateway, fifo=True), make_queue(gateway)
    columns = {
        "body": [b"good", b"\xff\x00", b"x" * 1_100_000, b"bell \x07", b"grouped"],
        "group_id": ["g", "g", "g", "g", "not allowed \u00e9"],
        "message_attributes": pa.array(
            [[], [("kind", "first")], [], [], []], pa.map_(pa.string(), pa.string())
        ),
        "id": [1, 2, 3, 4, 5],
    }
    totals = write(
        gateway, columns, queueUrl=url, deduplicationColumns="id", deadLetterQueueUrl=letters
    )
    assert (totals.rows, totals.dead_letters) == (1, 4)
    assert [m["Body"] for m in drained(gateway, url)] == ["good"]
    found = {
        m["MessageAttributes"]["error_message"]["StringValue"][:16]: m
        for m in drained(gateway, letters)
    }
    assert len(found) == 4
    undecodable = next(m for text, m in found.items() if text.startswith("body is not UTF"))
    shown = {name: value["StringValue"] for name, value in undecodable["MessageAttributes"].items()}
    assert undecodable["Body"] == "/wA="
    assert shown == {
        "error_code": "InvalidMessageContents",
        "error_message": shown["error_message"],
        "original_destination": url,
        "original_group_id": "g",
        "original_deduplication_id": shown["original_deduplication_id"],
        "original_attributes": '{"kind": ["String", "first"]}',
        "body_encoding": "base64",
    }
    assert len(shown["original_deduplication_id"]) == 64


def test_dead_letter_of_a_row_that_is_too_long_is_cut_and_says_so(
    gateway: str, make_queue: MakeQueue
) -> None:
    url, letters = make_queue(gateway), make_queue(gateway, fifo=True)
    rows = {"body": ["\u00e9" * 600_000]}
    for _ in range(2):  # as when a task is tried again
        assert write(gateway, rows, queueUrl=url, deadLetterQueueUrl=letters).dead_letters == 1
    (letter,) = drained(gateway, letters)
    assert letter["MessageAttributes"]["original_body_bytes"]["StringValue"] == "1200000"
    assert letter["MessageAttributes"]["error_code"]["StringValue"] == "MessageTooLong"
    assert set(letter["Body"]) == {"\u00e9"}
    assert 1_000_000 < len(letter["Body"].encode()) < 1_048_576


def test_dead_letter_that_is_refused_too_ends_the_task(gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway)
    missing = make_queue(gateway) + "-no-such"
    rows = pa.array([None], pa.string())
    with pytest.raises(Refused, match=r"QueueDoesNotExist.*-no-such"):
        write(gateway, {"body": rows}, queueUrl=url, deadLetterQueueUrl=missing)


def test_routed_rows_to_a_missing_queue_become_dead_letters(
    gateway: str, make_queue: MakeQueue
) -> None:
    one, other, letters = (make_queue(gateway) for _ in range(3))
    missing = make_queue(gateway) + "-no-such"
    rows = {
        "body": ["a", "b", "c", "d"],
        "queue_url": [one, missing, other, None],
    }
    totals = write(gateway, rows, deadLetterQueueUrl=letters)
    assert (totals.rows, totals.dead_letters) == (2, 2)
    assert [m["Body"] for m in drained(gateway, one)] == ["a"]
    assert [m["Body"] for m in drained(gateway, other)] == ["c"]
    codes = {
        m["Body"]: m["MessageAttributes"]["error_code"]["StringValue"]
        for m in drained(gateway, letters)
    }
    assert codes == {"b": "QueueDoesNotExist", "d": "MissingDestination"}
    with pytest.raises(Refused, match="QueueDoesNotExist"):
        write(gateway, {"body": ["b"], "queue_url": [missing]})


def test_batches_are_packed_by_bytes(gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway)
    faults = Faults()
    with faulty(gateway, faults) as endpoint:
        totals = write(endpoint, {"body": ["x" * 200 * 1024] * 12}, queueUrl=url)
    assert (totals.calls, totals.byte_count) == (3, 12 * 200 * 1024)
    assert faults.batch_sizes == [5, 5, 2]


@pytest.mark.parametrize(("ordering", "most_calls"), [("strict", 120), ("relaxed", 100)])
def test_rows_sorted_by_group_are_packed_all_the_same(
    gateway: str, make_queue: MakeQueue, ordering: str, most_calls: int
) -> None:
    url = make_queue(gateway, fifo=True)
    columns = {
        "body": [f"{n:06d}" for n in range(1000)],
        "group_id": [f"g{n // 50}" for n in range(1000)],
        "id": list(range(1000)),
    }
    totals = write(
        gateway,
        columns,
        queueUrl=url,
        deduplicationColumns="id",
        fifoOrdering=ordering,
    )
    assert 100 <= totals.calls <= most_calls
    found = bodies_by_group(drained(gateway, url))
    assert found == {
        f"g{group}": [f"{n:06d}" for n in range(group * 50, group * 50 + 50)] for group in range(20)
    }


def test_order_by_sorts_the_partition_before_it_is_sent(
    gateway: str, make_queue: MakeQueue
) -> None:
    url = make_queue(gateway, fifo=True)
    numbers = list(range(500))
    random.Random(5).shuffle(numbers)
    columns = {
        "body": [f"{n:06d}" for n in numbers],
        "group_id": [f"g{n % 4}" for n in numbers],
        "sequence": numbers,
    }
    write(gateway, columns, queueUrl=url, deduplicationColumns="sequence", orderBy="Sequence,body")
    found = bodies_by_group(drained(gateway, url))
    assert found == {f"g{group}": [f"{n:06d}" for n in range(group, 500, 4)] for group in range(4)}


def test_rate_is_kept_between_requests(gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway)
    now, pauses = [100.0], []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    settings = queue_settings({"endpointUrl": gateway, "queueUrl": url})
    plan = MessageSinkPlan(
        "test", settings, find_columns(StructType().add("body", "string"), settings)
    )
    sender = Sender(
        plan.open(Identity("job", 0)),
        Batching(10),
        Pace(window=100, max_retries=0, most_per_second=50),
        clock=lambda: now[0],
        pause=pause,
    )
    rows = (OutgoingRow(MessageEntry(str(n)), 3, settings.destination(url), n) for n in range(95))
    assert sender.send(rows).calls == 10
    assert pauses == pytest.approx([0.2] * 9)
    assert len(drained(gateway, url)) == 95


class Record(NamedTuple):
    """A record of a log; its key is the group."""

    group_id: str
    value: int


class Log:
    """Rows are appended to it, of each request only the first at once."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def pack(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow[Record]]:
        place = Destination("log", 1 << 20, is_fifo=True)
        for position, row in enumerate(batch.to_pylist()):
            yield OutgoingRow(Record(row["key"], row["value"]), 8, place, position)

    def send(self, destination: Destination, entries: Sequence[Record]) -> list[int | Fault]:
        assert destination.address == "log"
        self.records.append(entries[0])
        behind: Any = [Fault("Busy", "not now", is_senders=False)] * (len(entries) - 1)
        return [len(self.records), *behind]

    def refused(self, row: OutgoingRow[Record], fault: Fault) -> OutgoingRow[Record]:
        raise AssertionError(fault)


def test_another_service_is_sent_to_in_the_same_way() -> None:
    log, keys = Log(), "abca"
    table = pa.table({"key": [*keys], "value": [3, 2, 1, 0]})
    manner = SendSettings(Batching(10), Pace(window=100, max_retries=50), order_by=("value",))
    assert send(log, manner, table.to_batches()).rows == 4
    assert sorted(log.records) == [("a", 0), ("a", 3), ("b", 2), ("c", 1)]
    assert [record.value for record in log.records if record.group_id == "a"] == [0, 3]


def test_rows_at_the_limit_are_taken(gateway: str, make_queue: MakeQueue) -> None:
    url = make_queue(gateway)
    attributes = pa.array([[("n", "\u00e9" * 50)]], pa.map_(pa.string(), pa.string()))
    room = (1 << 20) - len("n") - len("String") - len(("\u00e9" * 50).encode())
    assert (
        write(
            gateway, {"body": ["x" * room], "message_attributes": attributes}, queueUrl=url
        ).byte_count
        == 1 << 20
    )
    with pytest.raises(RowRefused, match="MessageTooLong: 1048577 bytes"):
        write(gateway, {"body": ["x" * (room + 1)], "message_attributes": attributes}, queueUrl=url)
