"""What a write came to: carried from the tasks to the driver, and told to whoever runs the job."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import WriterCommitMessage

from spark_connectors.errors import ConnectorError
from spark_connectors.sink.sending import Totals

_log = logging.getLogger("spark_connectors.sink")


class SplitGroups(ConnectorError):
    """Rows of one FIFO group came from several partitions."""


@dataclass
class Written(WriterCommitMessage):
    """What one task sent."""

    partition: int
    totals: Totals


def written_by(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """The tasks' own messages; a failed task has none."""
    return [message for message in messages if isinstance(message, Written)]


def summed(tasks: Sequence[Written]) -> dict[str, int]:
    """The sums over tasks, by the names that users see."""
    return {
        "partitions": len(tasks),
        "rows": sum(task.totals.rows for task in tasks),
        "bytes": sum(task.totals.byte_count for task in tasks),
        "calls": sum(task.totals.calls for task in tasks),
        "retries": sum(task.totals.retries for task in tasks),
        "deadLetters": sum(task.totals.dead_letters for task in tasks),
    }


def announce(what: str, tasks: Sequence[Written], path: str | None, **labels: int) -> None:
    """Tell the driver's log, and append a line of JSON to the file at ``path`` if there is one."""
    sums = summed(tasks)
    _say(
        f"{what}: {sums['rows']} rows, {sums['bytes']} bytes, {sums['calls']} calls, "
        f"{sums['retries']} retries, {sums['deadLetters']} dead letters "
        f"from {sums['partitions']} partitions"
    )
    if path is not None:
        with Path(path.removeprefix("file://")).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**labels, **sums}) + "\n")


def _say(line: str) -> None:
    """Log at INFO. Spark runs us in a process without any logging: there standard error, which
    Spark copies to the driver's, stands for it."""
    if _log.hasHandlers():
        if _log.level == logging.NOTSET:
            _log.setLevel(logging.INFO)
        _log.info(line)
    else:
        print(f"spark_connectors.sink: {line}", file=sys.stderr, flush=True)


def check_groups(tasks: Sequence[Written]) -> None:
    """Raises SplitGroups when a group came from two of these tasks. Says so if it cannot know."""
    owners: dict[tuple[str, str], int] = {}
    for task in tasks:
        if not task.totals.has_all_groups:
            _say(
                f"checkGroups: partition {task.partition} had more groups than are remembered "
                f"({len(task.totals.groups)}); the others were not checked"
            )
        for group in task.totals.groups:
            other = owners.setdefault(group, task.partition)
            if other != task.partition:
                raise SplitGroups(
                    f"group '{group[1]}' came from partitions {other} and {task.partition}, so "
                    f"its order at {group[0]} is not the DataFrame's. The messages have been sent "
                    "already; repartition by the group's column before the next write"
                )
