"""Schedule expressions of EventBridge Scheduler (docs/contract/scheduler.md 4.3)."""

from __future__ import annotations

import re
from datetime import datetime

from queuegate.protocol.expressions.fields import aws_fields
from queuegate.protocol.expressions.refusal import Unparsable
from queuegate.protocol.expressions.timing import Timing
from queuegate.protocol.expressions.zones import local_to_instant, zone_named

_RATE = re.compile(r"rate\((\d{1,9}) (minute|hour|day)s?\)", re.ASCII)
_AT = re.compile(r"at\((\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\)", re.ASCII)
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def parse_aws(expression: str, *, timezone: str = "UTC", anchor: datetime) -> Timing:
    """`rate(...)`, `cron(...)` or `at(...)`, exactly as written: no blanks at either end.

    ``timezone`` is for cron and at; a rate counts elapsed time from ``anchor``, which is its first
    time. An at() in the past is taken. Cron has a precision of one minute, at() of one second.
    Ranges may wrap (`20-2`), as in the examples of AWS' user guide. Unparsable says what AWS says,
    or that the zone is unknown.
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
