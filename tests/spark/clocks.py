"""The clock of a gateway and of all that runs beside it, moved instead of waited for.

The connectors note when they received a message, and until when the queue heeds its receipt. So the
time of day of every process of a test goes with the gateway's. Deadlines, which are counted by
time.monotonic(), do not: what waits for an answer still waits for it.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from pathlib import Path

# Names the file that says how far the clock is ahead, in seconds.
VARIABLE = "QUEUEGATE_TESTS_CLOCK"
_time_of_day = time.time
# Threads of one test may move it at once, and what each adds counts.
_moving = threading.Lock()


class Clock:
    """That of one gateway."""

    def __init__(self, gateway: str, file: Path) -> None:
        self._gateway = gateway
        self._file = file

    @classmethod
    def here(cls, gateway: str) -> Clock:
        """The clock of the test that started this process."""
        return cls(gateway, Path(os.environ.get(VARIABLE, "")))

    def advance(self, seconds: float) -> None:
        """Let that much time pass."""
        with _moving:
            ahead = float(self._file.read_text()) + seconds
            # The gateway last: who thinks that it is later than it is trusts no receipt too long.
            self._say(ahead)
            self._tell(ahead)

    def reset(self) -> None:
        """Back to the time of day, when nothing of the test runs any more."""
        if float(self._file.read_text()):
            self._tell(0)
            self._say(0)

    def _say(self, ahead: float) -> None:
        new = self._file.with_suffix(f".{os.getpid()}")
        new.write_text(str(ahead))
        new.replace(self._file)

    def _tell(self, ahead: float) -> None:
        body = json.dumps({"ahead_seconds": ahead, "back": True}).encode()
        urllib.request.urlopen(f"{self._gateway}/_admin/clock", body, 30).close()


def follow() -> None:
    """Let time.time() of this process go with the clock of its test, if that has one."""
    place = os.environ.get(VARIABLE)
    if place and time.time is _time_of_day:
        file = Path(place)
        time.time = lambda: _time_of_day() + float(file.read_text())
