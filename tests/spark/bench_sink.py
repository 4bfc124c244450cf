"""Rows that the sink sends per second of its own CPU time, against a running endpoint."""

from __future__ import annotations

import argparse
import os
import time
import uuid
from collections.abc import Iterator

import boto3
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from spark_connectors.sink.message_columns import Identity, find_columns
from spark_connectors.sink.message_sink import Messages, MessageSinkPlan
from spark_connectors.sink.sender import send
from spark_connectors.sink.sink_options import queue_settings
from spark_connectors.transport import open_transport

PLAIN = StructType().add("body", StringType())
KEYED = StructType().add("body", StringType()).add("group_id", StringType()).add("id", LongType())
CASES: dict[str, tuple[bool, dict[str, str]]] = {
    "standard": (False, {}),
    "FIFO, strict, 50 groups": (True, {"deduplicationColumns": "id"}),
    "FIFO, relaxed, 50 groups": (
        True,
        {"deduplicationColumns": "id", "fifoOrdering": "relaxed"},
    ),
}


def batches(count: int, size: int) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them to a task: ten thousand in a batch."""
    for start in range(0, count, 10_000):
        ids = range(start, min(start + 10_000, count))
        yield pa.record_batch(
            {
                "body": [f"{n:010d}".ljust(size, "x") for n in ids],
                "group_id": [f"g{n % 50}" for n in ids],
                "id": list(ids),
            }
        )


def measure(endpoint: str, case: str, rows: int, size: int) -> tuple[float, float]:
    """Rows per CPU-second and per second."""
    is_fifo, options = CASES[case]
    sqs = boto3.client("sqs", endpoint_url=endpoint)
    name = f"bench-{uuid.uuid4()}" + (".fifo" if is_fifo else "")
    attributes = {"FifoQueue": "true"} if is_fifo else {}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    given = {"endpointUrl": endpoint, "queueUrl": url, **options}
    settings = queue_settings(given)
    plan = MessageSinkPlan("bench", settings, find_columns(KEYED if is_fifo else PLAIN, settings))
    transport = open_transport(settings.connection)
    send(Messages(plan, Identity("warm", 0), transport), plan.sending, batches(100, size))
    ready = list(batches(rows, size))
    cpu, wall = time.process_time(), time.perf_counter()
    totals = send(Messages(plan, Identity("bench", 0), transport), plan.sending, ready)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    transport.close()
    sqs.delete_queue(QueueUrl=url)
    return totals.rows / cpu, totals.rows / wall


def main() -> None:
    """Print a line for each kind of queue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint", help="such as http://localhost:9324")
    parser.add_argument("--rows", type=int, default=30_000, help="rows a run (%(default)s)")
    parser.add_argument("--bytes", type=int, default=500, help="bytes of a body (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="the best counts (%(default)s)")
    given = parser.parse_args()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "bench")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "bench")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    print("| queue | rows per CPU-second | rows per second |")
    print("| --- | --- | --- |")
    for case in CASES:
        runs = [measure(given.endpoint, case, given.rows, given.bytes) for _ in range(given.runs)]
        per_cpu, per_second = max(runs)
        print(f"| {case} | {per_cpu:,.0f} | {per_second:,.0f} |")


if __name__ == "__main__":
    main()
