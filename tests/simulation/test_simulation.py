"""Some seeds in every run; more with ``make simulate SEED=n`` or ``python -m tests.simulation``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast
from uuid import uuid4

import pytest

from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.lanes import Lane
from queuegate.storage.queue_model import DEDUP_KEY, PRIORITY, TTL_SECONDS, Row
from queuegate.storage.queues.messages import BoundedSend, Delete, DeleteLast, FanOut, Receive, Send
from queuegate.storage.topics.publishing import Publication
from tests.simulation.running import Failed, simulate
from tests.simulation.world import World

_GIVEN = os.environ.get("QUEUEGATE_TEST_SEED")
SEEDS = [int(_GIVEN)] if _GIVEN else [1, 2, 3, 4]
STEPS = int(os.environ.get("QUEUEGATE_TEST_STEPS") or (2_000 if _GIVEN else 200))


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_clients_see_nothing_that_sqs_could_not_do(
    database_dsn: str, seed: int
) -> None:
    """200 steps, each of which asks a real database what every queue holds."""
    await simulate(database_dsn, seed, STEPS)


Change = Callable[[Any], None]


class Mutant(NamedTuple):
    """Gateways that do something wrong with what is handed to their lanes; what is seen of it."""

    busy: str | None
    """As in ``World``."""
    lanes: Callable[[Engine], Iterable[Lane[Any]]]
    change: Change
    seen: str = ""
    seed: int = 1


def _sends(engine: Engine) -> Iterable[Lane[Any]]:
    return engine.standard.send, engine.publish.lane


def _without(place: int) -> Change:
    """Messages lose a column."""

    def lose(entry: Send | FanOut | BoundedSend | Publication) -> None:
        if not isinstance(entry, Publication):
            entry.messages[:] = [_changed(row, place, None) for row in entry.messages]

    return lose


def _changed(row: Row, place: int, value: str | None) -> Row:
    columns: list[Any] = [*row]
    columns[place] = value
    return cast("Row", tuple(columns))


def _forgetful() -> Change:
    count = itertools.count(1)

    def forget(entry: Delete) -> None:
        if next(count) % 3 == 0:
            entry.handles = [(0, None, 0, 0)]

    return forget


def _hasty(entry: Receive) -> None:
    entry.visibility_ms = 0


def _partial(entry: Send | FanOut) -> None:
    if isinstance(entry, FanOut) and len(entry.messages) > 1:
        entry.messages.pop()


def _careless(entry: Delete) -> None:
    if isinstance(entry, DeleteLast):
        entry.__class__ = Delete  # type: ignore[assignment]


def _roomy(entry: BoundedSend | Publication) -> None:
    if isinstance(entry, BoundedSend):
        entry.queue = replace(entry.queue, queue_id=0)


def _repetitive(entry: Send) -> None:
    entry.messages[:] = [_changed(row, DEDUP_KEY, uuid4().hex) for row in entry.messages]


MUTANTS = {
    "a delete that was not done": Mutant(
        "plain", lambda engine: [engine.standard.delete], _forgetful()
    ),
    "a group that is not blocked": Mutant(
        "plain.fifo", lambda engine: [engine.fifo.receive], _hasty
    ),
    "a copy that is missing": Mutant(None, _sends, _partial, r"\d+ did not reach", seed=3),
    "a priority that nobody heeds": Mutant(
        "plain", _sends, _without(PRIORITY), "something more urgent"
    ),
    "a message that does not expire": Mutant("plain", _sends, _without(TTL_SECONDS)),
    "a delete by somebody who lost the message": Mutant(
        "plain", lambda engine: [engine.standard.delete], _careless, r"finish of \d+: True", seed=8
    ),
    "a queue that holds more than it may": Mutant(
        "small", lambda engine: [engine.publish.lane], _roomy, "small holds more"
    ),
    "a second message of a group": Mutant("turns", lambda engine: [engine.fifo.receive], _hasty),
    "a message that comes twice": Mutant(
        "turns", lambda engine: [engine.fifo.send], _repetitive, "is a duplicate", seed=2
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
async def test_the_model_notices(database_dsn: str, mutant: Mutant) -> None:
    class Changed(World):
        busy = mutant.busy

        async def _open_engine(self) -> Engine:
            engine = await super()._open_engine()
            for lane in mutant.lanes(engine):
                lane.submit = partial(_submit, lane.submit, mutant.change)  # type: ignore[method-assign]
            return engine

    with pytest.raises(Failed, match=f"Impossible: .*({mutant.seen})"):
        await simulate(database_dsn, mutant.seed, 400, Changed)


def _submit(submit: Change, change: Change, entry: Any) -> None:
    change(entry)
    submit(entry)
