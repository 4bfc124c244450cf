"""Points at which a job dies, with every process of its session: as when the machine is gone."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import NamedTuple

VARIABLE = "QUEUEGATE_CRASH_PLAN"


class Plan(NamedTuple):
    """An action at the ``hit``-th time that ``point`` is reached, after so many failed deletes.

    ``action``: ``die`` with the whole session, ``fall`` alone, as a worker that the system kills,
    or ``hang`` until the file ``go`` is in the plan's directory, or for ever.
    """

    point: str = ""
    hit: int = 1
    failing_deletes: int = 0
    action: str = "die"

    def write(self, directory: Path) -> dict[str, str]:
        """The variables of a process that follows this plan; its counts start at zero."""
        directory.mkdir(parents=True)
        (directory / "plan.json").write_text(json.dumps(self))
        return {VARIABLE: str(directory)}


class Points:
    """The plan of this process, if it has one. Counts are those of all its processes."""

    def __init__(self) -> None:
        place = os.environ.get(VARIABLE)
        self._directory = Path(place) if place else None
        self.plan = Plan()
        if self._directory is not None:
            self.plan = Plan(*json.loads((self._directory / "plan.json").read_text()))

    def reach(self, point: str) -> None:
        """Do here what is planned, if it is time."""
        if self.is_now(point):
            self.act()

    def is_now(self, point: str) -> bool:
        """Return True at the planned hit; a plan to die stays true after it."""
        if point != self.plan.point:
            return False
        reached = self._count(point)
        return reached >= self.plan.hit if self.plan.action == "die" else reached == self.plan.hit

    def act(self) -> None:
        """Do what is planned."""
        if self.plan.action == "hang":
            assert self._directory is not None
            go, pause = self._directory / "go", threading.Event()
            while not go.exists():
                pause.wait(0.05)
            return
        if self.plan.action == "die":
            kill_session(os.getsid(0))
        os.kill(os.getpid(), signal.SIGKILL)

    def fails_delete(self) -> int | None:
        """The number of this call when its entries are to fail, otherwise None."""
        if not self.plan.failing_deletes:
            return None
        number = self._count("delete")
        return number if number <= self.plan.failing_deletes else None

    def _count(self, what: str) -> int:
        assert self._directory is not None
        with open(self._directory / what.replace(" ", "-"), "ab", buffering=0) as file:
            file.write(b".")
            return file.tell()


def kill_session(session: int) -> None:
    """Kill -9 what a process started that was the first of its session, but not the caller.

    Python workers have a process group of their own; a session is left only on purpose.
    """
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    # The first one first: when it sees the end of another, it ends in its own way.
    for process in sorted(found, key=lambda one: one != session):
        try:
            if process != os.getpid() and os.getsid(process) == session:
                os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
