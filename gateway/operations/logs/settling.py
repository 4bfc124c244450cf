"""What subscribers do with the records that they were given: by receipts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.replies import answered
from queuegate.storage.errors import MalformedInput
from queuegate.storage.logs.delivery_entries import Change, Settle
from queuegate.storage.logs.positions import Do, Outcome

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.log_model import Delivered, Group, Log

_BIGGEST = 2**63 - 1
_NO_PARTITION = -1
_RECEIPT = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})\.([0-9]{1,20})\.([0-9]{1,20})")


class Settlement(NamedTuple):
    """What to do with a record."""

    receipt: str
    do: Do
    delay_seconds: float | None = None
    """Of a nack (None: as the group's back-off has it), a postponement or an extension."""
    error: str = ""


def receipt_of(group: Group, delivered: Delivered) -> str:
    """Which delivery of which record to which group it was."""
    offset = delivered.record.offset
    return f"{group.group_id}.{delivered.partition_id}.{offset}.{delivered.delivery}"


async def settle(
    engine: Engine, log: Log, group: Group, settlements: Sequence[Settlement]
) -> list[Outcome]:
    """Do all of this or nothing; what came of each, in order. It is on disk when this returns.

    Raises MalformedInput for what is no receipt.
    """
    outcomes: list[Outcome] = await answered(start_settling, engine, log, group, settlements)
    return outcomes


def start_settling(
    engine: Engine,
    log: Log,
    group: Group,
    settlements: Sequence[Settlement],
    reply: Reply[list[Outcome]],
) -> None:
    """The same with a reply."""
    changes = [_change(group, one) for one in settlements]
    engine.deliver.lane.submit(Settle(log, group, changes, reply))


def _change(group: Group, settlement: Settlement) -> Change:
    numbers = _numbers(settlement.receipt)
    group_id, partition_id, offset, delivery = numbers
    if group_id != group.group_id:
        # Of a group that is gone, or of another one.
        partition_id = _NO_PARTITION
    delay = settlement.delay_seconds
    delay_ms = None if delay is None else round(delay * 1000)
    return Change(partition_id, (offset, delivery), settlement.do, delay_ms, settlement.error)


def _numbers(receipt: str) -> tuple[int, int, int, int]:
    found = _RECEIPT.fullmatch(receipt)
    if found is not None:
        group_id, partition_id, offset, delivery = map(int, found.groups())
        if max(partition_id, offset, delivery) <= _BIGGEST:
            return group_id, partition_id, offset, delivery
    raise MalformedInput("A `receipt` is none that was given out here.")
