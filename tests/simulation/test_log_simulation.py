"""Some seeds of the simulation of logs in every run; more with ``make simulate``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from queuegate.storage.logs import log_deliveries, log_groups, record_dead_letters, stored_records
from queuegate.storage.logs.positions import Position
from queuegate.storage.model import GroupDeliveryPolicy, NewLogRecord, ReceiptAction, RecordOutcome
from tests.simulation.log_simulation import LogSimulation
from tests.simulation.running import Failed, simulate
from tests.simulation.test_simulation import SEEDS
from tests.simulation.world import World

STEPS = 120


@pytest.mark.parametrize("seed", SEEDS[:3])
async def test_random_clients_see_nothing_that_a_log_could_not_do(
    database_dsn: str, seed: int
) -> None:
    """120 steps, after each of which a real database is asked for all that it holds."""
    await simulate(database_dsn, seed, STEPS, make=LogSimulation)


Original = Callable[..., Any]


class Mutant(NamedTuple):
    """A part of the product that does something wrong; what is seen of it."""

    owner: object
    name: str
    make: Callable[[Original], Original]
    seen: str
    seed: int = 1
    """With which that is seen soon."""


def _loses_acks(settle: Original) -> Original:
    count = itertools.count(1)

    def wrong(self: Position, *told: Any) -> RecordOutcome:
        now, policy, receipt, do, *_ = told
        if do is ReceiptAction.ACK and next(count) % 3 == 0:
            do = ReceiptAction.EXTEND
        outcome: RecordOutcome = settle(self, now, policy, receipt, do, *told[4:])
        return outcome

    return wrong


def _takes_any_receipt(settle: Original) -> Original:
    def wrong(self: Position, now: int, policy: object, receipt: Any, *rest: Any) -> RecordOutcome:
        span = self._at(receipt[0])
        outcome: RecordOutcome = settle(
            self, now, policy, (receipt[0], span.number if span else receipt[1]), *rest
        )
        return outcome

    return wrong


def _counts_no_attempts(settle: Original) -> Original:
    def wrong(
        self: Position, now: int, policy: object, receipt: Any, do: ReceiptAction, *rest: Any
    ) -> Any:
        return settle(
            self,
            now,
            policy,
            receipt,
            ReceiptAction.RELEASE if do is ReceiptAction.NACK else do,
            *rest,
        )

    return wrong


def _has_room(due: Original) -> Original:
    def wrong(self: Position, now: int, policy: GroupDeliveryPolicy, **rest: Any) -> Any:
        return due(self, now, policy._replace(batch_size=policy.batch_size + 1), **rest)

    return wrong


def _skips(read: Original) -> Original:
    async def wrong(self: object, tx: object, given: Sequence[Any]) -> None:
        await read(self, tx, given)
        for one in given:
            del one.records[: len(one.records) - 1]

    return wrong


def _knows_everybody(choose: Original) -> Original:
    def wrong(self: object, looks: Sequence[Any]) -> Any:
        for look in looks:
            look.standing = look.standing or 3
        return choose(self, looks)

    return wrong


def _buries_the_living(balance: Original) -> Original:
    async def wrong(tx: object, now: datetime, *rest: Any) -> Any:
        return await balance(tx, now + timedelta(seconds=20), *rest)

    return wrong


def _collects_everything(_: Original) -> Original:
    async def wrong(tx: Any, now: datetime, partition_ids: Sequence[int], limit: int) -> list[int]:
        await tx.execute(
            "UPDATE log_partitions SET start_offset = next_offset, gap_count = 0"
            " WHERE partition_id = ANY($1::bigint[])",
            partition_ids,
        )
        return [1]

    return wrong


def _removes_one_more(sweep: Original) -> Original:
    async def wrong(tx: Any, unswept: Sequence[Any], limit: int) -> Any:
        for one in unswept:
            await tx.execute(
                "DELETE FROM log_records WHERE partition_id = $1 AND record_offset = $2",
                one.partition_id,
                one.to_offset,
            )
        return await sweep(tx, unswept, limit)

    return wrong


def _forgets_letters(_: Original) -> Original:
    async def wrong(*_: object) -> dict[int, int]:
        return {}

    return wrong


def _writes_letters_twice(write: Original) -> Original:
    async def wrong(*told: Any) -> Any:
        await write(*told)
        return await write(*told)

    return wrong


def _requeues_twice(append: Original) -> Original:
    async def wrong(tx: object, now: datetime, some: Sequence[NewLogRecord]) -> Any:
        twice = some if some[0].only_group_id is None else [*some, *some]
        return await append(tx, now, twice)

    return wrong


def _knows_no_ids(append: Original) -> Original:
    async def wrong(tx: object, now: datetime, some: Sequence[NewLogRecord]) -> Any:
        count = itertools.count()
        return await append(
            tx, now, [one._replace(record_id=f"{one.payload!r}{next(count)}") for one in some]
        )

    return wrong


def _forgets_what_was_out(crash: Original) -> Original:
    async def wrong(self: World) -> None:
        await crash(self)
        async with self.observer.transaction() as tx:
            await tx.execute("UPDATE log_positions SET head = watermark, spans = '{}'")

    return wrong


MUTANTS = {
    "an ack that was not done": Mutant(Position, "settle", _loses_acks, r"\w+ in \d: ", 3),
    "a receipt of a delivery that was superseded": Mutant(
        Position, "settle", _takes_any_receipt, "receipts came to"
    ),
    "an attempt that does not count": Mutant(
        Position, "settle", _counts_no_attempts, r"\w+ in \d: |receipts came", 2
    ),
    "a record beyond the batch": Mutant(Position, "due", _has_room, r"more than \d are out", 2),
    "an offset that is skipped": Mutant(log_deliveries._Flush, "_read", _skips, r"skipped \[\d"),
    "a session that was replaced, and goes on": Mutant(
        log_deliveries._Flush, "_choose", _knows_everybody, "holds nothing, and got", 5
    ),
    "a second live lease": Mutant(
        log_groups, "balance", _buries_the_living, "two live leases|lost its lease"
    ),
    "a collection that passes a watermark": Mutant(
        stored_records, "retire", _collects_everything, "passed a watermark", 5
    ),
    "a record that is removed": Mutant(stored_records, "sweep", _removes_one_more, "records: ", 4),
    "a dead letter that is nowhere": Mutant(
        record_dead_letters, "write", _forgets_letters, r"missing: Counter\({Letter", 3
    ),
    "a dead letter that is there twice": Mutant(
        record_dead_letters, "write", _writes_letters_twice, r"too many: Counter\({Letter", 3
    ),
    "a requeued record that is there twice": Mutant(
        stored_records, "append", _requeues_twice, "partitions are", 3
    ),
    "a record that comes twice": Mutant(stored_records, "append", _knows_no_ids, "published to", 3),
    "a crash that forgets what was out": Mutant(
        World, "crash", _forgets_what_was_out, r"\w+ in \d: |partitions are", 2
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
async def test_the_model_notices(
    database_dsn: str, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant.owner, mutant.name, mutant.make(getattr(mutant.owner, mutant.name)))
    with pytest.raises(Failed, match=f"Impossible: .*({mutant.seen})"):
        await simulate(database_dsn, mutant.seed, 200, make=LogSimulation)
