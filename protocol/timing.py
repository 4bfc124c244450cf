"""Timings in the form that is stored, within a start and an end and with a window, and intervals
such as `5m`, `2 hours` or `every day`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, cast

from queuegate.protocol.calendars import (
    Calendar,
    Unparsable,
    aws_fields,
    shown,
    vixie_fields,
    zone_named,
)

Kind = Literal["cron", "aws_cron", "rate", "once"]
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Timing:
    """The fire times of a schedule. All instants are UTC. cron, aws_cron: ``expression`` read in
    ``timezone``. rate: ``anchor`` and every ``seconds`` after it, in elapsed time. once: at
    ``instant``."""

    kind: Kind
    expression: str = ""
    timezone: str = "UTC"
    seconds: int = 0
    anchor: datetime | None = None
    instant: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first time strictly after ``instant`` (aware), in UTC; None: never again. A
        rate also fires at its anchor, for an instant before it."""
        if self.kind == "once":
            assert self.instant is not None
            return self.instant if self.instant > instant else None
        if self.kind == "rate":
            return self._next_of_rate(instant)
        return _calendar(self.kind, self.expression, self.timezone).next_after(instant)

    def times(
        self, after: datetime, until: datetime | None = None, *, limit: int
    ) -> Iterator[datetime]:
        """Return up to ``limit`` times strictly after ``after`` and not later than ``until``, in
        order."""
        for _ in range(limit):
            found = self.next_after(after)
            if found is None or (until is not None and found > until):
                return
            yield found
            after = found

    def to_json(self) -> dict[str, str | int]:
        """Return the timing as JSON values for ``from_json``."""
        if self.kind == "once":
            return {"kind": self.kind, "instant": written(self.instant)}
        if self.kind == "rate":
            return {"kind": self.kind, "seconds": self.seconds, "anchor": written(self.anchor)}
        return {"kind": self.kind, "expression": self.expression, "timezone": self.timezone}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Timing:
        """Return the timing of `to_json`. Raises Unparsable for anything else."""
        match stored:
            case {"kind": "once", "instant": str(instant)}:
                return cls("once", instant=_read(instant))
            case {"kind": "rate", "seconds": int(seconds), "anchor": str(anchor)} if seconds > 0:
                return cls("rate", seconds=seconds, anchor=_read(anchor))
            case {
                "kind": "cron" | "aws_cron" as kind,
                "expression": str(expression),
                "timezone": str(timezone),
            }:
                return cls(cast(Kind, kind), expression=expression, timezone=timezone)
        raise Unparsable("This is no stored timing.")

    def _next_of_rate(self, instant: datetime) -> datetime | None:
        assert self.anchor is not None
        if instant < self.anchor:
            return self.anchor
        step = self.seconds * _SECOND
        try:
            return self.anchor + ((instant - self.anchor) // step + 1) * step
        except OverflowError:
            return None


def canonical(timing: Timing) -> dict[str, str | int]:
    """Return the form that all spellings of one timing share: ``cron`` and ``timezone``,
    ``every_seconds`` and ``anchor``, or ``fire_at``."""
    if timing.kind == "once":
        return {"fire_at": written(timing.instant)}
    if timing.kind == "rate":
        return {"every_seconds": timing.seconds, "anchor": written(timing.anchor)}
    return {"cron": timing.expression, "timezone": timing.timezone}


def written(instant: datetime | None) -> str:
    """Format the instant as RFC 3339 in UTC, with a fraction only if it has one."""
    assert instant is not None
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


# About 2 KB each.
@lru_cache(maxsize=4096)
def _calendar(kind: Kind, expression: str, timezone: str) -> Calendar:
    read = vixie_fields if kind == "cron" else aws_fields
    return Calendar(read(expression), zone_named(timezone))


def _read(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise Unparsable("This is no stored timing.") from None
    if instant.tzinfo is None:
        raise Unparsable("This is no stored timing.")
    return instant.astimezone(UTC)


_INSTANT = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)


def next_within(
    timing: Timing,
    after: datetime,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> datetime | None:
    """Return the first time strictly after ``after``, from ``starts_at`` to ``ends_at``, both
    included; None: there is none."""
    if starts_at is not None and after < starts_at:
        after = starts_at - _INSTANT
    found = timing.next_after(after)
    if found is None or (ends_at is not None and found > ends_at):
        return None
    return found


def drawn_due_at(
    time: datetime | None, window_seconds: int, now: datetime, share: float
) -> datetime | None:
    """Return the instant to fire for ``time``: without a window the time itself. ``share``, a
    random number from 0 to 1, picks the instant in the rest of the window."""
    if time is None or not window_seconds:
        return time
    end = time + min(timedelta(seconds=window_seconds), _LAST - time)
    begin = min(max(time, now), end)
    return begin + (end - begin) * share


_UNITS = {
    "second": (1, ("s", "sec", "secs", "second", "seconds")),
    "minute": (60, ("m", "min", "mins", "minute", "minutes")),
    "hour": (3600, ("h", "hr", "hrs", "hour", "hours")),
    "day": (86400, ("d", "day", "days")),
    "week": (604800, ("w", "week", "weeks")),
}
_SECONDS = {word: seconds for seconds, words in _UNITS.values() for word in words}
_WORDS = "|".join(sorted(_SECONDS, key=len, reverse=True))
_PARTS = re.compile(rf"(\d{{1,9}}) ?({_WORDS})(?![a-z])", re.ASCII)
_MOST_SECONDS = 3650 * 86400


def interval_seconds(text: str) -> int | None:
    """Return the seconds of `90s`, `1h30m`, `2 hours` or `day`; None for other texts."""
    if text in _UNITS:
        return _UNITS[text][0]
    found = _PARTS.findall(text)
    if not found or _PARTS.sub("", text).strip():
        return None
    return sum(int(count) * _SECONDS[unit] for count, unit in found)


def parse_every(text: str, *, timezone: str, now: datetime) -> Timing:
    """Return the timing of an interval from one second to ten years.

    It becomes cron in ``timezone`` if cron has it without a jump at the end of the hour, day or
    week: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20 and 30 minutes; 1, 2, 3, 4, 6, 8 and 12 hours; a day (at
    midnight); a week (Sunday at midnight). Any other interval is a rate: elapsed time from ``now``
    (whole seconds) without a zone.
    """
    plain = " ".join(text.lower().split()).removeprefix("every ")
    seconds = interval_seconds(plain)
    if seconds is None:
        raise Unparsable(
            f"every: {shown(text)} is not understood; write a number and a unit (s, m, h, d, w, or "
            "seconds, minutes, hours, days, weeks), such as 30s, 5m, 1h30m, '2 hours' or 'day'."
        )
    if not 1 <= seconds <= _MOST_SECONDS:
        raise Unparsable(
            f"every: {shown(text)} is out of range; an interval is at least a second and at most "
            "3650 days."
        )
    cron = interval_cron(seconds)
    if cron is None:
        return Timing("rate", seconds=seconds, anchor=now.replace(microsecond=0))
    return Timing("cron", expression=cron, timezone=timezone)


def interval_cron(seconds: int) -> str | None:
    """Return the cron expression that fires every so many seconds; None: there is none."""
    minutes, rest = divmod(seconds, 60)
    if rest:
        return None
    if minutes < 60:
        step = "*" if minutes == 1 else f"*/{minutes}"
        return None if 60 % minutes else f"{step} * * * *"
    hours, rest = divmod(minutes, 60)
    if rest:
        return None
    if hours < 24:
        step = "*" if hours == 1 else f"*/{hours}"
        return None if 24 % hours else f"0 {step} * * *"
    return {24: "0 0 * * *", 168: "0 0 * * 0"}.get(hours)
