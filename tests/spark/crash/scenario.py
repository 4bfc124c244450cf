"""Messages sent, a job killed and started again, and what must hold at the end."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from spark_connectors.endpoints import Connection
from spark_connectors.spool import Contents, Spool
from spark_connectors.stores import LocalStore
from spark_connectors.transport import MessageEntry, open_transport
from tests.spark.clocks import Clock
from tests.spark.crash import engine, tables
from tests.spark.crash.engine import Row
from tests.spark.crash.jobs import Job, Running
from tests.spark.crash.points import Plan
from tests.spark.waiting import wait_for

# Whatever a killed job had received comes again later than this. Where nobody can move the clock,
# it is sat out.
VISIBILITY_SECONDS = 30
SAT_OUT_SECONDS = 4
_GROUPS = 7


class Runner(NamedTuple):
    """The runner of a job, Spark or its model, and a reader of its table."""

    module: str
    rows_of: Callable[[Path], list[Row]]
    sink: str = "parquet"


MODEL = Runner("tests.spark.crash.engine", engine.rows_of)
SPARK = Runner("tests.spark.crash.spark_job", tables.parquet_rows)
SPARK_WITH_DELTA = Runner("tests.spark.crash.spark_job", tables.delta_rows, "delta")


class Kill(NamedTuple):
    """When to kill; ``uncommits``: and Spark's last commit is taken back."""

    plan: Plan
    uncommits: bool = False


KILLS = {
    "received": Kill(Plan("received", 2)),
    "before spooling": Kill(Plan("before segments", 2)),
    "half spooled": Kill(Plan("half segments", 1)),
    "spooled": Kill(Plan("after segments", 2)),
    "planned": Kill(Plan("planned", 2)),
    "read": Kill(Plan("read", 2)),
    "committed": Kill(Plan("committed", 2)),
    "uncommitted": Kill(Plan("committed", 2), uncommits=True),
    # Spark does not sync its log: with the power it loses a commit that we have acted upon.
    "commit lost": Kill(Plan("after acknowledged", 2), uncommits=True),
    "before delete": Kill(Plan("before delete", 2)),
    "deleted": Kill(Plan("deleted", 2)),
    "before acknowledged": Kill(Plan("before acknowledged", 1)),
    "acknowledged": Kill(Plan("after acknowledged", 1)),
    "before done": Kill(Plan("before done", 1)),
    "done": Kill(Plan("after done", 2)),
    "dropped": Kill(Plan("removed segments", 1)),
    "unmarked": Kill(Plan("removed done", 1)),
    # A call is a whole batch: more would keep all groups of a FIFO queue hidden.
    "failing deletes": Kill(Plan("committed", 2, failing_deletes=2)),
}


class Scenario:
    """One queue, one checkpoint, one table."""

    def __init__(
        self,
        endpoint: str,
        url: str,
        directory: Path,
        *,
        runner: Runner,
        clock: Clock | None,
        **options: object,
    ) -> None:
        self.url = url
        self.directory = directory
        self._runner = runner
        self._clock = clock
        self.spool = directory / "spool"
        self.table = directory / "table"
        self.checkpoint = directory / "checkpoint"
        self.transport = open_transport(Connection(endpoint, "us-east-1"))
        given = {
            "endpointUrl": endpoint,
            "region": "us-east-1",
            "queueUrl": url,
            "spoolPath": self.spool,
            "visibilityTimeout": VISIBILITY_SECONDS if clock else SAT_OUT_SECONDS,
            "maxOffsetsPerTrigger": 40,
            "maxReceiveSeconds": 0.5,
            "waitTimeSeconds": 1,
            "minPartitions": 1 if url.endswith(".fifo") else 2,
            **options,
        }
        self.job = Job(
            {name: str(value) for name, value in given.items()},
            str(self.checkpoint),
            str(self.table),
            sink=runner.sink,
        )
        self.sent: list[str] = []
        self._runs = itertools.count()

    @property
    def is_fifo(self) -> bool:
        return self.url.endswith(".fifo")

    def send(self, count: int) -> None:
        """So many messages more, spread over groups when the queue is FIFO."""
        for _ in range(-(-count // 10)):
            first = len(self.sent)
            bodies = [f"{number:07}" for number in range(first, first + min(10, count))]
            count -= len(bodies)
            results = self.transport.send(self.url, [self._entry(body) for body in bodies])
            assert not any(results), results
            self.sent += bodies

    def _entry(self, body: str) -> MessageEntry:
        if not self.is_fifo:
            return MessageEntry(body)
        return MessageEntry(body, group_id=f"g{int(body) % _GROUPS}", deduplication_id=body)

    def start(self, plan: Plan | None = None, job: Job | None = None) -> Running:
        """Run the job."""
        where = self.directory / f"run-{next(self._runs)}"
        return Running(self._runner.module, job or self.job, where, plan)

    def dies(self, kill: Kill) -> None:
        """Run the job up to there."""
        self.start(kill.plan).dies()
        if kill.uncommits:
            self.uncommit()

    def uncommit(self) -> None:
        """Take back Spark's last commit: it died after the sink had the batch, and before that."""
        commits = self.checkpoint / "commits"
        last = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdigit())
        for name in (f"{last}", f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)

    def figures(self) -> tuple[int, int]:
        """Messages visible and in flight."""
        found = self.transport.figures(self.url)
        return found.visible, found.in_flight

    def wait_visible(self) -> None:
        """Until nothing is in flight: what a killed job had received is there again, later when it
        had hidden it longer."""

        def is_visible() -> bool:
            if self._clock is not None:
                self._clock.advance(float(self.job.options["visibilityTimeout"]) + 1)
            return self.figures()[1] == 0

        wait_for(is_visible)

    def rows(self) -> list[Row]:
        return self._runner.rows_of(self.table)

    def contents(self) -> Contents:
        return Spool(LocalStore(str(self.spool)), "").contents()

    def survives(self, kills: Iterable[Kill], count: int = 80) -> None:
        """Send, kill, and start again later than the visibility timeout; check the end of it."""
        for kill in kills:
            self.send(count)
            self.dies(kill)
            self.wait_visible()
        self.drain()

    def drain(self) -> None:
        """Run the job until it has read the queue, and check everything."""
        for _ in range(3):
            self.wait_visible()
            self.start().ends_well()
            if self.figures() == (0, 0):
                break
        self.check()

    def check(self) -> None:
        """Every message once, in order where there is one; nothing left in queue or spool."""
        rows = self.rows()
        lost, doubled = compared(self.sent, (body for body, _, _ in rows))
        assert (lost, doubled) == ([], []), f"{len(lost)} lost, {len(doubled)} duplicated"
        if self.is_fifo:
            for group in {group for _, group, _ in rows}:
                order = [body for body, one, _ in rows if one == group]
                assert order == sorted(order), f"group {group} is out of order"
        assert self.figures() == (0, 0)
        contents = self.contents()
        assert set(contents.segments) <= contents.done.keys()


def compared(sent: Iterable[str], rows: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the values missing in the rows, and those repeated there or never sent."""
    expected, found = Counter(sent), Counter(rows)
    return sorted((expected - found).elements()), sorted((found - expected).elements())
