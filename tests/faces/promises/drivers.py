"""The few things that every face can do with a queue, each over the wire that its clients speak.

All drivers of a gateway share an account, and call a queue by one name: what one of them does, the
others see.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from tests.faces.channels.client import Channels
from tests.faces.channels.pushing import Socket
from tests.faces.clients import Refused, Sqs
from tests.faces.rest.client import Rest
from tests.faces.text.client import Text

VISIBILITY_SECONDS = 30
_SOON_SECONDS = 0.05
"""Nothing says that nothing will be pushed: what is there comes sooner."""

_numbers = itertools.count()


class Kind(Enum):
    """Of a queue: what its makers promise of order."""

    PLAIN = "plain"
    FIFO = "fifo"
    TEXT = "text"

    @property
    def has_groups(self) -> bool:
        return self is not Kind.PLAIN


class Made(NamedTuple):
    """A queue, as all faces call it."""

    name: str
    kind: Kind


class Given(NamedTuple):
    """A message as it was received, and what its receiver needs to finish it."""

    content: str
    receipt: Any


class Absent(Exception):
    """The face says that there is no such queue."""


class Driver(ABC):
    """A user of one face. Threads may share it."""

    face: ClassVar[str]
    makes: ClassVar[frozenset[Kind]]
    """Kinds of queues that can be made here."""
    sends_to: ClassVar[frozenset[Kind]] = frozenset(Kind)
    """Kinds of queues that messages can be sent to here. They come here from every kind."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """What of the following the face has not, and where that is said."""

    @abstractmethod
    def __init__(self, url: str, account: str) -> None:
        """Of an account of the gateway at this URL."""

    @abstractmethod
    def make(self, name: str, kind: Kind) -> Made:
        """Create a queue, of this name where it may have one; what is received from it is hidden
        for VISIBILITY_SECONDS."""

    @abstractmethod
    def send(self, made: Made, content: str, group: str = "g") -> None:
        """Send a text; Absent without the queue."""

    @abstractmethod
    def receive(self, made: Made) -> Given | None:
        """A message, if one can be received now."""

    def take(self, made: Made) -> Given:
        """A message that is there."""
        given = self.receive(made)
        assert given is not None
        return given

    @abstractmethod
    def finish(self, made: Made, given: Given) -> None:
        """It was worked off."""

    @abstractmethod
    def release(self, made: Made, given: Given) -> None:
        """It was not, and others may have it at once. Lacking that, they get it in time."""

    @abstractmethod
    def count(self, made: Made) -> int:
        """Return the number of messages, received ones included."""

    @abstractmethod
    def remove(self, made: Made) -> None:
        """Delete the queue. Whoever lacks that makes anew what is not there, too."""

    def stored(self, content: str) -> str:
        """Return the body that the queue holds after this face sends the content."""
        return content

    def shown(self, text: str) -> str:
        """Return the form in which this face shows a stored body."""
        return text

    @abstractmethod
    def close(self) -> None:
        """Close its connections."""


class AwsDriver(Driver):
    """SQS over its JSON wire, by botocore's serializers."""

    face = "aws"
    makes = frozenset({Kind.PLAIN, Kind.FIFO})

    def __init__(self, url: str, account: str) -> None:
        self._client = Sqs("json", url, account)
        self._urls: dict[str, str] = {}

    def make(self, name: str, kind: Kind) -> Made:
        attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS)}
        if kind is Kind.FIFO:
            self._client.create_fifo(name, **attributes)
        else:
            self._client.create(name, **attributes)
        return Made(name, kind)

    def send(self, made: Made, content: str, group: str = "g") -> None:
        more = {}
        if made.kind.has_groups:
            more = {"MessageGroupId": group, "MessageDeduplicationId": f"d{next(_numbers)}"}
        with _absent():
            self._client.send(self._url(made), content, **more)

    def receive(self, made: Made) -> Given | None:
        for message in self._client.receive(self._url(made), 1):
            return Given(message["Body"], message["ReceiptHandle"])
        return None

    def finish(self, made: Made, given: Given) -> None:
        self._client.call("DeleteMessage", QueueUrl=self._url(made), ReceiptHandle=given.receipt)

    def release(self, made: Made, given: Given) -> None:
        self._client.call(
            "ChangeMessageVisibility",
            QueueUrl=self._url(made),
            ReceiptHandle=given.receipt,
            VisibilityTimeout=0,
        )

    def count(self, made: Made) -> int:
        return sum(self._client.counts(self._url(made)))

    def remove(self, made: Made) -> None:
        self._client.call("DeleteQueue", QueueUrl=self._url(made))

    def close(self) -> None:
        self._client.close()

    def _url(self, made: Made) -> str:
        if made.name not in self._urls:
            found = self._client.call("GetQueueUrl", QueueName=made.name)
            self._urls[made.name] = found["QueueUrl"]
        return self._urls[made.name]


@contextlib.contextmanager
def _absent() -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        if refused.code != "AWS.SimpleQueueService.NonExistentQueue":
            raise
        raise Absent from None


class HttpDriver(Driver):
    """A face of paths and JSON."""

    def __init__(self, url: str, account: str) -> None:
        self.client = Rest(url, account)

    def close(self) -> None:
        self.client.__exit__()

    def post(self, path: str, body: Any) -> None:
        """Create something; Absent for 404."""
        answer = self.client.ask("POST", path, body)
        if answer.status == 404:
            raise Absent
        assert answer.status == 201, answer.text


class ValuesDriver(HttpDriver):
    """Messages are JSON values, here strings: other faces get their JSON text."""

    def stored(self, content: str) -> str:
        return json.dumps(content)

    def shown(self, text: str) -> str:
        """Show the JSON value of a body from another face, if the body is JSON."""
        try:
            return self.text_of(json.loads(text))
        except ValueError:
            return text

    @staticmethod
    def text_of(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)


class RestDriver(ValuesDriver):
    """The native API."""

    face = "rest"
    makes = frozenset(Kind)

    def make(self, name: str, kind: Kind) -> Made:
        # Of queues made here the timeout is the usual one.
        kinds = {"fifo": kind is Kind.FIFO, "serial": kind is Kind.TEXT}
        return Made(self.client.create(name, **kinds), kind)

    def send(self, made: Made, content: str, group: str = "g") -> None:
        body = {"message": content} | ({"group_id": group} if made.kind.has_groups else {})
        self.post(self._messages(made), body)

    def receive(self, made: Made) -> Given | None:
        for one in self.client.call("GET", self._messages(made)):
            return Given(self.text_of(one["message"]), one["id"])
        return None

    def finish(self, made: Made, given: Given) -> None:
        self.client.call("DELETE", f"{self._messages(made)}/{given.receipt}", status=204)

    def release(self, made: Made, given: Given) -> None:
        self.client.call("PATCH", f"{self._messages(made)}/{given.receipt}", {"vt": 0})

    def count(self, made: Made) -> int:
        length: int = self.client.call("GET", f"/v1/queues/{made.name}")["queue_length"]
        return length

    def remove(self, made: Made) -> None:
        self.client.call("DELETE", f"/v1/queues/{made.name}", status=204)

    @staticmethod
    def _messages(made: Made) -> str:
        return f"/v1/queues/{made.name}/messages"


class SimpleDriver(HttpDriver):
    """The simple queue, whose paths have ids."""

    face = "simple"
    makes = frozenset({Kind.PLAIN})
    sends_to = makes
    lacks: ClassVar[Mapping[str, str]] = {
        "release": "its endpoints have none: a message comes again when its timeout ends",
        "group": "its messages have no group, and come in no order",
    }

    def __init__(self, url: str, account: str) -> None:
        super().__init__(url, account)
        self._ids: dict[str, str] = {}

    def make(self, name: str, kind: Kind) -> Made:
        body = {"queue_name": name, "visibility_timeout": VISIBILITY_SECONDS}
        queue_id = self.client.call("POST", "/api/queues", body, status=201)["queue_id"]
        made = Made(self.client.call("GET", f"/api/queues/{queue_id}")["sqs_name"], kind)
        self._ids[made.name] = queue_id
        return made

    def send(self, made: Made, content: str, group: str = "g") -> None:
        self.post(f"{self._queue(made)}/messages", {"data": content})

    def receive(self, made: Made) -> Given | None:
        found = self.client.call("GET", f"{self._queue(made)}/messages")
        return Given(found["data"], found["message_id"]) if "data" in found else None

    def finish(self, made: Made, given: Given) -> None:
        self.client.call("DELETE", f"{self._queue(made)}/messages/{given.receipt}")

    def release(self, made: Made, given: Given) -> None:
        raise NotImplementedError

    def count(self, made: Made) -> int:
        count: int = self.client.call("GET", self._queue(made))["current_message_count"]
        return count

    def remove(self, made: Made) -> None:
        self.client.call("DELETE", self._queue(made))

    def _queue(self, made: Made) -> str:
        if made.name not in self._ids:
            listed = self.client.call("GET", f"/api/queues?prefix={made.name}")["queues"]
            self._ids |= {one["sqs_name"]: one["queue_id"] for one in listed}
        return f"/api/queues/{self._ids[made.name]}"


class ChannelsDriver(ValuesDriver):
    """Channels, polled."""

    face = "channels"
    makes = frozenset({Kind.PLAIN})
    lacks: ClassVar[Mapping[str, str]] = {
        "count": "its metrics are those of all channels",
        "remove": "a channel is there as soon as somebody uses it",
    }

    def make(self, name: str, kind: Kind) -> Made:
        made = Made(name, kind)
        assert self.receive(made) is None
        return made

    def send(self, made: Made, content: str, group: str = "g") -> None:
        body = {"channel": made.name, "payload": content}
        self.post("/v1/messages", body | ({"group_id": group} if made.kind.has_groups else {}))

    def receive(self, made: Made) -> Given | None:
        found = self.client.call("GET", f"/v1/messages/poll?channel={made.name}&wait=0")
        for one in found["messages"]:
            return Given(self.text_of(one["payload"]), one["ack"])
        return None

    def finish(self, made: Made, given: Given) -> None:
        assert self._said("ack", made, given) == "acknowledged"

    def release(self, made: Made, given: Given) -> None:
        assert self._said("nack", made, given) == "returned"

    def _said(self, what: str, made: Made, given: Given) -> str:
        body = {"channel": made.name, "acks": given.receipt}
        [one] = self.client.call("POST", f"/v1/messages/{what}", body)["results"]
        result: str = one["result"]
        return result

    def count(self, made: Made) -> int:
        raise NotImplementedError

    def remove(self, made: Made) -> None:
        raise NotImplementedError


class PushDriver(ChannelsDriver):
    """Channels by WebSocket: one for each message, until that is finished or given back."""

    face = "push"
    makes = frozenset()
    sends_to = makes
    lacks: ClassVar[Mapping[str, str]] = {
        **ChannelsDriver.lacks,
        "send": "who publishes does so by HTTP, as ChannelsDriver does",
    }

    def __init__(self, url: str, account: str) -> None:
        super().__init__(url, account)
        self._channels = Channels(url, account)
        self._consumers: list[Socket] = []
        self._idle: dict[Made, Socket] = {}

    def close(self) -> None:
        super().close()
        for consumer in self._consumers:
            consumer.connection.close()

    def take(self, made: Made) -> Given:
        consumer = self._consumer(made)
        return self._given(consumer, consumer.said())

    def receive(self, made: Made) -> Given | None:
        consumer = self._consumer(made)
        said = consumer.said_within(_SOON_SECONDS)
        if said is None:
            # It stays: what is pushed to somebody who leaves is out for a window.
            self._idle[made] = consumer
            return None
        return self._given(consumer, said)

    def _consumer(self, made: Made) -> Socket:
        consumer = self._idle.pop(made, None)
        if consumer is None:
            consumer = Socket(self._channels, made.name, credit=1, window=VISIBILITY_SECONDS)
            self._consumers.append(consumer)
        return consumer

    def _given(self, consumer: Socket, message: dict[str, Any]) -> Given:
        assert message["type"] == "message", message
        # What is not finished in time comes to others.
        consumer.say(credit=0)
        return Given(self.text_of(message["payload"]), (consumer, message["ack"]))

    def _said(self, what: str, made: Made, given: Given) -> str:
        consumer: Socket
        consumer, ack = given.receipt
        consumer.say(**{what: [ack]})
        [result] = consumer.results()
        consumer.connection.close()
        return result


class TextDriver(Driver):
    """Plain text."""

    face = "text"
    makes = frozenset({Kind.TEXT})
    lacks: ClassVar[Mapping[str, str]] = {
        "count": "it has four methods, and none for that (docs/reference/text-queue.md)",
        "remove": "a queue is there as soon as somebody sends to it",
    }

    def __init__(self, url: str, account: str) -> None:
        self._client = Text(url, account)

    def make(self, name: str, kind: Kind) -> Made:
        made = Made(name, kind)
        self.send(made, "the first message makes the queue")
        given = self.receive(made)
        assert given is not None
        self.finish(made, given)
        return made

    def send(self, made: Made, content: str, group: str = "g") -> None:
        given = {"group_id": group, "queue": made.name}
        if made.kind.has_groups:
            given["deduplication_id"] = f"d{next(_numbers)}"
        answer = self._client.text("POST", content, **given)
        if answer.status == 404:
            raise Absent
        assert answer.status == 200, answer.text

    def receive(self, made: Made) -> Given | None:
        found = self._client.get(queue=made.name, visibility_timeout=VISIBILITY_SECONDS)
        return found and Given(found.payload, found)

    def finish(self, made: Made, given: Given) -> None:
        assert self._client.delete(given.receipt, queue=made.name)

    def release(self, made: Made, given: Given) -> None:
        assert self._client.patch(given.receipt, 0, queue=made.name)

    def count(self, made: Made) -> int:
        raise NotImplementedError

    def remove(self, made: Made) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._client.__exit__()


DRIVERS: tuple[type[Driver], ...] = (
    AwsDriver,
    RestDriver,
    SimpleDriver,
    ChannelsDriver,
    PushDriver,
    TextDriver,
)
