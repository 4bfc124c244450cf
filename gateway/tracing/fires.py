"""Spans of fires: one for each schedule that came due, from the sending to its commit."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import StatusCode

from queuegate.storage.errors import Unavailable
from queuegate.storage.schedules.schedule_fires import Dispatched, Fire

if TYPE_CHECKING:
    from queuegate.gateway.tracing.spans import Tracing
    from queuegate.storage.database import Transaction

Groups = Sequence[Sequence[Fire]]
Dispatch = Callable[["Transaction", datetime | None, Groups], Awaitable[Dispatched]]


class TracedDispatch:
    """A dispatch with a span for each group, which is exported when it is committed. Where sending
    raised there is none unless the group was alone: of several each is tried again by itself."""

    def __init__(self, dispatch: Dispatch, tracing: Tracing) -> None:
        self._dispatch = dispatch
        self._tracing = tracing

    async def __call__(self, tx: Transaction, now: datetime | None, groups: Groups) -> Dispatched:
        """Send; what it raises is raised."""
        began = time.time_ns()
        instant = now or datetime.now(UTC)
        try:
            done = await self._dispatch(tx, now, groups)
        except Unavailable:
            # The round is repeated.
            raise
        except Exception as error:
            if len(groups) == 1:
                self._tell(began, instant, groups[0], type(error).__name__)
            raise

        def committed() -> None:
            done.committed()
            for group, failure in zip(groups, done.failures, strict=False):
                self._tell(began, instant, group, None if failure is None else failure.code)

        return done._replace(committed=committed)

    def _tell(
        self, began: int, instant: datetime, group: Sequence[Fire], error: str | None
    ) -> None:
        span = self._tracing.fire(began) if group else None
        if span is None:
            return
        span.set_attributes(_attributes(group, instant))
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR)
        span.end()


def _attributes(group: Sequence[Fire], instant: datetime) -> dict[str, Any]:
    """Of several times that are caught up with, the last one is named."""
    fire = group[-1]
    target = fire.target
    attributes: dict[str, Any] = {
        "queuegate.schedule.name": fire.name,
        "queuegate.schedule.scheduled_for": fire.scheduled_for.isoformat(),
        "queuegate.schedule.lateness_seconds": (instant - fire.scheduled_for).total_seconds(),
        "queuegate.schedule.attempt": fire.attempt,
        "messaging.system": "queuegate",
        "messaging.operation.name": "fire",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": len(group),
    }
    if fire.group_name is not None:
        attributes["queuegate.schedule.group"] = fire.group_name
    destination = target.get("queue_name") or target.get("topic_name")
    if isinstance(destination, str):
        attributes["messaging.destination.name"] = destination
    return attributes
