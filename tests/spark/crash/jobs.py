"""The settings of a job, and a running job of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.spark.crash.points import Plan, kill_session

ROOT = Path(__file__).parents[3]


class Job(NamedTuple):
    """A query to run; the options are those of the source.

    ``settings``: of Spark's session; ``batch_seconds``: how long the model's sink takes, by the
    clock of the gateway.
    """

    options: dict[str, str]
    checkpoint: str
    table: str
    is_available_now: bool = True
    sink: str = "parquet"
    master: str = "local[2]"
    settings: Sequence[tuple[str, str]] = ()
    batch_seconds: float = 0

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read the job that ``start`` wrote."""
        return cls(**json.loads(path.read_text()))


class Running:
    """A job in a session of its own."""

    def __init__(self, module: str, job: Job, directory: Path, plan: Plan | None = None) -> None:
        directory.mkdir(parents=True)
        self.plan_directory = directory / "plan"
        (directory / "job.json").write_text(json.dumps(job._asdict()))
        variables = plan.write(self.plan_directory) if plan else {}
        self._log = directory / "log"
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(directory / "job.json")],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it with all that it started."""
        kill_session(self._process.pid)
        self._process.wait(60)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; what it started does not get it."""
        self._process.send_signal(number)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def wait(self, seconds: float = 600) -> int:
        """Wait for the exit status and end the job's processes."""
        try:
            return self._process.wait(seconds)
        finally:
            self.kill()

    def ends_well(self) -> None:
        """Raises AssertionError with the end of its log when it fails."""
        code = self.wait()
        assert code == 0, f"exit code {code}:\n{self.log[-4000:]}"

    def dies(self) -> None:
        """Raises AssertionError when it ends otherwise: its point was never reached."""
        code = self.wait()
        assert code == -signal.SIGKILL, f"exit code {code}:\n{self.log[-4000:]}"
