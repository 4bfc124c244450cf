"""A client of channels: what producers and consumers ask."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.faces.rest.client import Rest


class Channels(Rest):
    """One account of a gateway."""

    def publish(self, channel: str = "alerts", payload: Any = "hello", **members: Any) -> int:
        """The id of the message."""
        body = {"channel": channel, "payload": payload} | members
        published: int = self.call("POST", "/v1/messages", body, status=201)["id"]
        return published

    def bulk(self, *messages: dict[str, Any], status: int = 201) -> list[dict[str, Any]]:
        """Publish messages in bulk and return one result for each."""
        found = self.call("POST", "/v1/messages/bulk", [*messages], status=status)
        results: list[dict[str, Any]] = found["results"]
        return results

    def poll(self, channel: str = "alerts", **query: Any) -> list[dict[str, Any]]:
        """Poll without waiting for up to 10 messages by default."""
        text = urlencode({"channel": channel, "max": 10, "wait": 0} | query)
        found = self.call("GET", f"/v1/messages/poll?{text}")
        messages: list[dict[str, Any]] = found["messages"]
        return messages

    def payloads(self, channel: str = "alerts", **query: Any) -> list[Any]:
        return [one["payload"] for one in self.poll(channel, **query)]

    def finish(self, verb: str, channel: str, *acks: str, **members: Any) -> list[str]:
        """Finish messages and return one result for each."""
        body = {"channel": channel, "acks": [*acks]} | members
        found = self.call("POST", f"/v1/messages/{verb}", body)["results"]
        assert [one["ack"] for one in found] == [*acks]
        return [one["result"] for one in found]

    def ack(self, *messages: dict[str, Any], channel: str = "alerts") -> list[str]:
        return self.finish("ack", channel, *[one["ack"] for one in messages])

    def nack(self, *messages: dict[str, Any], channel: str = "alerts", delay: int = 0) -> list[str]:
        return self.finish("nack", channel, *[one["ack"] for one in messages], delay=delay)
