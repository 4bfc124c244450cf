"""Workers of a group over HTTP, which crash by being heard of no more, and the round of the
collector that every gateway begins each quarter of a minute."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Self

from queuegate.scheduler.sweeps import remove_records, retire_records
from queuegate.storage.database import Database
from tests.faces.logs.client import Logs, record
from tests.seed.gateways import SharedServer

ROWS = 100_000


class Worker:
    """A subscriber, which has joined when this returns."""

    def __init__(
        self, logs: Logs, name: str = "one", *, group: str = "billing", log: str = "orders"
    ) -> None:
        self._logs = logs
        self._group = f"/v1/logs/{log}/groups/{group}"
        self._own = f"{self._group}/subscribers/{name}"
        self.name = name
        self.session = 0
        self.share = 0
        self.partitions: list[int] = []
        self.beat()

    def beat(self) -> Self:
        """Say that it is alive, and hear what it holds."""
        body = {"session": self.session} if self.session else {}
        said = self._logs.call("PUT", self._own, body)
        self.session, self.share = said["session"], said["share"]
        self.partitions = [one["partition"] for one in said["partitions"]]
        return self

    def fetched(self, **more: Any) -> dict[str, Any]:
        """All that a fetch says."""
        body = {"session": self.session} | more
        found: dict[str, Any] = self._logs.call("POST", f"{self._own}/fetch", body)
        return found

    def fetch(self, most: int = 100, **more: Any) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = self.fetched(max=most, **more)["records"]
        return records

    def payloads(self, **more: Any) -> list[str]:
        """Of what it fetches and leaves unfinished."""
        return [one["payload"] for one in self.fetch(**more)]

    def settle(self, records: list[dict[str, Any]], do: str, **more: Any) -> list[str]:
        """Settle records and return one result for each."""
        told = [{"receipt": one["receipt"], "do": do} | more for one in records]
        found = self._logs.call("POST", f"{self._group}/deliveries", {"deliveries": told})
        return [one["result"] for one in found["results"]]

    def ack(self, *records: dict[str, Any]) -> list[str]:
        return self.settle([*records], "ack")

    def finish_all(self) -> list[str]:
        """Fetch and acknowledge all that is there: the payloads."""
        found: list[str] = []
        while records := self.fetch():
            found += [one["payload"] for one in records]
            self.ack(*records)
        return found

    def leave(self, *, releases: bool = False) -> None:
        more = "&release=true" if releases else ""
        self._logs.call("DELETE", f"{self._own}?session={self.session}{more}", status=204)

    def is_fenced(self) -> bool:
        """Return True if its fetches are refused because another session is live."""
        path, body = f"{self._own}/fetch", {"session": self.session}
        return self._logs.ask("POST", path, body).status == 409

    def place(self, number: int = 0) -> dict[str, Any]:
        """Return the position of its group in a partition."""
        found: dict[str, Any] = self._logs.call("GET", f"{self._group}/partitions")["partitions"][
            number
        ]
        return found

    @property
    def watermark(self) -> int:
        """The highest offset up to which all is done."""
        found: int = self.place()["watermark"]
        return found


def numbered(count: int, key: str = "a") -> list[dict[str, Any]]:
    """Records of one key whose payloads count up from 0."""
    return [record(str(number), key) for number in range(count)]


def group(logs: Logs, name: str = "billing", **settings: Any) -> None:
    """Make a group of `orders`."""
    logs.call("PUT", f"/v1/logs/orders/groups/{name}", settings, status=201)


def collect(server: SharedServer) -> None:
    """Let logs begin behind what they need not keep, and remove what is before: a round each."""
    now = datetime.fromisoformat(server.now())

    async def rounds() -> None:
        database = Database(server.dsn)
        await database.open()
        try:
            for sweep in (retire_records, remove_records):
                assert await sweep.job(database, lambda: now).run_round(ROWS) < ROWS
        finally:
            await database.close()

    asyncio.run(rounds())


def stored(server: SharedServer, logs: Logs, log: str = "orders") -> int:
    """Return the number of stored records, readable or not."""
    statement = (
        "SELECT count(*) FROM log_records JOIN log_partitions USING (partition_id)"
        " JOIN logs AS l USING (log_id) WHERE l.account_id = $1 AND l.log_name = $2"
    )
    [[count]] = server.rows(statement, logs.account, log)
    return int(count)
