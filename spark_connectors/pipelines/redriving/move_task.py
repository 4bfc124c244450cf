"""A whole dead-letter queue moved by the service itself: StartMessageMoveTask."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from spark_connectors.pipelines.redriving.redrive import BadRedrive
from spark_connectors.pipelines.telling import SILENT, Teller, span
from spark_connectors.transport.aws.wire import Transport

_LOOK_SECONDS = 1.0
_ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class MovePlan(NamedTuple):
    """What to move. ``destination``: a queue's URL instead of each message's source queue."""

    queue_url: str
    apply: bool = False
    destination: str | None = None
    rate: int | None = None


class MoveSummary(NamedTuple):
    """What became of a move task."""

    queue_url: str
    is_dry_run: bool
    messages: int
    status: str
    moved: int
    seconds: float

    def lines(self) -> list[str]:
        """For people."""
        if self.is_dry_run:
            return [f"dry run, nothing moved (--yes moves them): about {self.messages:,} messages"]
        return [f"{self.status.lower()}: {self.moved:,} moved in {span(self.seconds)}"]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return self._asdict()


def move_all(transport: Transport, plan: MovePlan, teller: Teller = SILENT) -> MoveSummary:
    """Have the service move every message, and watch until it has.

    An interrupt ends the watching only: the task goes on in the service. Raises BadRedrive when the
    task fails or is cancelled, Refused and NotNow.
    """
    began = time.monotonic()
    figures = transport.figures(plan.queue_url)
    total = figures.visible + figures.delayed
    if not plan.apply or not total:
        return MoveSummary(plan.queue_url, not plan.apply, total, "NOTHING TO DO", 0, 0.0)
    arn = transport.attributes(plan.queue_url)["QueueArn"]
    wanted = plan.destination and transport.attributes(plan.destination)["QueueArn"]
    handle = transport.start_move(arn, wanted or None, plan.rate)
    teller.say(f"move task of about {total:,} messages started")
    task = _watch(transport, arn, handle, teller)
    status, moved = str(task["Status"]), int(task.get("ApproximateNumberOfMessagesMoved", 0))
    if status != "COMPLETED":
        why = task.get("FailureReason", "no reason given")
        raise BadRedrive(f"the move task ended as {status} after {moved:,} messages: {why}")
    seconds = time.monotonic() - began
    return MoveSummary(plan.queue_url, False, total, status, moved, seconds)


def _watch(transport: Transport, arn: str, handle: str, teller: Teller) -> dict[str, Any]:
    """The task once it has ended. Only running ones still have their handle: an ended task is the
    newest of the list."""
    pause = threading.Event()
    while True:
        tasks = transport.move_tasks(arn)
        running = [task for task in tasks if task.get("TaskHandle") == handle]
        task = (running or tasks)[0]
        if task["Status"] in _ENDED:
            return task
        moved = int(task.get("ApproximateNumberOfMessagesMoved", 0))
        teller.step(f"{task['Status'].lower()}: {moved:,} moved")
        pause.wait(_LOOK_SECONDS)
