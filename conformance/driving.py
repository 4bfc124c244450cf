"""A client as the cases see it: calls go to the driver in the client's own environment."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.serving import Endpoint
from queuegate.protocol.service_detection import SERVICES

_PATIENCE_SECONDS = 60.0


class Refused(Exception):
    """The gateway said no; ``status`` and ``exception`` are None where the client hides them."""

    def __init__(self, refused: Mapping[str, Any]) -> None:
        self.code: str = refused["code"]
        self.text: str = refused["text"]
        self.status: int | None = refused["status"]
        self.exception: str | None = refused["exception"]
        super().__init__(f"refused with {self.code}: {self.text}")


class Broken(Exception):
    """The client could not make sense of the gateway, or its driver ended."""


class Different(Exception):
    """Something else came than a case expects."""


def expect_refusal(
    refused: Refused, code: str, *, text: str = "", status: int = 400, exception: str = ""
) -> None:
    """Raise Different unless it is this one; what the client hides is not compared."""
    expect(refused.code, code, "code")
    if text:
        expect(refused.text, text, "text")
    expect(refused.status in {status, None}, True, f"status {refused.status}, not {status}")
    if exception:
        expect(refused.exception in {exception, None}, True, f"class {refused.exception}")


def expect(found: object, wanted: object, what: str = "") -> None:
    """Raise Different unless both are equal."""
    if found != wanted:
        raise Different(f"{what + ': ' if what else ''}{found!r} instead of {wanted!r}")


class Driver:
    """One driver process."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = self._read()
        self.client: str = hello["client"]
        self.protocol: str = hello["protocol"]
        self.is_ordered: bool = hello.get("ordered", True)
        self.retries: bool = hello.get("retries", False)

    def twin(self, **environment: str) -> Driver:
        """Another process of the same client, some of its environment changed."""
        return Driver(self._command, {**self._environment, **environment})

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(_PATIENCE_SECONDS)
        self._process.stdout.close()

    def ask(self, action: str, members: Mapping[str, Any], service: str = "sqs") -> None:
        """Begin a call."""
        assert self._process.stdin is not None
        asked = {"service": service, "action": action, "members": members}
        line = json.dumps(asked, default=_marked)
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Broken("the driver has ended") from None

    def answer(self) -> dict[str, Any]:
        """The result of the call that was begun."""
        content = self._read()
        if "refused" in content:
            raise Refused(content["refused"])
        if "broken" in content:
            raise Broken(content["broken"])
        result: dict[str, Any] = _with_bytes(content["result"])
        return result

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        guard = threading.Timer(_PATIENCE_SECONDS, self._process.kill)
        guard.start()
        line = self._process.stdout.readline()
        guard.cancel()
        if not line:
            raise Broken(f"the driver ended with {self._process.wait()}")
        content: dict[str, Any] = json.loads(line)
        return content


def _marked(value: object) -> dict[str, str]:
    assert isinstance(value, bytes)
    return {"$base64": base64.b64encode(value).decode()}


def _with_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$base64"}:
            return base64.b64decode(value["$base64"])
        return {key: _with_bytes(item) for key, item in value.items()}
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


_numbers = itertools.count(1)


class Client:
    """A client under test, as cases call it."""

    def __init__(self, driver: Driver, endpoint: Endpoint) -> None:
        self._driver = driver
        self.endpoint = endpoint
        self.actions: dict[str, set[str]] = {name: set() for name in SERVICES}

    @property
    def is_query(self) -> bool:
        return self._driver.protocol == "query"

    @property
    def is_ordered(self) -> bool:
        """Return True if the client keeps the order of the members of an answer."""
        return self._driver.is_ordered

    @property
    def retries(self) -> bool:
        """Return True if CONFORMANCE_ATTEMPTS makes the client repeat calls."""
        return self._driver.retries

    def call(self, action: str, **members: Any) -> dict[str, Any]:
        """The result of an action of SQS; Refused."""
        return self._call("sqs", action, members)

    def sns(self, action: str, **members: Any) -> dict[str, Any]:
        """The result of an action of SNS; Refused."""
        return self._call("sns", action, members)

    def scheduler(self, action: str, **members: Any) -> dict[str, Any]:
        """The result of an action of EventBridge Scheduler; Refused."""
        return self._call("scheduler", action, members)

    def sts(self, action: str, **members: Any) -> dict[str, Any]:
        """The result of an action of STS; Refused."""
        return self._call("sts", action, members)

    def identity(self) -> dict[str, Any]:
        """Return the client's identity from STS."""
        return self.sts("GetCallerIdentity")

    def refusal(self, action: str, **members: Any) -> Refused:
        """Be refused by SQS; Different when that does not happen."""
        return self._refusal("sqs", action, members)

    def sns_refusal(self, action: str, **members: Any) -> Refused:
        """Be refused by SNS; Different when that does not happen."""
        return self._refusal("sns", action, members)

    def scheduler_refusal(self, action: str, **members: Any) -> Refused:
        """Be refused by EventBridge Scheduler; Different when that does not happen."""
        return self._refusal("scheduler", action, members)

    def identity_refusal(self) -> Refused:
        """Be refused by STS; Different when that does not happen."""
        return self._refusal("sts", "GetCallerIdentity", {})

    def _call(self, service: str, action: str, members: Mapping[str, Any]) -> dict[str, Any]:
        self.actions[service].add(action)
        self._driver.ask(action, members, service)
        return self._driver.answer()

    def _refusal(self, service: str, action: str, members: Mapping[str, Any]) -> Refused:
        try:
            result = self._call(service, action, members)
        except Refused as refused:
            return refused
        raise Different(f"{action} was not refused but answered {result}")

    def meanwhile(self, action: str, members: Mapping[str, Any], other: str, **more: Any) -> Any:
        """Begin an action in another process of this client, do the other one, and return what
        the first one answered."""
        twin = self._driver.twin()
        try:
            twin.ask(action, members)
            self.call(other, **more)
            return twin.answer()
        finally:
            twin.close()

    @contextlib.contextmanager
    def as_another(self, **environment: str) -> Iterator[Client]:
        """The same client with some other environment, such as other credentials."""
        twin = self._driver.twin(**environment)
        try:
            yield Client(twin, self.endpoint)
        finally:
            twin.close()

    def queue(self, suffix: str = "", **attributes: str) -> str:
        """The URL of a new queue under a name of its own."""
        name = f"case-{next(_numbers)}{suffix}"
        members: dict[str, Any] = {"QueueName": name}
        if suffix.endswith(".fifo"):
            attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} | attributes
        if attributes:
            members["Attributes"] = attributes
        url: str = self.call("CreateQueue", **members)["QueueUrl"]
        return url

    def receive(self, url: str, most: int = 10, **members: Any) -> list[dict[str, Any]]:
        """Messages; none is an empty list."""
        result = self.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=most, **members)
        found: list[dict[str, Any]] = result.get("Messages", [])
        return found

    def attribute(self, url: str, name: str) -> str | None:
        """One attribute of a queue."""
        result = self.call("GetQueueAttributes", QueueUrl=url, AttributeNames=[name])
        value: str | None = result.get("Attributes", {}).get(name)
        return value

    def queue_arn(self, url: str) -> str:
        """The ARN of a queue."""
        return self.attribute(url, "QueueArn") or ""

    def open_to_topics(self, url: str) -> str:
        """Let a queue take what topics send it, which its policy has to allow; its ARN."""
        arn = self.queue_arn(url)
        allowed = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        self.call("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": policy})
        return arn

    def topic(self, suffix: str = "", **attributes: str) -> str:
        """The ARN of a new topic under a name of its own."""
        members: dict[str, Any] = {"Name": f"case-{next(_numbers)}{suffix}"}
        if suffix.endswith(".fifo"):
            attributes = {"FifoTopic": "true"} | attributes
        if attributes:
            members["Attributes"] = attributes
        arn: str = self.sns("CreateTopic", **members)["TopicArn"]
        return arn

    def subscribed(self, topic_arn: str, queue_url: str, **attributes: str) -> str:
        """Subscribe a queue, and let it take what comes; the ARN of the subscription."""
        members: dict[str, Any] = {
            "TopicArn": topic_arn,
            "Protocol": "sqs",
            "Endpoint": self.open_to_topics(queue_url),
        }
        if attributes:
            members["Attributes"] = attributes
        arn: str = self.sns("Subscribe", **members)["SubscriptionArn"]
        return arn

    def topic_attributes(self, arn: str) -> dict[str, str]:
        """All attributes of a topic."""
        found: dict[str, str] = self.sns("GetTopicAttributes", TopicArn=arn)["Attributes"]
        return found

    def subscription_attributes(self, arn: str) -> dict[str, str]:
        """All attributes of a subscription."""
        result = self.sns("GetSubscriptionAttributes", SubscriptionArn=arn)
        found: dict[str, str] = result["Attributes"]
        return found
