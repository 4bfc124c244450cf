"""The few things that every face can do with a queue, each over the wire that its clients speak.

All drivers of a gateway share an account, and call a queue by one name: what one of them does, the
others see.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from tests.faces.clients import Refused, Sqs
from tests.faces.rest.client import Rest

VISIBILITY_SECONDS = 30

_numbers = itertools.count()


class Kind(Enum):
    """Of a queue: what its makers promise of order."""

    PLAIN = "plain"
    FIFO = "fifo"

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
    uses: ClassVar[frozenset[Kind]]
    """Kinds of queues that messages go to and come from here."""

    @abstractmethod
    def __init__(self, url: str, account: str) -> None:
        """Of an account of the gateway at this URL."""

    @abstractmethod
    def make(self, made: Made) -> None:
        """Create the queue; what is received from it is hidden for VISIBILITY_SECONDS."""

    @abstractmethod
    def send(self, made: Made, content: str, group: str = "g") -> None:
        """Send a text; Absent without the queue."""

    @abstractmethod
    def receive(self, made: Made) -> Given | None:
        """A message, if one can be received now."""

    @abstractmethod
    def finish(self, made: Made, given: Given) -> None:
        """It was worked off."""

    @abstractmethod
    def give_back(self, made: Made, given: Given) -> None:
        """It was not, and others may have it at once."""

    @abstractmethod
    def count(self, made: Made) -> int:
        """How many messages are there, received ones too."""

    @abstractmethod
    def remove(self, made: Made) -> None:
        """Delete the queue."""

    def stored(self, content: str) -> str:
        """What the queue holds when this text was sent here."""
        return content

    def shown(self, text: str) -> str:
        """What this face makes of a text that the queue holds."""
        return text

    @abstractmethod
    def close(self) -> None:
        """Close its connections."""


class AwsDriver(Driver):
    """SQS over its JSON wire, by botocore's serializers."""

    face = "aws"
    makes = uses = frozenset(Kind)

    def __init__(self, url: str, account: str) -> None:
        self._client = Sqs("json", url, account)
        self._urls: dict[str, str] = {}

    def make(self, made: Made) -> None:
        attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS)}
        if made.kind is Kind.FIFO:
            self._client.create_fifo(made.name, **attributes)
        else:
            self._client.create(made.name, **attributes)

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

    def give_back(self, made: Made, given: Given) -> None:
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


class RestDriver(Driver):
    """The native API. A text is the JSON value with which it is sent."""

    face = "rest"
    makes = uses = frozenset(Kind)

    def __init__(self, url: str, account: str) -> None:
        self._client = Rest(url, account)

    def make(self, made: Made) -> None:
        # Of queues made here the timeout is the usual one.
        self._client.create(made.name, fifo=made.kind is Kind.FIFO)

    def send(self, made: Made, content: str, group: str = "g") -> None:
        body = {"message": content} | ({"group_id": group} if made.kind.has_groups else {})
        answer = self._client.ask("POST", self._messages(made), body)
        if answer.status == 404:
            raise Absent
        assert answer.status == 201, answer.text

    def receive(self, made: Made) -> Given | None:
        for one in self._client.call("GET", self._messages(made)):
            content = one["message"]
            is_text = isinstance(content, str)
            return Given(content if is_text else json.dumps(content), one["id"])
        return None

    def finish(self, made: Made, given: Given) -> None:
        self._client.call("DELETE", f"{self._messages(made)}/{given.receipt}", status=204)

    def give_back(self, made: Made, given: Given) -> None:
        self._client.call("PATCH", f"{self._messages(made)}/{given.receipt}", {"vt": 0})

    def count(self, made: Made) -> int:
        metrics = self._client.call("GET", f"/v1/queues/{made.name}")
        length: int = metrics["queue_length"]
        return length

    def remove(self, made: Made) -> None:
        self._client.call("DELETE", f"/v1/queues/{made.name}", status=204)

    def stored(self, content: str) -> str:
        """Messages of this face are JSON values: others get the JSON text of a string."""
        return json.dumps(content)

    def shown(self, text: str) -> str:
        """And it shows what is JSON as what it says."""
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return value if isinstance(value, str) else json.dumps(value)

    def close(self) -> None:
        self._client.__exit__()

    @staticmethod
    def _messages(made: Made) -> str:
        return f"/v1/queues/{made.name}/messages"


DRIVERS: tuple[type[Driver], ...] = (AwsDriver, RestDriver)
