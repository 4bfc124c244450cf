"""Output of a pipeline for people: progress during the work, a summary at its end."""

from __future__ import annotations

import datetime
import time
from typing import Any, Protocol, TextIO


class Summary(Protocol):
    """The result of a pipeline."""

    def lines(self) -> list[str]:
        """Return the text."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return the JSON members: durations in seconds, instants in ISO 8601 with UTC's Z."""
        ...


class ProgressPrinter:
    """Prints progress of long work. Without an ``out`` it is silent."""

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
        """Print this line, at most one every few seconds."""
        if time.monotonic() - self._last >= self._every:
            self.say(line)


SILENT = ProgressPrinter()


def span(seconds: float | None) -> str:
    """Format a duration."""
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
    """Format a rate."""
    return f"{count / seconds:,.0f}/s" if seconds > 0 else "-"


def instant(micros: int | None) -> str | None:
    """Format microseconds since the epoch as ISO 8601, in UTC."""
    if micros is None:
        return None
    moment = datetime.datetime.fromtimestamp(micros // 1_000_000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{micros // 1000 % 1000:03}Z"


def as_members(result: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a result for JSON."""
    return result | {name: instant(result[name]) for name in ("first_sent", "last_sent")}


def clock(micros: int | None) -> str:
    """Format an instant to the second, for text that names UTC."""
    found = instant(micros)
    return "-" if found is None else found[:19].replace("T", " ")


def utc(micros: int | None) -> str:
    """Format an instant to the second, with its zone."""
    return "-" if micros is None else clock(micros) + " UTC"
