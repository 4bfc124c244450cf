"""Steps on a queue without the connectors, by boto3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3

REGION = "us-east-1"


def client_of(service: str, endpoint: str) -> Any:
    """A boto3 client."""
    return boto3.client(service, endpoint_url=endpoint, region_name=REGION)


def fill(
    endpoint: str, url: str, bodies: list[str], *, group: Callable[[str], str] | None = None
) -> None:
    """Send these bodies; ``group`` gives each its message group."""
    client = client_of("sqs", endpoint)
    for at in range(0, len(bodies), 10):
        entries = []
        for number, body in enumerate(bodies[at : at + 10]):
            entry: dict[str, Any] = {"Id": str(number), "MessageBody": body}
            if group:
                entry |= {
                    "MessageGroupId": group(body),
                    "MessageDeduplicationId": body.replace(" ", "-"),
                }
            entries.append(entry)
        assert not client.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")


def bodies_of(count: int) -> list[str]:
    """So many different bodies."""
    return [f"body {number}" for number in range(count)]


def queue_with(count: int, endpoint: str, make_queue: Callable[..., str], **attributes: str) -> str:
    """The URL of a new queue that has bodies_of(count)."""
    url = make_queue(endpoint, **attributes)
    fill(endpoint, url, bodies_of(count))
    return url


def counts(endpoint: str, url: str) -> tuple[int, int]:
    """Messages visible and in flight."""
    found = client_of("sqs", endpoint).get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    attributes = found["Attributes"]
    return (
        int(attributes["ApproximateNumberOfMessages"]),
        int(attributes["ApproximateNumberOfMessagesNotVisible"]),
    )
