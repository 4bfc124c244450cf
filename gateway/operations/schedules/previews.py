"""What an expression means, and when it would fire: nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.schedules.reading import times_from
from queuegate.gateway.operations.schedules.specs import Expression
from queuegate.gateway.operations.schedules.timings import timing_of
from queuegate.protocol import expressions
from queuegate.storage.errors import InvalidParameterValue

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine


# Far enough from where the calendar of datetime begins and ends.
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9998, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Preview:
    """What was understood. ``next_fires`` ends early when no time is left."""

    canonical: Mapping[str, Any]
    human_readable: str
    next_fires: tuple[datetime, ...]


async def preview_schedule(
    engine: Engine,
    caller: Caller,
    expression: Expression,
    count: int | None = None,
    start: datetime | None = None,
) -> Preview:
    """``count`` times behind ``start``; None: as many as schedules show, and from now on.

    Raises InvalidParameterValue with what would have been understood.
    """
    if start is None:
        start = engine.clock.of(caller.account_id).instant()
    if not _FIRST <= start <= _LAST:
        raise InvalidParameterValue("from must be between the years 1970 and 9998.")
    count = engine.rules.schedule_preview_count if count is None else count
    timing = timing_of(expression, start)
    fires = times_from(timing, timing.next_after(start), count)
    return Preview(expressions.canonical(timing), expressions.human_readable(timing), fires)
