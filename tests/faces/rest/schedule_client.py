"""A client of the native API that has schedules."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.faces.rest.client import Rest
from tests.waiting import until


class Scheduling(Rest):
    """A client that deletes its schedules at the end: others move the clock, too."""

    def __enter__(self) -> Scheduling:
        return self

    def __exit__(self, *_: object) -> None:
        for schedule in self.listed():
            self.ask("DELETE", f"/v1/schedules/{schedule['name']}")
        super().__exit__()

    def schedule(self, name: str, target: Any, **members: Any) -> Any:
        """A new schedule; it fires every hour unless told otherwise."""
        if not members.keys() & {"cron", "every", "when", "fire_at"}:
            members["cron"] = "0 * * * *"
        body = {"name": name, "target": target, **members}
        return self.call("POST", "/v1/schedules", body, status=201)

    def get(self, name: str) -> Any:
        return self.call("GET", f"/v1/schedules/{name}")

    def patch(self, name: str, **members: Any) -> Any:
        return self.call("PATCH", f"/v1/schedules/{name}", members)

    def listed(self, **query: Any) -> Any:
        return self.call("GET", f"/v1/schedules?{urlencode(query)}")

    def preview(self, **members: Any) -> Any:
        return self.call("POST", "/v1/previews", members)

    def until(self, name: str, **members: Any) -> Any:
        """The schedule, once these members have these values."""
        return until(
            lambda: self.get(name),
            lambda schedule: all(schedule[member] == value for member, value in members.items()),
        )

    def until_deleted(self, name: str) -> None:
        """Until there is no such schedule."""
        until(lambda: self.ask("GET", f"/v1/schedules/{name}"), lambda answer: answer.status == 404)

    def fired(self, queue_name: str, count: int) -> list[Any]:
        """That many messages, in the order in which they come, and no more; they are deleted."""
        found: list[Any] = []
        while len(found) < count:
            some = self.receive(queue_name, max=100, wait=20)
            assert some, f"{len(found)} messages came, not {count}"
            self.call(
                "DELETE",
                f"/v1/queues/{queue_name}/messages",
                {"ids": [message["id"] for message in some]},
            )
            found += some
        assert len(found) == count, found
        return found


def to_queue(name: str = "jobs", message: Any = "hello", **members: Any) -> dict[str, Any]:
    """A target."""
    return {"kind": "queue", "queue_name": name, "message": message, **members}


def to_topic(key: str = "orders.late", message: Any = "hello", **members: Any) -> dict[str, Any]:
    """A target."""
    return {"kind": "topic", "routing_key": key, "message": message, **members}


def times(messages: list[Any]) -> list[str]:
    """For which times messages were fired."""
    return [message["headers"]["_schedule"]["scheduled_for"] for message in messages]
