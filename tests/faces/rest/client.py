"""A client of the native API: paths in, statuses and JSON out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.faces.clients import ThreadedClient, authorization
from tests.faces.connections import Answer, request_bytes

ABSENT: Any = object()


class Rest(ThreadedClient):
    """The native API for one account of a gateway."""

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

    def bodies(self, name: str) -> list[str]:
        """Browse up to 1,000 messages of a queue and return their bodies."""
        found = self.call("GET", f"/v1/queues/{name}/browse?limit=1000")
        return [message["body"] for message in found["messages"]]
