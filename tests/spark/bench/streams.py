"""Streams to measure: how many messages a second, how late, at whose cost."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_connectors.log.log_api import LogCalls
from spark_connectors.transport.aws import Connection, open_transport
from spark_connectors.transport.aws.message_calls import MessageEntry
from spark_connectors.transport.http import json_text
from tests.spark.bench.processes import Served, cpu_seconds, tree
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BODY_BYTES = 500
_BATCH = 10_000
_MOST_RECORDS = 1_000
Options = dict[str, object]
_MICROSECONDS = 1e6


class Rate(NamedTuple):
    """The rate of a stream. CPU in microseconds a message."""

    name: str
    per_second: float
    gateway_us: float
    spark_us: float
    batches: int


class Lateness(NamedTuple):
    """From the send to the sink, in seconds."""

    name: str
    p50: float
    p95: float
    p99: float
    batch_ms: float


def new_queue(served: Served) -> str:
    """The URL of an empty queue."""
    import boto3

    client: Any = boto3.client("sqs", endpoint_url=served.endpoint, region_name="us-east-1")
    return str(client.create_queue(QueueName=f"bench-{uuid.uuid4().hex[:12]}")["QueueUrl"])


def fill(served: Served, url: str, count: int) -> None:
    """So many messages of 500 bytes."""
    transport = open_transport(Connection(endpoint_url=served.endpoint, region="us-east-1"))
    entries = [MessageEntry("x" * _BODY_BYTES)] * 10
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda _: transport.send(url, entries), range(count // 10)):
            pass
    transport.close()


def fill_log(served: Served, log: str, count: int) -> None:
    """The same as records, of sixteen keys."""
    calls = LogCalls(Connection(endpoint_url=served.endpoint, region="us-east-1"))
    some = [
        json_text.dumps({"key": f"k{number % 16}", "payload": "x" * _BODY_BYTES})
        for number in range(_MOST_RECORDS)
    ]
    for _ in range(count // _MOST_RECORDS):
        calls.publish(log, some)


def full_log(spark: SparkSession, served: Served, count: int, options: Options) -> DataFrame:
    """A log of so many records, as a stream."""
    log = f"bench-{uuid.uuid4().hex[:12]}"
    fill_log(served, log, count)
    reader = spark.readStream.format("queuegate-log").options(
        endpointUrl=served.endpoint, subscribe=log, region="us-east-1", startingOffsets="earliest"
    )
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def full_queue(
    spark: SparkSession, served: Served, count: int, options: Options, place: str
) -> DataFrame:
    """A queue of so many messages, as a stream."""
    url = new_queue(served)
    fill(served, url, count)
    return stream_of(spark, served, url, place, options)


def stream_of(
    spark: SparkSession, served: Served, url: str, place: str, options: Options
) -> DataFrame:
    """The queue as a stream."""
    reader = spark.readStream.format("sqs").options(
        endpointUrl=served.endpoint, queueUrl=url, region="us-east-1", spoolPath=f"{place}/spool"
    )
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def rate(spark: SparkSession, served: Served, name: str, count: int, **options: object) -> Rate:
    """Read a queue that is full, or a log, into Parquet, in batches of 10,000; the steady part
    counts: from the end of the first full batch to the end of the last one."""
    options = {"maxOffsetsPerTrigger": _BATCH, **options}
    is_log = options.pop("of", "queue") == "log"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        rows = (
            full_log(spark, served, count, options)
            if is_log
            else full_queue(spark, served, count, options, place)
        )
        gateway, ours = tree(served.pid), tree(os.getpid())
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", f"{place}/checkpoint")
            .option("path", f"{place}/table")
            .start()
        )
        marks = [(time.monotonic(), 0, cpu_seconds(gateway), cpu_seconds(ours))]
        done = batches = 0

        def read_all() -> bool:
            nonlocal done, batches
            assert query.exception() is None, query.exception()
            # Each once, and its rows alone: as JSON, all of them cost a tenth of what is measured.
            progress = query._jsq.recentProgress()
            if len(progress) > batches:
                done += sum(progress[n].numInputRows() for n in range(batches, len(progress)))
                batches = len(progress)
                spark_tree = tree(os.getpid()) | ours
                marks.append(
                    (time.monotonic(), done, cpu_seconds(gateway), cpu_seconds(spark_tree))
                )
            return bool(done >= count)

        try:
            # To ask Spark for progress costs it more than a small batch does.
            wait_for(read_all, 600, pause_seconds=0.5)
        finally:
            query.stop()
        last = marks[-1]
        first = next((one for one in marks[:-1] if one[1] >= _BATCH), marks[0])
        seen = max(1, last[1] - first[1])
        return Rate(
            name,
            seen / (last[0] - first[0]),
            (last[2] - first[2]) / seen * _MICROSECONDS,
            (last[3] - first[3]) / seen * _MICROSECONDS,
            len(query.recentProgress),
        )


def lateness(
    spark: SparkSession, served: Served, name: str, seconds: int, **options: object
) -> Lateness:
    """200 messages a second, one at a time; late is from SentTimestamp to the sink's turn."""
    url = new_queue(served)
    late: list[float] = []

    def take(rows: DataFrame, _: int) -> None:
        sent = [row[0] for row in rows.selectExpr("unix_millis(sent_timestamp)").collect()]
        now = time.time() * 1000
        late.extend((now - one) / 1000 for one in sent)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        query = (
            stream_of(spark, served, url, place, dict(options))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", f"{place}/checkpoint")
            .start()
        )
        try:
            fill(served, url, 10)
            wait_for(lambda: len(late) >= 10)
            late.clear()
            _produce(served, url, seconds)
            wait_for(lambda: len(late) >= seconds * 200)
            durations = [
                one["durationMs"]["triggerExecution"]
                for one in query.recentProgress
                if one["numInputRows"]
            ]
        finally:
            query.stop()
    cuts = statistics.quantiles(late, n=100)
    return Lateness(name, cuts[49], cuts[94], cuts[98], statistics.median(durations))


def _produce(served: Served, url: str, seconds: int) -> None:
    transport = open_transport(Connection(endpoint_url=served.endpoint, region="us-east-1"))
    pause = threading.Event()
    began = time.monotonic()
    for number in range(seconds * 200):
        transport.send(url, [MessageEntry("x" * _BODY_BYTES)])
        pause.wait(max(0.0, began + (number + 1) / 200 - time.monotonic()))
    transport.close()
