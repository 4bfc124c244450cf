"""Forms of schedules: our own four (cron, every, when, fire_at), and the expressions of EventBridge
Scheduler (docs/contract/scheduler.md 4.3)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from queuegate.protocol.expressions.calendars import Unparsable, local_to_instant, shown, zone_named
from queuegate.protocol.expressions.cron_fields import aws_fields, vixie_fields, vixie_text
from queuegate.protocol.expressions.phrases import parse_when
from queuegate.protocol.expressions.timing import Timing, parse_every, written

_INSTANT = re.compile(
    r"(?P<wall>\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(?P<zone>[Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_LATE = timedelta(minutes=1)
_LONGEST = 1_000
"""Maximum length of any form with its spaces: it is stored and shown as written."""


def parse_form(
    *,
    cron: str | None = None,
    every: str | None = None,
    when: str | None = None,
    fire_at: str | None = None,
    timezone: str = "UTC",
    now: datetime,
) -> Timing:
    """The timing that exactly one of four forms says, read in ``timezone`` at ``now`` (aware).

    cron      five fields as in crontab(5), or an alias such as @hourly
    every     an interval; it becomes cron where cron can say it, else a rate from ``now``
    when      plain English: `phrases.PHRASES` has the list; a single time has to be in the future
    fire_at   RFC 3339, or a local time in ``timezone``; up to a minute in the past, for clocks
              differ: an older one is taken for a slip of the pen

    Unparsable says what is wrong and what would be right; also for an unknown zone and for a cron
    expression that never fires (30 February).
    """
    forms = {"cron": cron, "every": every, "when": when, "fire_at": fire_at}
    given = [name for name, text in forms.items() if text is not None]
    if len(given) != 1:
        raise Unparsable(
            "Give exactly one of cron, every, when and fire_at; "
            + (f"found {' and '.join(given)}." if given else "found none.")
        )
    [form] = given
    if len(forms[form] or "") > _LONGEST:
        raise Unparsable(f"{form}: an expression has at most {_LONGEST} characters.")
    zone = zone_named(timezone)
    if cron is not None:
        return _cron(cron, timezone)
    if every is not None:
        return parse_every(every, timezone=timezone, now=now)
    if when is not None:
        return parse_when(when, zone=zone, now=now)
    return _fire_at(fire_at or "", zone, now)


def _cron(text: str, timezone: str) -> Timing:
    if not vixie_fields(text).ever_fires():
        raise Unparsable(
            f"Cron expression {shown(text)} never fires: none of its months has such a day."
        )
    return Timing("cron", expression=vixie_text(text), timezone=timezone)


def _fire_at(text: str, zone: ZoneInfo, now: datetime) -> Timing:
    instant = read_instant(text, zone)
    if instant < now - _LATE:
        raise Unparsable(
            f"fire_at: {written(instant)} is in the past; now is "
            f"{written(now.replace(microsecond=0))}. Is the year right?"
        )
    return Timing("once", instant=instant)


def read_instant(text: str, zone: ZoneInfo) -> datetime:
    """Return the instant (UTC) of RFC 3339 text; without offset it is a local time in the zone."""
    found = _INSTANT.fullmatch(text.strip())
    try:
        if not found:
            raise ValueError
        wall = datetime.fromisoformat(found["wall"].upper())
        if not found["zone"]:
            return local_to_instant(wall, zone)
        return datetime.fromisoformat(found[0].upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unparsable(
            f"fire_at: {shown(text)} is no instant; write it as 2026-12-01T09:00:00Z, with an "
            "offset (+01:00), or without one as a local time in the timezone."
        ) from None


_RATE = re.compile(r"rate\((\d{1,9}) (minute|hour|day)s?\)", re.ASCII)
_AT = re.compile(r"at\((\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\)", re.ASCII)
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def parse_aws(expression: str, *, timezone: str = "UTC", anchor: datetime) -> Timing:
    """Parse `rate(...)`, `cron(...)` or `at(...)`, without spaces at either end.

    ``timezone`` applies to cron and at; a rate counts elapsed time from ``anchor``, which is its
    first time. An at() in the past is accepted. Cron has a precision of one minute, at() of one
    second. Ranges may wrap (`20-2`), as in the examples of AWS's user guide. Unparsable has AWS's
    text, or names the unknown zone.
    """
    zone = zone_named(timezone)
    if rate := _RATE.fullmatch(expression):
        seconds = int(rate[1]) * _SECONDS[rate[2]]
        if seconds:
            return Timing("rate", seconds=seconds, anchor=anchor)
    elif at := _AT.fullmatch(expression):
        try:
            return Timing("once", instant=local_to_instant(datetime.fromisoformat(at[1]), zone))
        except (ValueError, OverflowError):
            raise _invalid(expression) from None
    else:
        try:
            aws_fields(expression)
        except Unparsable:
            raise _invalid(expression) from None
        return Timing("aws_cron", expression=expression, timezone=timezone)
    raise _invalid(expression)


def _invalid(expression: str) -> Unparsable:
    return Unparsable(f"Invalid Schedule Expression {expression}.")
