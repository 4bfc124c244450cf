"""A timing: when a schedule fires, in the form that is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, cast

from queuegate.protocol.expressions.calendars import Calendar
from queuegate.protocol.expressions.fields import aws_fields, vixie_fields
from queuegate.protocol.expressions.refusal import Unparsable
from queuegate.protocol.expressions.zones import zone_named

Kind = Literal["cron", "aws_cron", "rate", "once"]
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Timing:
    """When something fires. All instants are UTC.

    cron, aws_cron   ``expression`` read in ``timezone``
    rate             ``anchor`` and every ``seconds`` after it, in elapsed time
    once             at ``instant``
    """

    kind: Kind
    expression: str = ""
    timezone: str = "UTC"
    seconds: int = 0
    anchor: datetime | None = None
    instant: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        """The first time strictly after ``instant`` (aware), in UTC; None: never again.

        A rate fires at its anchor too, for an instant before that.
        """
        if self.kind == "once":
            assert self.instant is not None
            return self.instant if self.instant > instant else None
        if self.kind == "rate":
            return self._next_of_rate(instant)
        return _calendar(self.kind, self.expression, self.timezone).next_after(instant)

    def times(
        self, after: datetime, until: datetime | None = None, *, limit: int
    ) -> Iterator[datetime]:
        """Up to ``limit`` times strictly after ``after`` and not later than ``until``, in order."""
        for _ in range(limit):
            found = self.next_after(after)
            if found is None or (until is not None and found > until):
                return
            yield found
            after = found

    def to_json(self) -> dict[str, str | int]:
        """What is needed to know the times again, as JSON values."""
        if self.kind == "once":
            return {"kind": self.kind, "instant": written(self.instant)}
        if self.kind == "rate":
            return {"kind": self.kind, "seconds": self.seconds, "anchor": written(self.anchor)}
        return {"kind": self.kind, "expression": self.expression, "timezone": self.timezone}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Timing:
        """The inverse of `to_json`; Unparsable for anything else."""
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
    """The form that all spellings of one timing share: ``cron`` and ``timezone``, ``every_seconds``
    and ``anchor``, or ``fire_at``."""
    if timing.kind == "once":
        return {"fire_at": written(timing.instant)}
    if timing.kind == "rate":
        return {"every_seconds": timing.seconds, "anchor": written(timing.anchor)}
    return {"cron": timing.expression, "timezone": timing.timezone}


def written(instant: datetime | None) -> str:
    """The instant as RFC 3339 text in UTC, with a fraction only when it has one."""
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
