"""No value of a client reaches a flush unchecked: what no column holds is refused before.

A flush carries the entries of many clients. One that fails is repeated entry by entry, which all of
them wait for; the log of the gateway says so.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.faces.clients import authorization, new_account
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Server

TEXTS = ["", "\0", "a\0b", "\ud800", "\uffff", "x" * 300, "\u0661", "9" * 40]
NUMBERS = [-1, 2**31, 2**63 - 1, 2**63, 2**64, 10**40, -(2**63) - 1, 1e300]
STRUCTURES: list[Any] = [True, [], {}, [[]]]
VALUES = [*TEXTS, *NUMBERS, *STRUCTURES]
ACCOUNT = new_account()
MEMBERS = {
    "SendMessage": [
        "QueueUrl",
        "MessageBody",
        "DelaySeconds",
        "MessageGroupId",
        "MessageDeduplicationId",
        "MessageAttributes",
        "MessageSystemAttributes",
    ],
    "ReceiveMessage": [
        "QueueUrl",
        "MaxNumberOfMessages",
        "VisibilityTimeout",
        "ReceiveRequestAttemptId",
        "AttributeNames",
        "MessageAttributeNames",
    ],
    "DeleteMessage": ["QueueUrl", "ReceiptHandle"],
    "ChangeMessageVisibility": ["ReceiptHandle", "VisibilityTimeout"],
    "ListQueues": ["QueueNamePrefix", "MaxResults", "NextToken"],
    "StartMessageMoveTask": ["SourceArn", "DestinationArn", "MaxNumberOfMessagesPerSecond"],
    "CancelMessageMoveTask": ["TaskHandle"],
}
ATTRIBUTE = {"DataType": "String", "StringValue": "v"}


class Watched(Server):
    """A gateway whose log is kept."""


class Asking:
    """One connection to it; a request that it hangs up on is an answer, too."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = Connection(url)

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        own = {"Host": self.connection.host, "Authorization": authorization(ACCOUNT)}
        self.connection.send(request_bytes(method, path, own | headers, body))
        answer = self.connection.answer()
        if answer.headers.get("connection") == "close":
            self.connection.close()
            self.connection = Connection(self.url)
        return answer

    def sqs(self, action: str, members: dict[str, Any]) -> Answer:
        headers = {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        # Surrogates go out as JSON escapes.
        return self.ask("POST", "/", headers, json.dumps(members).encode())

    def rest(self, method: str, path: str, body: object = None) -> Answer:
        encoded = b"" if body is None else json.dumps(body).encode()
        return self.ask(method, path, {"Content-Type": "application/json"}, encoded)


class Place:
    """A gateway with queues of both kinds, and its log."""

    def __init__(self, asking: Asking, log: Path) -> None:
        self.asking = asking
        self.log = log
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        self.urls = [self._create("jobs", {}), self._create("jobs2.fifo", fifo)]

    def _create(self, name: str, attributes: dict[str, str]) -> str:
        answer = self.asking.sqs("CreateQueue", {"QueueName": name, "Attributes": attributes})
        url: str = json.loads(answer.body)["QueueUrl"]
        return url

    def check(self, answer: Answer, *what: object) -> None:
        # 503 is no bug: the machine may be too busy.
        assert answer.status < 500 or answer.status == 503, (what, answer.text)

    def assert_quiet(self) -> None:
        """Nothing failed in any flush, and nobody's answer was a bug."""
        text = self.log.read_text()
        for word in ("one by one", "a flush of", "Traceback"):
            assert word not in text, text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    log = tmp_path_factory.mktemp("hostile") / "log"
    with log.open("w") as file:
        Watched.log = file
        with Watched(QUEUEGATE_LOG_LEVEL="warning") as gateway:
            asking = Asking(gateway.url)
            yield Place(asking, log)
            asking.connection.close()


def _forms(member: str, value: object) -> list[object]:
    """The value itself, and in the places that it may have within the member."""
    if member == "MessageAttributes":
        return [value, {"n": value}, *[{"n": ATTRIBUTE | {name: value}} for name in ATTRIBUTE]] + (
            [{value: ATTRIBUTE}] if isinstance(value, str) else []
        )
    if member == "MessageSystemAttributes":
        return [value, {"AWSTraceHeader": ATTRIBUTE | {"StringValue": value}}]
    if member == "NextToken" and isinstance(value, str):
        token = f"queues:{value}".encode("utf-8", "surrogatepass")
        return [value, urlsafe_b64encode(token).decode()]
    if member == "TaskHandle":
        arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{value}"
        handles = [{"taskId": value, "sourceArn": arn}, value]
        return [value, *[b64encode(json.dumps(one).encode()).decode() for one in handles]]
    if member.endswith("Arn") and isinstance(value, str):
        return [value, f"arn:aws:sqs:us-east-1:{ACCOUNT}:{value}"]
    if member == "QueueUrl" and isinstance(value, str):
        return [value, f"http://host/{ACCOUNT}/{value}", f"http://host/{value}/jobs"]
    return [value]


@pytest.mark.parametrize(
    ("action", "member"), [(action, one) for action, members in MEMBERS.items() for one in members]
)
def test_members_of_sqs(place: Place, action: str, member: str) -> None:
    for url in place.urls:
        good: dict[str, Any] = {"QueueUrl": url, "MessageBody": "b", "ReceiptHandle": "x"}
        if url.endswith(".fifo"):
            good["MessageGroupId"] = "g"
        for value in VALUES:
            for form in _forms(member, value):
                place.check(place.asking.sqs(action, good | {member: form}), url, member, form)
    place.assert_quiet()


@pytest.mark.parametrize("name", ["jobs", "jobs2.fifo"])
def test_ids_and_messages_of_the_native_api(place: Place, name: str) -> None:
    queue = f"/v1/queues/{name}"
    for value in VALUES:
        written = quote(str(value).encode("utf-8", "surrogatepass"), safe="")
        for method, body in (("DELETE", None), ("PATCH", {"vt": 1})):
            answer = place.asking.rest(method, f"{queue}/messages/{written}", body)
            place.check(answer, method, value)
        place.check(place.asking.rest("DELETE", f"{queue}/messages", {"ids": [value]}), value)
        place.check(place.asking.rest("PATCH", f"{queue}/messages/1", {"vt": value}), value)
        for member in ("message", "group_id", "deduplication_id", "delay", "headers"):
            message = {"message": "m", "group_id": "g"} | {member: value}
            place.check(place.asking.rest("POST", f"{queue}/messages", message), message)
        place.check(
            place.asking.rest(
                "POST", f"{queue}/messages", {"message": "m", "headers": {"h": value}}
            ),
            value,
        )
        for parameter in ("after", "until", "as_of", "group_id", "sent_since", "message_id"):
            place.check(place.asking.rest("GET", f"{queue}/browse?{parameter}={written}"), value)
    place.assert_quiet()
