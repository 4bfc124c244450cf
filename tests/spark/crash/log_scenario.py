"""The same with a log: nothing becomes visible again, and nothing has to be deleted."""

from __future__ import annotations

import itertools
from pathlib import Path

from spark_connectors.endpoints import Connection, json_bytes
from spark_connectors.log.log_api import LogCalls
from tests.spark.crash.jobs import Job
from tests.spark.crash.scenario import Runner, Scenario, compared

_KEYS = 7
_MOST = 500


class LogScenario(Scenario):
    """One log, one checkpoint, one table."""

    def __init__(
        self, endpoint: str, log: str, directory: Path, *, runner: Runner, **options: object
    ) -> None:
        self.log = log
        self.directory = directory
        self.table = directory / "table"
        self.checkpoint = directory / "checkpoint"
        self.calls = LogCalls(Connection(endpoint, "us-east-1"))
        self._runner = runner
        given = {"endpointUrl": endpoint, "subscribe": log, "maxOffsetsPerTrigger": 40, **options}
        self.job = Job(
            {name: str(value) for name, value in given.items()},
            str(self.checkpoint),
            str(self.table),
            sink=runner.sink,
        )
        self.sent: list[str] = []
        self._runs = itertools.count()

    def send(self, count: int) -> None:
        """So many records more."""
        last = len(self.sent) + count
        for first in range(len(self.sent), last, _MOST):
            values = [f"{number:07}" for number in range(first, min(last, first + _MOST))]
            records = [{"key": f"k{int(one) % _KEYS}", "payload": one} for one in values]
            self.calls.publish(self.log, [json_bytes(one) for one in records])
            self.sent += values

    def wait_visible(self) -> None:
        """Records always are."""

    def drain(self) -> None:
        """Run the job until it has read the log, and check everything."""
        self.start().ends_well()
        self.check()

    def check(self) -> None:
        """Every record once, those of a key in their order."""
        rows = self.rows()
        lost, doubled = compared(self.sent, (value for value, _, _ in rows))
        assert (lost, doubled) == ([], []), f"{len(lost)} lost, {len(doubled)} duplicated"
        for key in {key for _, key, _ in rows}:
            order = [value for value, one, _ in rows if one == key]
            assert order == sorted(order), f"key {key} is out of order"
