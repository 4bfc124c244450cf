"""A client of the native API: paths in, statuses and JSON out."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Self

from tests.faces.clients import authorization, new_account
from tests.faces.connections import Answer, Connection, request_bytes

ABSENT: Any = object()


class Rest:
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
        for connection in self._connections:
            connection.close()

    def connection(self) -> Connection:
        """The connection of this thread."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = Connection(self.url)
            self._connections.append(connection)
        return connection

    def encode(
        self,
        method: str,
        path: str,
        body: Any = ABSENT,
        *,
        raw: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """A request with ``body`` as JSON, or with the bytes ``raw``."""
        own = {
            "Host": self.url.partition("://")[2],
            "Authorization": authorization(self.account, self.region, "sqs"),
        }
        data = raw if body is ABSENT else json.dumps(body).encode()
        return request_bytes(method, path, own | dict(headers or {}), data)

    def ask(self, method: str, path: str, body: Any = ABSENT, **options: Any) -> Answer:
        """The bare answer."""
        connection = self.connection()
        connection.send(self.encode(method, path, body, **options))
        return connection.answer(to_head=method == "HEAD")

    def call(self, method: str, path: str, body: Any = ABSENT, *, status: int = 200) -> Any:
        """The decoded body of an answer with that status; None without a body."""
        answer = self.ask(method, path, body)
        assert answer.status == status, answer.text
        return json.loads(answer.body) if answer.body else None

    def refusal(self, method: str, path: str, body: Any = ABSENT, *, status: int = 400) -> str:
        """The text of a refusal with that status."""
        answer = self.ask(method, path, body)
        assert answer.status == status, answer.text
        found = json.loads(answer.body)
        assert list(found) == ["error"]
        text: str = found["error"]
        return text

    def create(self, name: str = "jobs", **members: Any) -> str:
        """The name of a new queue."""
        created: str = self.call("POST", "/v1/queues", {"name": name} | members, status=201)["name"]
        return created

    def send(self, name: str, message: Any = "hello", **members: Any) -> int:
        """The id of the message sent."""
        path = f"/v1/queues/{name}/messages"
        sent: int = self.call("POST", path, {"message": message} | members, status=201)["id"]
        return sent

    def receive(self, name: str, **query: Any) -> list[dict[str, Any]]:
        """Receive up to 10 messages by default."""
        text = "&".join(f"{key}={value}" for key, value in ({"max": 10} | query).items())
        found: list[dict[str, Any]] = self.call("GET", f"/v1/queues/{name}/messages?{text}")
        return found

    def messages(self, name: str, **query: Any) -> list[Any]:
        return [one["message"] for one in self.receive(name, **query)]
