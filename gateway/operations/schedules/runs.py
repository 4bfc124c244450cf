"""Manual runs: a schedule is fired now, beside its times, which stay as they are."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from queuegate.gateway.operations.schedules.dispatch import TRIES, Dispatcher, Written
from queuegate.storage.errors import InvalidParameterValue, Unavailable
from queuegate.storage.planning import probe_by_key
from queuegate.storage.schedules.schedule_fires import Fire

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Schedule


class RunMessage(NamedTuple):
    """A message that a run brought: to which queue, and its number there."""

    queue_id: int
    queue_name: str
    sequence: int


class Run(NamedTuple):
    """What a manual run did."""

    run_id: str
    scheduled_for: datetime
    """When it was asked for."""
    messages: tuple[RunMessage, ...]
    """Those in queues; web hooks get theirs besides."""
    out_of_band: bool = True


async def _write(engine: Engine, dispatcher: Dispatcher, fire: Fire) -> Written:
    """Look up first: nobody waits for a connection with another one in hand."""
    for _ in range(TRIES):
        prepared = await dispatcher.prepare([[fire]])
        failure = prepared.failures[0]
        if failure is not None:
            engine.series.schedules.failed(1)
            raise InvalidParameterValue(f"The schedule cannot be run: {failure.message}")
        async with engine.database.transaction() as tx:
            await probe_by_key(tx)
            now = engine.clock.of(fire.account_id).now()
            written = await dispatcher.write(tx, now, prepared.ready, wants_places=True)
        if written is not None:
            return written
    raise Unavailable("The queues of the schedule are being created and deleted by others.")


async def run_now(engine: Engine, caller: Caller, schedule: Schedule, *, base_url: str = "") -> Run:
    """Fire a schedule once, in one transaction, whether or not it is paused. Neither its next time
    nor what is counted of it changes.

    Raises InvalidParameterValue, with the reason, when its target cannot take the message now.
    """
    run_id = str(uuid4())
    instant = engine.clock.of(schedule.account_id).instant()
    fire = Fire(
        schedule.schedule_id,
        schedule.account_id,
        schedule.region,
        schedule.group_name,
        schedule.name,
        schedule.target,
        instant,
        run_id,
        out_of_band=True,
    )
    dispatcher = Dispatcher(engine, base_url)
    written = await _write(engine, dispatcher, fire)
    dispatcher.committed(written)
    engine.series.schedules.fired(1)
    [[ready]] = written.ready
    names = {queue.queue_id: queue.name for queue in ready.queues.values() if queue is not None}
    messages = [
        RunMessage(place.queue_id, names[place.queue_id], place.sequence)
        for places in written.outcome.places
        for place in places
    ]
    return Run(run_id, instant, tuple(messages))
