"""Expressions in our own forms to timings; refusals say what would have been understood."""

from __future__ import annotations

from datetime import datetime

from queuegate.gateway.operations.schedules.specs import Expression
from queuegate.protocol.expressions import Timing, Unparsable, parse_form
from queuegate.storage.errors import InvalidParameterValue


def timing_of(expression: Expression, now: datetime) -> Timing:
    """The timing of an expression written at ``now``. Raises InvalidParameterValue."""
    try:
        return parse_form(
            **{expression.form: expression.text}, timezone=expression.timezone, now=now
        )
    except Unparsable as error:
        raise InvalidParameterValue(str(error)) from None


def first_time(timing: Timing, now: datetime, *, is_repeatable: bool = False) -> datetime:
    """The first time of a new timing. Raises InvalidParameterValue when there is none.

    A single time may lie in the past a little, for clocks differ: it is fired at once. Not so when
    the request is ``is_repeatable``: repeated, it would fire again.
    """
    first = timing.next_after(now)
    if first is None and not is_repeatable:
        first = timing.instant
    if first is None:
        raise InvalidParameterValue("This would never fire: its time has passed.")
    return first
