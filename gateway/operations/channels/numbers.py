"""The numbers of a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.channels.throughput import Rates, Totals
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.queues.dead_letters import dead_letter_queue
from queuegate.storage.queues.priority_depths import priority_depths

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.queues.queues import Metrics
    from queuegate.storage.model import Queue

COUNTED = 10_000
"""Up to how many messages of a priority are counted."""


class PriorityNumbers(NamedTuple):
    """What waits with one priority."""

    priority: int
    visible: int
    oldest_age_seconds: int
    """How long the one that comes next has waited since it was published."""


class ChannelNumbers(NamedTuple):
    """What a channel holds, and how fast it goes."""

    metrics: Metrics
    priorities: list[PriorityNumbers]
    """Those with something that waits, the most urgent first."""
    dead_letters: int
    """In its dead-letter queue, whosever they are; ``dead_total`` came there in all."""
    totals: Totals
    rates: Rates


async def numbers(engine: Engine, caller: Caller, channel: Queue) -> ChannelNumbers:
    """The numbers of one channel, in a time that does not depend on its depth. Raises
    QueueDoesNotExist."""
    found = await queues.metrics(engine, caller, channel)
    waiting = await _priorities(engine, found)
    held, dead = 0, 0
    target = await dead_letter_queue(engine, found.queue)
    if target is not None:
        letters = await queues.metrics(engine, caller, target)
        held, dead = _held(letters), letters.total
    totals = Totals(found.looked_at, found.total, max(found.total - _held(found), 0), dead)
    return ChannelNumbers(
        found, waiting, held, totals, engine.throughput.rates(found.queue, totals)
    )


def _held(found: Metrics) -> int:
    return found.counts.visible + found.counts.in_flight + found.counts.delayed


async def _priorities(engine: Engine, found: Metrics) -> list[PriorityNumbers]:
    queue = found.queue
    if not queue.has_priorities:
        visible = found.counts.visible
        return [PriorityNumbers(0, visible, found.oldest_age_seconds or 0)] if visible else []
    async with engine.database.transaction() as tx:
        now = engine.clock.of(queue.account_id).now()
        depths = await priority_depths(tx, now, queue.queue_id, most=COUNTED)
    return [
        PriorityNumbers(
            one.priority,
            min(one.visible, COUNTED),
            max(int((one.now - one.oldest_at).total_seconds()), 0),
        )
        for one in depths
        if one.oldest_at is not None
    ]
