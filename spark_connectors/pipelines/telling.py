"""What a person sees of a pipeline: progress while it works, a summary at its end."""

from __future__ import annotations

import datetime
import sys
import time
from typing import Any, Protocol, TextIO


class Summary(Protocol):
    """What a pipeline did."""

    def lines(self) -> list[str]:
        """For people."""
        ...

    def as_json(self) -> dict[str, Any]:
        """For machines: durations in seconds, instants in ISO 8601 with UTC's Z."""
        ...


class Teller:
    """Lines about work that takes long. Without an ``out`` it is silent."""

    def __init__(self, out: TextIO | None = None, every_seconds: float = 3.0) -> None:
        self._out = out
        self._every = every_seconds
        self._last = time.monotonic()

    def say(self, line: str) -> None:
        """Print this line."""
        self._last = time.monotonic()
        if self._out is not None:
            print(line, file=self._out, flush=True)

    def step(self, line: str) -> None:
        """Print this line unless there was one a moment ago."""
        if time.monotonic() - self._last >= self._every:
            self.say(line)


SILENT = Teller()


def on_stderr() -> Teller:
    """A teller for a command: standard output is for the result."""
    return Teller(sys.stderr)


def span(seconds: float | None) -> str:
    """A duration for people."""
    if seconds is None:
        return "-"
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    if abs(seconds) < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if abs(seconds) < 172_800 else f"{seconds / 86_400:.1f} days"


def per_second(count: int, seconds: float) -> str:
    """A rate for people."""
    return f"{count / seconds:,.0f}/s" if seconds > 0 else "-"


def instant(micros: int | None) -> str | None:
    """Microseconds since the epoch as ISO 8601, in UTC."""
    if micros is None:
        return None
    moment = datetime.datetime.fromtimestamp(micros // 1_000_000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{micros // 1000 % 1000:03}Z"


def clock(micros: int | None) -> str:
    """The same for people: to the second, where it is said that times are UTC."""
    found = instant(micros)
    return "-" if found is None else found[:19].replace("T", " ")


def seen(micros: int | None) -> str:
    """The same where it is not said."""
    return "-" if micros is None else clock(micros) + " UTC"
