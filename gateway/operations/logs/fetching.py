"""Fetching: what is there for a subscriber, now or within a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.logs.readers import Reader
from queuegate.gateway.operations.logs.subscribing import check_has_subscribers
from queuegate.gateway.operations.queues.receiving import spawn
from queuegate.gateway.operations.replies import answered
from queuegate.storage.errors import Unavailable
from queuegate.storage.lanes import NOBODY, Reply
from queuegate.storage.log_errors import SubscriberFenced
from queuegate.storage.logs.delivery_entries import Change, Fetch, Fetched, Settle
from queuegate.storage.logs.positions import Do

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.log_model import Delivered, Group, Log


class FetchRequest(NamedTuple):
    """What to fetch."""

    name: str
    session: int
    most: int = 100
    wait_seconds: float = 0
    partition_ids: Sequence[int] | None = None
    """None: of all that the subscriber holds."""


class FetchOutcome(NamedTuple):
    """What was there."""

    records: list[Delivered]
    is_settled: bool
    """False: the subscriber's partitions are to be chosen anew, with a heartbeat."""


class Fetching:
    """A fetch under way. It is what its entry replies to.

    ``cancel`` when the caller goes away: what a flush under way delivers is given back.
    """

    __slots__ = ("_deadline", "_done", "_engine", "_entry", "_group", "_log", "_reader", "_reply",
                 "_request", "_timer")  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        log: Log,
        group: Group,
        request: FetchRequest,
        reply: Reply[FetchOutcome],
    ) -> None:
        self._engine = engine
        self._log = log
        self._group = group
        self._request = request
        self._reply = reply
        self._deadline = asyncio.get_running_loop().time() + request.wait_seconds
        self._reader: Reader
        self._timer: asyncio.TimerHandle | None = None
        self._entry: Fetch | None = None
        self._done = False
        self._look()

    def cancel(self) -> None:
        """The caller has gone."""
        self._done = True
        if self._entry is not None:
            self._entry.gone = True
            self._leave_to_others(self._entry)
        self._rest()

    def give_back(self, outcome: FetchOutcome) -> None:
        """Show records to others whose answer did not reach the caller."""
        if outcome.records:
            spawn(give_back(self._engine, self._log, self._group, outcome.records))

    def wake(self) -> None:
        """Something may be there."""
        self._rest()
        if not self._done:
            self._look()

    def _look(self, left: Sequence[int] | None = None) -> None:
        """At what is left, or at all that it was asked for."""
        request = self._request
        # Somebody may have ended it with a session that there is not.
        self._reader = self._engine.readers.of(self._group, request.name, request.session)
        partition_ids = left or request.partition_ids
        if partition_ids is None:
            partition_ids = self._reader.take(request.most)
            if partition_ids is not None and not partition_ids:
                self._nothing(is_settled=True)
                return
        self._entry = Fetch(
            self._log,
            self._group,
            (request.name, request.session),
            request.most,
            partition_ids,
            self,
        )
        self._engine.deliver.lane.submit(self._entry)

    def done(self, fetched: Fetched) -> None:
        """The lane has looked."""
        self._entry = None
        reader = self._reader
        if fetched.held is not None:
            reader.holds(fetched.held)
        reader.lost(fetched.lost)
        if fetched.due_in_ms is not None:
            reader.look_in(fetched.due_in_ms / 1000)
        if self._done:
            self.give_back(FetchOutcome(fetched.records, True))
        elif not fetched.is_known:
            self._engine.readers.forget(reader)
            self.failed(SubscriberFenced(self._request.name))
        elif fetched.records:
            self._finish(FetchOutcome(fetched.records, fetched.is_settled))
        elif fetched.left and fetched.is_settled:
            self._look(fetched.left)
            return
        else:
            self._nothing(is_settled=fetched.is_settled and not fetched.lost)
        for partition_id in fetched.left:
            reader.hint(partition_id)

    def _nothing(self, *, is_settled: bool) -> None:
        loop = asyncio.get_running_loop()
        if not is_settled or loop.time() >= self._deadline or self._engine.stopping:
            self._finish(FetchOutcome([], is_settled))
            return
        self._timer = loop.call_at(self._deadline, self._expired)
        self._reader.wait(self)

    def _expired(self) -> None:
        self._rest()
        self._finish(FetchOutcome([], True))

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reader.leave(self)

    def failed(self, error: BaseException) -> None:
        """Nothing comes of it."""
        entry, self._entry = self._entry, None
        if not self._done:
            if entry is not None:
                self._leave_to_others(entry)
            self._done = True
            reply, self._reply = self._reply, NOBODY
            reply.failed(error)

    def _leave_to_others(self, entry: Fetch) -> None:
        """What nobody has looked at is for other fetches of this subscriber."""
        if self._request.partition_ids is None:
            for partition_id in entry.partition_ids or ():
                self._reader.hint(partition_id)
            if entry.partition_ids is None:
                self._reader.look_soon()

    def _finish(self, outcome: FetchOutcome) -> None:
        self._done = True
        # Callers keep us, too: as in Entry.done.
        reply, self._reply = self._reply, NOBODY
        reply.done(outcome)


async def fetch(engine: Engine, log: Log, group: Group, request: FetchRequest) -> FetchOutcome:
    """Deliver records of what a subscriber holds: in each partition by offset, what is there again
    before what is new. Waits until there is one, but not when its partitions are to be chosen anew.
    Cancelling it gives back what was delivered.

    Raises SubscriberFenced for who is not in the group with this session, and GroupInvalid where it
    has none, as it feeds a queue.
    """
    outcome: FetchOutcome = await answered(start_fetching, engine, log, group, request)
    return outcome


def start_fetching(
    engine: Engine, log: Log, group: Group, request: FetchRequest, reply: Reply[FetchOutcome]
) -> Fetching:
    """The same with a reply."""
    check_has_subscribers(group)
    return Fetching(engine, log, group, request, reply)


async def give_back(engine: Engine, log: Log, group: Group, delivered: Sequence[Delivered]) -> None:
    """Show records to others that were delivered to a caller who has gone."""
    changes = [
        Change(one.partition_id, (one.record.offset, one.delivery), Do.RELEASE) for one in delivered
    ]

    def submit(reply: Reply[object]) -> None:
        engine.deliver.lane.submit(Settle(log, group, changes, reply))

    try:
        await answered(submit)
    except Unavailable:
        # They stay hidden until their visibility ends.
        return
