"""Neutral clients with a driver per wire: the same calls, the same results and refusals.

Requests are written, and answers read, by botocore's own serializers and parsers.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlencode

import xmltodict

from tests.faces.connections import Answer, Connection, request_bytes
from tests.protocol import oracle

# json: in one piece, which is the fast path of the hot actions. json-long: the same over the
# ordinary path. query: forms and XML; query-long is to it what json-long is to json.
WIRES = ("json", "json-long", "query")

_accounts = itertools.count(100_000_000_000)


def new_account() -> str:
    """An account of its own for a test: nobody else sees its queues."""
    return str(next(_accounts))


class Refused(Exception):
    """A refusal as a client understands it. ``type`` and ``header`` exist on the JSON wire only."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.status = answer.status
        self.type: str | None = None
        self.header: str | None = answer.headers.get("x-amzn-query-error")
        if answer.body.startswith(b"{"):
            members = json.loads(answer.body)
            self.type, self.text = members["__type"], members["message"]
            self.code, _, self.fault = (self.header or "").partition(";")
        else:
            error = read_xml(answer.body)["Error"]
            self.code = error.get("Code") or ""
            self.text = error.get("Message") or ""
            self.fault = error.get("Type") or ""
        super().__init__(f"{self.status} {self.code}: {self.text}")


def read_xml(body: bytes) -> dict[str, Any]:
    """Return the content of the answer's one element; an empty element is None."""
    content: dict[str, Any]
    [content] = xmltodict.parse(body, strip_whitespace=False).values()
    return content


def authorization(account: str, region: str = "us-east-1", service: str = "sqs") -> str:
    """The header of a signed request; the signature is not one."""
    scope = f"{account}/20260101/{region}/{service}/aws4_request"
    return (
        f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
    )


class ThreadedClient:
    """One account of a gateway. Threads may share it: each has its connection."""

    def __init__(self, url: str, account: str | None = None, region: str = "us-east-1") -> None:
        self.url = url
        self.account = account or new_account()
        self.region = region
        self._local = threading.local()
        self._connections: list[Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def connection(self) -> Connection:
        """The connection of this thread."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = Connection(self.url)
            self._connections.append(connection)
        return connection


class Client(ThreadedClient):
    """A client of one wire, account and region."""

    service = "sqs"

    def __init__(
        self, wire: str, url: str, account: str | None = None, region: str = "us-east-1"
    ) -> None:
        super().__init__(url, account, region)
        self.wire = wire

    @property
    def is_query(self) -> bool:
        return self.wire.startswith("query")

    def other(self, **changes: str) -> Self:
        """Another client like this one; close it, or use it in a ``with``."""
        mine = {
            "wire": self.wire,
            "url": self.url,
            "account": self.account,
            "region": self.region,
        }
        return type(self)(**(mine | changes))

    def encode(
        self,
        action: str,
        members: Mapping[str, Any],
        *,
        path: str = "/",
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> bytes:
        """The request of an action. ``more`` are raw parameters of the Query wire."""
        own = {
            "Host": self.url.partition("://")[2],
            "Authorization": authorization(self.account, self.region, self.service),
        }
        if self.is_query:
            members = dict(members)
            form = self._query_form(action, members) | dict(more or {})
            own["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
            body = urlencode(form).encode()
        else:
            jsons, body = oracle.json_request(action, dict(members), self.service)
            own |= {"X-Amz-Target": jsons["x-amz-target"], "Content-Type": jsons["content-type"]}
        if self.wire.endswith("-long"):
            own["TE"] = "trailers"
        return request_bytes("POST", path, own | dict(headers or {}), body)

    def _query_form(self, action: str, members: dict[str, Any]) -> dict[str, str]:
        form = oracle.query_request(action, members, self.service)
        return {name: str(value) for name, value in form.items()}

    def ask(self, action: str, members: Mapping[str, Any], **options: Any) -> Answer:
        """The bare answer to an action."""
        connection = self.connection()
        connection.send(self.encode(action, members, **options))
        return connection.answer()

    def decode(self, action: str, answer: Answer) -> dict[str, Any]:
        """The members of an answer; Refused when it is not a success."""
        if answer.status != 200:
            raise Refused(answer)
        if self.is_query:
            result = oracle.parse_query(action, answer.body, service=self.service)
        else:
            result = oracle.parse_json(action, answer.body, service=self.service)
        result.pop("ResponseMetadata", None)
        return result

    def call(self, action: str, **members: Any) -> dict[str, Any]:
        """Do it; the result's members, or Refused."""
        return self.decode(action, self.ask(action, members))

    def refusal(self, action: str, **members: Any) -> Refused:
        """Do it, and be refused."""
        try:
            result = self.call(action, **members)
        except Refused as refused:
            return refused
        raise AssertionError(f"{action} was not refused: {result}")


class Sqs(Client):
    """SQS, and what most tests do with it."""

    def _query_form(self, action: str, members: dict[str, Any]) -> dict[str, str]:
        # The recorded model predates this member.
        newer = members.pop("MessageSystemAttributeNames", [])
        form = super()._query_form(action, members)
        numbered = enumerate(newer, 1)
        return form | {f"MessageSystemAttributeName.{number}": name for number, name in numbered}

    def create(self, name: str = "orders", **attributes: str) -> str:
        """A queue's URL."""
        url: str = self.call("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def create_fifo(self, name: str = "orders.fifo", **attributes: str) -> str:
        """A FIFO queue's URL; ids come from the content unless told otherwise."""
        defaults = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        return self.create(name, **(defaults | attributes))

    def send(self, url: str, body: str = "hello", **members: Any) -> dict[str, Any]:
        return self.call("SendMessage", QueueUrl=url, MessageBody=body, **members)

    def receive(self, url: str, most: int = 10, **members: Any) -> list[dict[str, Any]]:
        members = {"MaxNumberOfMessages": most, "WaitTimeSeconds": 0} | members
        found: list[dict[str, Any]] = self.call("ReceiveMessage", QueueUrl=url, **members).get(
            "Messages", []
        )
        return found

    def bodies(self, url: str, most: int = 10, **members: Any) -> list[str]:
        return [message["Body"] for message in self.receive(url, most, **members)]

    def delete(self, url: str, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        members = {"QueueUrl": url, "AttributeNames": list(names or ("All",))}
        found: dict[str, str] = self.call("GetQueueAttributes", **members).get("Attributes", {})
        return found

    def arn(self, url: str) -> str:
        return self.attributes(url, "QueueArn")["QueueArn"]

    def counts(self, url: str) -> tuple[int, int, int]:
        """(visible, in flight, delayed)."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        found = self.attributes(url, *names)
        visible, hidden, delayed = (int(found[name]) for name in names)
        return visible, hidden, delayed

    def url_of(self, name: str) -> str:
        url: str = self.call("GetQueueUrl", QueueName=name)["QueueUrl"]
        return url


class Raw:
    """Requests of one account by hand, on a queue that the gateway knows by its URL already."""

    def __init__(self, sqs: Sqs) -> None:
        self.sqs = sqs
        self.queue = sqs.create()
        self.headers = {
            "Host": sqs.url.partition("://")[2],
            "X-Amz-Target": "AmazonSQS.SendMessage",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": authorization(sqs.account),
        }
        sqs.receive(self.queue)
        self.connection = Connection(sqs.url)

    def body(self, text: str = "b") -> bytes:
        return json.dumps({"QueueUrl": self.queue, "MessageBody": text}).encode()

    def request(self, text: str = "b", **changes: str) -> bytes:
        return request_bytes("POST", "/", self.headers | changes, self.body(text))

    def receive(self, wait: int = 0) -> bytes:
        body = json.dumps({"QueueUrl": self.queue, "WaitTimeSeconds": wait}).encode()
        headers = self.headers | {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}
        return request_bytes("POST", "/", headers, body)

    def texts(self) -> list[str]:
        """Everything that is in the queue."""
        found: list[str] = []
        while bodies := self.sqs.bodies(self.queue, 10, VisibilityTimeout=600):
            found += bodies
        return found

    def answer(self) -> Answer:
        return self.connection.answer()
