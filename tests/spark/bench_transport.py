"""Client CPU of each call: milliseconds of process time for 10 messages.

    python -m tests.spark.bench_transport --endpoint http://localhost:9324

``urllib3`` has its connections in the place of ours.
It creates one queue at the endpoint and deletes it again. Process time is that of the client
alone, so it holds on a busy machine as well.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence

import boto3
import urllib3

from spark_connectors import signed_service
from spark_connectors.endpoints import Connection, HttpAnswer, ServiceEndpoint
from spark_connectors.http_client import HttpConnectionPool
from spark_connectors.transport import MessageEntry, Transport, open_transport

CALLS = ("send", "receive", "delete")


class Urllib3Links:
    """A connection pool of urllib3 with the interface of ``HttpConnectionPool``."""

    def __init__(self, endpoint: ServiceEndpoint, *_: object) -> None:
        self._pool = urllib3.HTTPConnectionPool(endpoint.host, endpoint.port, maxsize=64)

    def ask(
        self, method: str, target: str, headers: str, body: bytes, *, timeout_seconds: float
    ) -> HttpAnswer:
        found = self._pool.urlopen(
            method,
            target,
            body=body,
            headers=dict(line.split(": ", 1) for line in headers.splitlines()),
            retries=False,
            timeout=timeout_seconds,
        )
        return HttpAnswer(found.status, found.headers, found.data)

    def close(self) -> None:
        self._pool.close()


def measured(transport: Transport, queue_url: str, *, rounds: int, body: str) -> dict[str, float]:
    """Milliseconds of CPU per call, by call, over that many rounds of 10 messages."""
    spent = dict.fromkeys(CALLS, 0.0)
    entries = [MessageEntry(body)] * 10
    receipts: list[str] = []

    def send() -> None:
        transport.send(queue_url, entries)

    def receive() -> None:
        messages = transport.receive(queue_url, visibility_seconds=600)
        receipts[:] = [message["ReceiptHandle"] for message in messages]

    def delete() -> None:
        transport.delete(queue_url, receipts)

    steps: Sequence[Callable[[], None]] = (send, receive, delete)
    for number in range(rounds + 5):
        for name, step in zip(CALLS, steps, strict=True):
            before = time.process_time()
            step()
            if number >= 5:
                spent[name] += time.process_time() - before
    return {name: 1000 * seconds / rounds for name, seconds in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--endpoint", required=True, help="where SQS is")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--rounds", type=int, default=1000, help="calls of each kind")
    parser.add_argument("--bytes", type=int, default=500, help="length of a body")
    options = parser.parse_args()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "bench")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "bench")
    sqs = boto3.client("sqs", endpoint_url=options.endpoint, region_name=options.region)
    queue_url = sqs.create_queue(QueueName=f"bench-{os.getpid()}")["QueueUrl"]
    try:
        print(
            f"{'client':8}" + "".join(f"{name + ' ms':>12}" for name in CALLS) + "  msg per CPU s"
        )
        for client in ("ours", "urllib3"):
            vars(signed_service)["HttpConnectionPool"] = (
                Urllib3Links if client == "urllib3" else HttpConnectionPool
            )
            transport = open_transport(Connection(options.endpoint, options.region))
            figures = measured(
                transport, queue_url, rounds=options.rounds, body="x" * options.bytes
            )
            transport.close()
            rate = 10_000 / (figures["receive"] + figures["delete"])
            cells = "".join(f"{figures[name]:12.3f}" for name in CALLS)
            print(f"{client:8}{cells}{rate:15,.0f}")
    finally:
        sqs.delete_queue(QueueUrl=queue_url)


if __name__ == "__main__":
    main()
