"""The ways in which a load sends, receives and deletes numbered messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tests.faces.clients import authorization
from tests.faces.connections import request_bytes
from tests.faults.client import Client, Unanswered

VISIBILITY_SECONDS = 2
_COUNTERS = ("", "NotVisible", "Delayed")
_LEAD_SECONDS = 30
"""A schedule whose time has passed before it is created never fires, as on AWS."""

Received = list[tuple[str, str]]
"""(body, handle) of each message."""


class Wire(Protocol):
    """One API. ``service`` is that of the senders' clients."""

    service: str
    is_fifo: bool

    async def send(self, client: Client, bodies: Sequence[str]) -> list[str]:
        """Send and return the bodies that were acknowledged."""

    async def receive(self, client: Client) -> Received:
        """Wait up to a second for messages."""

    async def delete(self, client: Client, handles: Sequence[str]) -> list[int]:
        """Delete and return the places of the handles whose delete was acknowledged."""

    async def holds(self, client: Client) -> bool:
        """Return True if a message is left, in whatever state."""


class QueueWire:
    """A queue over SQS."""

    service = "sqs"

    def __init__(self, queue_url: str) -> None:
        self.queue_url = queue_url
        self.is_fifo = queue_url.endswith(".fifo")

    async def send(self, client: Client, bodies: Sequence[str]) -> list[str]:
        entries = [{"MessageBody": body, **self._fifo_members(body)} for body in bodies]
        if len(entries) == 1:
            await client.call("SendMessage", QueueUrl=self.queue_url, **entries[0])
            return [*bodies]
        named = [{"Id": str(place), **entry} for place, entry in enumerate(entries)]
        answer = await client.call("SendMessageBatch", QueueUrl=self.queue_url, Entries=named)
        return [bodies[place] for place in _done(answer)]

    def _fifo_members(self, body: str) -> dict[str, str]:
        group = body.partition(".")[0]
        return {"MessageGroupId": group, "MessageDeduplicationId": body} if self.is_fifo else {}

    async def receive(self, client: Client) -> Received:
        answer = await client.call(
            "ReceiveMessage",
            QueueUrl=self.queue_url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=VISIBILITY_SECONDS,
            WaitTimeSeconds=1,
        )
        messages = answer.get("Messages", [])
        return [(message["Body"], message["ReceiptHandle"]) for message in messages]

    async def delete(self, client: Client, handles: Sequence[str]) -> list[int]:
        entries = [{"Id": str(place), "ReceiptHandle": one} for place, one in enumerate(handles)]
        answer = await client.call("DeleteMessageBatch", QueueUrl=self.queue_url, Entries=entries)
        return _done(answer)

    async def holds(self, client: Client) -> bool:
        names = [f"ApproximateNumberOfMessages{name}" for name in _COUNTERS]
        members = {"QueueUrl": self.queue_url, "AttributeNames": names}
        answer = await client.call("GetQueueAttributes", **members)
        return any(int(count) for count in answer["Attributes"].values())


def _done(answer: dict[str, Any]) -> list[int]:
    """Return the places of a batch that were done; a batch that all failed here is no answer."""
    failed = answer.get("Failed", [])
    if "Successful" not in answer and any(not entry["SenderFault"] for entry in failed):
        raise Unanswered(failed[0])
    return [int(entry["Id"]) for entry in answer.get("Successful", [])]


class TopicWire(QueueWire):
    """A topic that has a subscribed queue, with raw delivery."""

    service = "sns"

    def __init__(self, topic: str, queue_url: str) -> None:
        super().__init__(queue_url)
        self._topic = topic

    async def send(self, client: Client, bodies: Sequence[str]) -> list[str]:
        entries = [{"Message": body, **self._fifo_members(body)} for body in bodies]
        if len(entries) == 1:
            await client.call("Publish", TopicArn=self._topic, **entries[0])
            return [*bodies]
        named = [{"Id": str(place), **entry} for place, entry in enumerate(entries)]
        members = {"TopicArn": self._topic, "PublishBatchRequestEntries": named}
        answer = await client.call("PublishBatch", **members)
        return [bodies[place] for place in _done(answer)]


async def ask_json(
    client: Client, account: str, method: str, path: str, body: Any = None, service: str = "sqs"
) -> dict[str, Any]:
    """Call a JSON API and return its answer."""
    headers = {"Host": "localhost", "Authorization": authorization(account, service=service)}
    data = b"" if body is None else json.dumps(body).encode()
    return await client.ask(request_bytes(method, path, headers, data))


class ChannelWire:
    """A channel: published to, polled and acknowledged."""

    service = "sqs"
    is_fifo = False

    def __init__(self, account: str, channel: str = "alerts") -> None:
        self._account = account
        self._channel = channel

    async def send(self, client: Client, bodies: Sequence[str]) -> list[str]:
        messages = [{"channel": self._channel, "payload": body} for body in bodies]
        answer = await ask_json(client, self._account, "POST", "/v1/messages/bulk", messages)
        if not (
            done := [
                one for one, said in zip(bodies, answer["results"], strict=True) if "id" in said
            ]
        ):
            raise Unanswered(answer["results"][0])
        return done

    async def receive(self, client: Client) -> Received:
        path = f"/v1/messages/poll?channel={self._channel}&max=10&wait=1"
        answer = await ask_json(client, self._account, "GET", f"{path}&window={VISIBILITY_SECONDS}")
        return [(one["payload"], one["ack"]) for one in answer["messages"]]

    async def delete(self, client: Client, handles: Sequence[str]) -> list[int]:
        body = {"channel": self._channel, "acks": [*handles]}
        answer = await ask_json(client, self._account, "POST", "/v1/messages/ack", body)
        results = [one["result"] for one in answer["results"]]
        return [place for place, result in enumerate(results) if result == "acknowledged"]

    async def holds(self, client: Client) -> bool:
        path = f"/v1/metrics?channel={self._channel}"
        [found] = (await ask_json(client, self._account, "GET", path))["channels"]
        return bool(found["depth"] + found["in_flight"] + found["delayed"])


class ScheduleWire(QueueWire):
    """A queue that is the target of one schedule for each message."""

    service = "scheduler"

    def __init__(self, account: str, queue_url: str, role: str) -> None:
        super().__init__(queue_url)
        self._account = account
        self._arn = f"arn:aws:sqs:us-east-1:{account}:{queue_url.rpartition('/')[2]}"
        self._role = role

    async def send(self, client: Client, bodies: Sequence[str]) -> list[str]:
        done: list[str] = []
        for body in bodies:
            at = datetime.now(UTC) + timedelta(seconds=_LEAD_SECONDS)
            members = {
                "ScheduleExpression": f"at({at:%Y-%m-%dT%H:%M:%S})",
                "FlexibleTimeWindow": {"Mode": "OFF"},
                "ActionAfterCompletion": "DELETE",
                "Target": {"Arn": self._arn, "RoleArn": self._role, "Input": body},
            }
            await ask_json(
                client, self._account, "POST", f"/schedules/{body}", members, self.service
            )
            done.append(body)
        return done

    async def holds(self, client: Client) -> bool:
        left = await ask_json(
            client, self._account, "GET", "/schedules?MaxResults=1", service=self.service
        )
        return bool(left["Schedules"]) or await super().holds(client)
