"""An account of a gateway for one test: its clients, queues, clock and outbox."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

_REGION = "us-east-1"
_QUIET_MS = 100
_LONGEST_WAIT_SECONDS = 20
_MOST_SHOWN = 5

Found = TypeVar("Found")


@lru_cache(maxsize=1)
def _session() -> boto3.Session:
    """Return one session for all accounts: it has read the models of services."""
    return _new_session()


def _new_session() -> boto3.Session:
    """Return a session without credentials so far, with models that were read before."""
    made = botocore.session.Session()
    loader = _loader()
    made.register_component("data_loader", loader)
    session = boto3.Session(botocore_session=made)
    # Each session adds the same.
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)
    return session


@lru_cache(maxsize=1)
def _loader() -> Any:
    return botocore.session.Session().get_component("data_loader")


class RequestRefused(Exception):
    """The gateway refused a request. The text has its answer."""


class Message:
    """A message of a queue, as ``browse`` of the gateway or a receive shows it."""

    def __init__(self, body: str, shown: dict[str, Any]) -> None:
        self.body = body
        self.shown = shown
        """The members of the message, as the API shows them."""

    def json(self) -> Any:
        """Return the content of a body in JSON."""
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"Message({self.body!r})"


class Account:
    """An account with a number of its own. As a context, it deletes all of it at the end."""

    def __init__(self, url: str, account_id: str | None = None, region: str = _REGION) -> None:
        self.url = url
        self.account_id = account_id or str(random.SystemRandom().randint(10**11, 10**12 - 1))
        self.region = region
        self._clients: dict[str, Any] = {}
        self.queues = Queues(self)
        self.clock = Clock(self)
        self.outbox = Outbox(self)
        self.faults = AccountFaults(self)

    def __enter__(self) -> Account:
        return self

    def __exit__(self, *_: object) -> None:
        self.faults.clear()
        for client in self._clients.values():
            client.close()
        self.admin("POST", "/_admin/reset", {"account": self.account_id})

    def environment(self) -> dict[str, str]:
        """Return the variables with which every SDK finds this account."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.account_id,
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextlib.contextmanager
    def in_environment(self) -> Iterator[Account]:
        """Set these variables, and remove those that lead SDKs elsewhere; undo it at the end. The
        default session of boto3, which keeps credentials, is a new one meanwhile."""
        wanted: dict[str, str | None] = {**dict.fromkeys(foreign_variables()), **self.environment()}
        before = {name: os.environ.get(name) for name in wanted}
        session = boto3.DEFAULT_SESSION
        _set_variables(wanted)
        try:
            boto3.DEFAULT_SESSION = _new_session()
            yield self
        finally:
            _set_variables(before)
            boto3.DEFAULT_SESSION = session

    def client(self, service: str) -> Any:
        """Return the boto3 client of a service, always the same."""
        if service not in self._clients:
            self._clients[service] = _session().client(
                service,
                endpoint_url=self.url,
                region_name=self.region,
                aws_access_key_id=self.account_id,
                aws_secret_access_key="any",
                config=Config(retries={"total_max_attempts": 1}),
            )
        return self._clients[service]

    @property
    def sqs(self) -> Any:
        """Return the client of SQS."""
        return self.client("sqs")

    @property
    def sns(self) -> Any:
        """Return the client of SNS."""
        return self.client("sns")

    @property
    def scheduler(self) -> Any:
        """Return the client of EventBridge Scheduler."""
        return self.client("scheduler")

    def admin(self, method: str, path: str, content: Any = None) -> Any:
        """Send a signed request to a page of the gateway or its REST API, and return the JSON.
        Raises RequestRefused."""
        data = None if content is None else json.dumps(content).encode()
        request = AWSRequest(method, self.url + path, data=data)
        SigV4Auth(Credentials(self.account_id, "any"), "sqs", self.region).add_auth(request)
        headers = dict(request.headers)
        sent = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(sent, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace").strip()
            raise RequestRefused(f"{method} {self.url}{path}: {error.code} {text}") from None

    def peek(self, queue: str) -> list[Message]:
        """Return all messages of a queue, without receiving them."""
        found: list[Message] = []
        after = ""
        while after is not None:
            query = urllib.parse.urlencode({"after": after} if after else {})
            path = f"/v1/queues/{urllib.parse.quote(queue)}/browse?{query}"
            page = self.admin("GET", path)
            found += [Message(one["body"], one) for one in page["messages"]]
            after = page.get("next")
        return found

    def events(self, **filters: Any) -> dict[str, Any]:
        """Return what happened to the messages of the account since the first call, as
        `/_admin/events` of the gateway shows it; ``filters``: its parameters."""
        found: dict[str, Any] = self.admin(
            "GET", f"/_admin/events?{urllib.parse.urlencode(filters)}"
        )
        return found

    def wait_for(
        self,
        wanted: str | Callable[[], Found],
        timeout: float = 10.0,
        *,
        count: int = 1,
        **filters: str,
    ) -> Any:
        """Wait until so many events of these kinds happened since the first call of ``events``, and
        return them; ``filters``: queue, topic, message_id.

        For a function: call it whenever something happens, and ten times a second, until it returns
        something true, and return that. AssertionError after so many seconds.
        """
        deadline = time.monotonic() + timeout
        found: Any = []
        after = {} if isinstance(wanted, str) else {"after": "now"}
        while True:
            if callable(wanted):
                found = wanted()
            if found and (callable(wanted) or len(found) >= count):
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"after {timeout} s it still was {found!r}"
            if callable(wanted):
                page = self.events(quiet=_QUIET_MS, **after)
            else:
                wait = min(math.ceil(left), _LONGEST_WAIT_SECONDS)
                page = self.events(kind=wanted, wait=wait, **filters, **after)
                found += page["events"]
            after = {"after": page["next"]}

    def report(self) -> str:
        """Return the queues of the account with their first messages, for the report of a test."""
        try:
            return self._shown_queues()
        except Exception as error:  # noqa: BLE001 - a report must not fail because of this
            return f"cannot be shown: {error!r}"

    def _shown_queues(self) -> str:
        lines = []
        for url in self.sqs.list_queues().get("QueueUrls", []):
            name = url.rpartition("/")[2]
            messages = self.peek(name)
            lines.append(f"{name}: {len(messages)} messages")
            for one in messages[:_MOST_SHOWN]:
                count = one.shown["attributes"]["ApproximateReceiveCount"]
                said = f"{one.shown['state']}, received {count} times"
                lines.append(f"    {said}: {one.body[:200]!r}")
        return "\n".join(lines) or "no queues"


class AccountFaults:
    """Faults on purpose in requests of an account, and in its deliveries."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._ids: list[int] = []

    def add(self, **rule: Any) -> int:
        """Add a rule, such as ``operation="SendMessage", error="ThrottlingException", count=2``;
        return its id. Its members are those of /_admin/faults."""
        content = {"account": self._account.account_id, **rule}
        [added] = self._account.admin("POST", "/_admin/faults", content)["faults"]
        self._ids.append(added["id"])
        return int(added["id"])

    def fired(self, fault_id: int) -> int:
        """Return how often a rule has fired."""
        rules = self._account.admin("GET", "/_admin/faults")["faults"]
        return next((int(one["fired"]) for one in rules if one["id"] == fault_id), 0)

    def clear(self) -> None:
        """Remove the added rules that have not ended."""
        mine, self._ids = {*self._ids}, []
        for one in self._account.admin("GET", "/_admin/faults")["faults"] if mine else ():
            if one["id"] in mine:
                self._account.admin("DELETE", f"/_admin/faults/{one['id']}")


class Queue:
    """A queue of a test."""

    def __init__(self, account: Account, name: str, url: str) -> None:
        self._account = account
        self.name = name
        self.url = url
        self.arn = f"arn:aws:sqs:{account.region}:{account.account_id}:{name}"
        self.dead_letters: Queue | None = None
        """The dead-letter queue that was created with it."""

    def send(self, body: Any, **members: Any) -> str:
        """Send a text, or anything else as JSON; return the id. ``members``: of SendMessage."""
        text = body if isinstance(body, str) else json.dumps(body)
        sent = self._account.sqs.send_message(QueueUrl=self.url, MessageBody=text, **members)
        return str(sent["MessageId"])

    def receive(self, count: int = 10, wait: int = 0, *, delete: bool = False) -> list[Message]:
        """Receive up to ``count`` messages; ``wait``: seconds of a long poll."""
        sqs = self._account.sqs
        received = sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=wait,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        if delete:
            for one in received:
                sqs.delete_message(QueueUrl=self.url, ReceiptHandle=one["ReceiptHandle"])
        return [Message(one["Body"], one) for one in received]

    def peek(self) -> list[Message]:
        """Return all messages, without receiving them."""
        return self._account.peek(self.name)


class Queues:
    """Creates queues of an account."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def create(
        self,
        name: str,
        *,
        fifo: bool = False,
        dead_letters_after: int | None = None,
        **attributes: Any,
    ) -> Queue:
        """Create a queue, with its dead-letter queue if messages are moved after so many receives.
        ``attributes``: those of CreateQueue."""
        if fifo and not name.endswith(".fifo"):
            name += ".fifo"
        dead_letters = None
        if fifo:
            attributes = {"FifoQueue": True, "ContentBasedDeduplication": True, **attributes}
        if dead_letters_after is not None:
            dead_letters = self.create(f"{name.removesuffix('.fifo')}-dead", fifo=fifo)
            attributes["RedrivePolicy"] = {
                "deadLetterTargetArn": dead_letters.arn,
                "maxReceiveCount": dead_letters_after,
            }
        texts = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in attributes.items()
        }
        url = self._account.sqs.create_queue(QueueName=name, Attributes=texts)["QueueUrl"]
        queue = Queue(self._account, name, url)
        queue.dead_letters = dead_letters
        return queue


class Clock:
    """The clock of one account."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def _move(self, **members: Any) -> None:
        content = {"account": self._account.account_id, **members}
        self._account.admin("POST", "/_admin/clock", content)

    def advance(self, time_span: Any) -> None:
        """Move on by seconds, or by a text such as "5m" or "1h30m"."""
        self._move(**{"advance" if isinstance(time_span, str) else "advance_seconds": time_span})

    def move_to(self, instant: datetime) -> None:
        """Move on to an instant with its zone."""
        self._move(to=instant.isoformat())

    def freeze(self) -> None:
        """Stop the time."""
        self._move(freeze=True)

    def unfreeze(self) -> None:
        """Unfreeze the time."""
        self._move(freeze=False)

    def put_back(self) -> None:
        """Show the real time again."""
        self._move(ahead_seconds=0, back=True)

    @property
    def now(self) -> datetime:
        """Return the account's present."""
        path = f"/_admin/clock?account={self._account.account_id}"
        return datetime.fromisoformat(self._account.admin("GET", path)["now"])


class Outbox:
    """Messages of an account that the gateway does not send: SMS, e-mail, push, invocations."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def all(self, **filters: str) -> list[dict[str, Any]]:
        """Return the messages; ``filters``: protocol, destination, topic_arn, kind."""
        query = urllib.parse.urlencode({"limit": "1000", **filters})
        found: list[dict[str, Any]] = self._account.admin("GET", f"/_admin/outbox?{query}")[
            "messages"
        ]
        return found

    def clear(self) -> None:
        """Delete all messages."""
        self._account.admin("DELETE", "/_admin/outbox")


def _set_variables(texts: Mapping[str, str | None]) -> None:
    for name, text in texts.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text


def foreign_variables() -> list[str]:
    """Return the set variables that lead SDKs to another endpoint or account."""
    return [
        name
        for name in os.environ
        if name.startswith("AWS_ENDPOINT_URL_")
        or name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
    ]
