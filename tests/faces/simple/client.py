"""A client of the simple queue: what its scripts do, and the refusals."""

from __future__ import annotations

import json
from typing import Any

from tests.faces.rest.client import ABSENT, Rest


class Simple(Rest):
    """One account of a gateway."""

    def create(self, name: str = "orders", **members: Any) -> str:
        """The id of a new queue."""
        body = {"queue_name": name} | members
        created: str = self.call("POST", "/api/queues", body, status=201)["queue_id"]
        return created

    def describe(self, queue_id: str) -> Any:
        return self.call("GET", f"/api/queues/{queue_id}")

    def enqueue(self, queue_id: str, data: str = "hello") -> str:
        """The id of the message."""
        path = f"/api/queues/{queue_id}/messages"
        sent: str = self.call("POST", path, {"data": data}, status=201)["message_id"]
        return sent

    def dequeue(self, queue_id: str, query: str = "") -> Any:
        """The answer."""
        return self.call("GET", f"/api/queues/{queue_id}/messages{query}")

    def acknowledge(self, queue_id: str, message_id: str, *, status: int = 200) -> Any:
        """The answer."""
        path = f"/api/queues/{queue_id}/messages/{message_id}"
        return self.call("DELETE", path, status=status)

    def refusal(self, method: str, path: str, body: Any = ABSENT, *, status: int = 400) -> str:
        """The text of a refusal with that status."""
        answer = self.ask(method, path, body)
        assert answer.status == status, answer.text
        found = json.loads(answer.body)
        assert list(found) == ["status", "error", "message"]
        assert found["status"] == status
        text: str = found["message"]
        return text
