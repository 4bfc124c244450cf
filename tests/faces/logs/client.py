"""A client of logs."""

from __future__ import annotations

from typing import Any

from tests.faces.rest.client import Rest


class Logs(Rest):
    """One account of a gateway."""

    def make(self, log: str = "orders", **settings: Any) -> dict[str, Any]:
        """A new log."""
        made: dict[str, Any] = self.call("POST", "/v1/logs", {"log": log} | settings, status=201)
        return made

    def publish(self, *records: dict[str, Any], log: str = "orders") -> list[dict[str, Any]]:
        """Publish records and return their positions."""
        found = self.call("POST", f"/v1/logs/{log}/records", {"records": records}, status=201)
        published: list[dict[str, Any]] = found["records"]
        return published

    def records(self, partition: int = 0, log: str = "orders", **query: Any) -> list[Any]:
        more = "".join(f"&{name}={value}" for name, value in query.items())
        path = f"/v1/logs/{log}/records?partition={partition}{more}"
        found: list[Any] = self.call("GET", path)["records"]
        return found

    def payloads(self, partition: int = 0, log: str = "orders", **query: Any) -> list[str]:
        return [one["payload"] for one in self.records(partition, log, **query)]

    def read(self, *ranges: dict[str, Any], log: str = "orders", **more: Any) -> list[Any]:
        """Read records of each range."""
        body = {"ranges": ranges} | more
        found: list[Any] = self.call("POST", f"/v1/logs/{log}/read", body)["ranges"]
        return found

    def partitions(self, log: str = "orders") -> list[Any]:
        found: list[Any] = self.call("GET", f"/v1/logs/{log}/partitions")["partitions"]
        return found


def record(payload: str = "x", key: str = "a", **more: Any) -> dict[str, Any]:
    """A record to publish."""
    return {"key": key, "payload": payload} | more
