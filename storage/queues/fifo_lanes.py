"""Lanes of FIFO and strict FIFO queues, and receives with a ReceiveRequestAttemptId."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from queuegate.storage.database import (
    RECEIVE_PLANNER,
    SEND_PLANNER,
    Database,
    unavailable_when_lost,
)
from queuegate.storage.lanes import FINISHING_SECONDS, ClockNow, Lane
from queuegate.storage.queries import load
from queuegate.storage.queue_model import (
    QUEUE_DEFAULTS,
    Handle,
    ReceiptOutcome,
    Received,
    ReceivedInTurn,
)
from queuegate.storage.queues.fifo_queues import send_rows
from queuegate.storage.queues.kinds import SERIAL
from queuegate.storage.queues.messages import ChangeVisibility, Delete, Receive, Send, within_groups
from queuegate.storage.storage_errors import QueueDoesNotExist, Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction


_SQL = load("queues/fifo_queues")
_ATTEMPTS = load("queues/fifo_lanes")
_HOLD = _ATTEMPTS["hold_attempt"].text
_REPEAT = _ATTEMPTS["repeat_attempt"].text
_MESSAGES = _ATTEMPTS["attempt_messages"].text
_KEEP = _ATTEMPTS["keep_attempt"].text


async def receive_attempt(
    tx: Transaction,
    now: datetime | None,
    *,
    queue_id: int,
    attempt_id: str,
    visibility_ms: int,
    receive: Callable[[], Awaitable[list[Received]]],
) -> list[Received]:
    """Return the messages and handles of the attempt's first receive, and restart their timeouts.

    Valid for 5 minutes, unless one of them was deleted, received again or had its timeout changed.
    Otherwise call ``receive``, which becomes the attempt's first receive. An empty receive leaves
    no trace. Calls with the same id wait for each other.
    """
    row = await tx.fetchrow(_HOLD, now, queue_id, attempt_id)
    assert row is not None
    valid, group_ids, sequences, receive_counts, untils = row
    if valid:
        earlier = (group_ids, sequences, receive_counts)
        if await tx.fetchval(_REPEAT, now, queue_id, *earlier, untils, visibility_ms):
            rows = await tx.fetch(_MESSAGES, queue_id, *earlier)
            await tx.execute(_KEEP, now, queue_id, attempt_id, *earlier, False)
            return [Received(*row) for row in rows]
    found = await receive()
    if found:
        await tx.execute(
            _KEEP,
            now,
            queue_id,
            attempt_id,
            [message.group_id for message in found],
            [message.sequence for message in found],
            [message.receive_count for message in found],
            True,
        )
    return found


_log = logging.getLogger("queuegate.fifo")
_RECEIVE = _SQL["receive"].text
RECEIVE_ONE = _SQL["receive_one"].text
_RECEIVE_ONE_OF_QUEUE = _SQL["receive_one_of_queue"].text
_READY_QUEUES = _SQL["ready_queues"].text
_REFRESH = _SQL["refresh"].text
_DELETE = _SQL["delete"].text
_DELETE_ONE = _SQL["delete_one"].text
_DELETE_ONE_OF_EACH_GROUP = _SQL["delete_one_of_each_group"].text
_DELETE_AND_ARCHIVE = _SQL["delete_and_archive"].text
_PAST_RETENTION = _SQL["past_retention"].text
_COUNT_IN_FLIGHT = _SQL["count_in_flight"].text
_COME_BACK = _ATTEMPTS["come_back"].text
_MOST_COMING_BACK = 1_000
"""Limit per receive, to bound its latency; later receives return the other groups."""

RECEIVED_PER_FLUSH = 500
_SHARE = 10
"""The messages that a group delivers at once."""
_TRIES = 10
MAX_IN_FLIGHT = 120_000
_DEFAULT_RETENTION_SECONDS = int(QUEUE_DEFAULTS["MessageRetentionPeriod"])

_Key = tuple[int, str | None, int]


class _InFlight:
    """The messages of a queue that this process may deliver before it counts again."""

    __slots__ = ("allowance", "count_at")

    def __init__(self) -> None:
        self.allowance = 0
        self.count_at = 0.0


class FifoLanes:
    """The lanes of FIFO and strict FIFO queues; each connects at its first entry.

    The variant of receives is the kind of the queue, that of deletes its order; sends have none.
    """

    def __init__(
        self,
        database: Database,
        clock_now: ClockNow,
        visibility: Lane[Receive | ChangeVisibility],
        now_of_sends: ClockNow | None = None,
    ) -> None:
        self._now = clock_now
        self._now_of_sends = now_of_sends or clock_now
        self.on_gone: Callable[[int], None] = lambda _: None
        """Called with queues that a send found deleted."""
        self._stale: dict[int, tuple[int, list[str]]] = {}
        self._in_flight: dict[int, _InFlight] = {}
        self.max_in_flight = MAX_IN_FLIGHT
        self.send: Lane[Send] = Lane(
            "fifo_send", database, self._flush_sends, settings=SEND_PLANNER
        )
        self.receive: Lane[Receive] = Lane(
            "fifo_receive", database, self._flush_receives, settings=RECEIVE_PLANNER
        )
        self.lease = self.receive
        self.delete: Lane[Delete] = Lane(
            "fifo_delete", database, self._flush_deletes, settings=RECEIVE_PLANNER
        )
        self.delete.budget_seconds = FINISHING_SECONDS
        self.visibility = visibility

    @property
    def lanes(self) -> tuple[Lane[Any], ...]:
        """All lanes, for opening, closing and observing; that of visibility changes is shared."""
        return self.send, self.receive, self.delete, self.visibility

    async def close(self) -> None:
        """Finish the pending entries and close the connections."""
        for lane in self.lanes:
            await lane.close()

    # Send

    async def _flush_sends(self, connection: Connection, batch: list[Send]) -> list[Send]:
        batch, left = within_groups(batch)
        rows = [row for entry in batch for row in entry.messages]
        now = self.send.now_of(batch[0].party(), self._now_of_sends)
        sent = iter(await send_rows(connection, now, rows))
        for entry in batch:
            mine = [next(sent) for _ in entry.messages]
            written = [one for one in mine if one is not None]
            if len(written) == len(mine):
                entry.done(written)
            else:
                self.on_gone(entry.party())
                entry.failed(QueueDoesNotExist())
        return left

    # Receive

    async def _flush_receives(self, connection: Connection, batch: list[Receive]) -> list[Receive]:
        await self._refresh(connection)
        chosen, left = self._one_class(batch)
        first = chosen[0]
        if first.attempt_id is not None:
            first.done(await self._receive_attempt(connection, first, first.attempt_id))
            return left
        queues: dict[int, list[Receive]] = {}
        for entry in chosen:
            queues.setdefault(entry.queue_id, []).append(entry)
        full = await self._full_queues(connection, queues)
        for queue_id in full:
            for entry in queues.pop(queue_id):
                entry.done([])
        if not queues:
            return left
        callers = [entry for entries in queues.values() for entry in entries]
        records = await self._fetch(connection, callers, queues)
        return await self._hand_out(connection, callers, records) + left

    def _one_class(self, batch: list[Receive]) -> tuple[list[Receive], list[Receive]]:
        """Split off the entries that one statement can serve, up to the maximum messages of a
        flush. On FIFO queues all have one limit, on strict ones any."""
        first = batch[0]
        if first.attempt_id is not None:
            return batch[:1], batch[1:]
        chosen: list[Receive] = []
        left: list[Receive] = []
        room = RECEIVED_PER_FLUSH
        is_serial = first.variant is SERIAL
        for entry in batch:
            fits = entry.attempt_id is None and (not chosen or entry.limit <= room)
            fits = fits and (is_serial or entry.limit == first.limit)
            (chosen if fits else left).append(entry)
            room -= entry.limit if fits else 0
        return chosen, left

    async def _fetch(
        self, connection: Connection, callers: list[Receive], queues: dict[int, list[Receive]]
    ) -> list[asyncpg.Record]:
        first = callers[0]
        if first.variant is SERIAL:
            return await self._fetch_serial(connection, callers, queues)
        limit = first.limit
        if limit == 1 and len(queues) == 1:
            visibility_ms = first.visibility_ms
            if all(entry.visibility_ms == visibility_ms for entry in callers):
                return await connection.fetch(
                    _RECEIVE_ONE_OF_QUEUE,
                    self._now_of(first.queue_id),
                    first.queue_id,
                    len(callers),
                    first.retention_seconds,
                    visibility_ms,
                )
        shares = range(_shares_of(first))
        arguments = (
            self._now_of(first.queue_id),
            list(queues),
            [len(entries) * len(shares) for entries in queues.values()],
            [entries[0].retention_seconds for entries in queues.values()],
            [entry.visibility_ms for entry in callers for _ in shares],
        )
        if limit == 1:
            return await connection.fetch(RECEIVE_ONE, *arguments, None)
        return await connection.fetch(_RECEIVE, *arguments, min(limit, _SHARE))

    async def _fetch_serial(
        self, connection: Connection, callers: list[Receive], queues: dict[int, list[Receive]]
    ) -> list[asyncpg.Record]:
        now = self._now_of(callers[0].queue_id)
        await connection.execute(_COME_BACK, now, list(queues), _MOST_COMING_BACK)
        slots = [(n, entry) for n, entry in enumerate(callers, 1) for _ in range(entry.limit)]
        return await connection.fetch(
            RECEIVE_ONE,
            now,
            list(queues),
            [sum([entry.limit for entry in entries]) for entries in queues.values()],
            [entries[0].retention_seconds for entries in queues.values()],
            [entry.visibility_ms for _, entry in slots],
            [number for number, _ in slots],
        )

    async def _receive_attempt(
        self, connection: Connection, entry: Receive, attempt_id: str
    ) -> list[Received]:
        async def receive() -> list[Received]:
            if await self._full_queues(connection, [entry.queue_id]):
                return []
            found: list[Received] = []
            for _ in range(_TRIES):
                records = await self._fetch(connection, [entry], {entry.queue_id: [entry]})
                found = _received([record for record in records if record[0]], entry)
                stale = [record[12] for record in records if not record[0]]
                if found or not stale:
                    break
                self._stale[entry.queue_id] = (entry.retention_seconds, stale)
                await self._refresh(connection)
            self._in_flight[entry.queue_id].allowance -= len(found)
            return found

        async with connection.transaction():
            return await receive_attempt(
                connection,
                self._now_of(entry.queue_id),
                queue_id=entry.queue_id,
                attempt_id=attempt_id,
                visibility_ms=entry.visibility_ms,
                receive=receive,
            )

    async def _hand_out(
        self, connection: Connection, callers: list[Receive], records: list[asyncpg.Record]
    ) -> list[Receive]:
        """Answer receives that got messages; return those to retry."""
        shares: list[list[asyncpg.Record]] = [[] for _ in callers]
        per_caller = _shares_of(callers[0])
        stale: dict[int, list[str]] = {}
        for record in records:
            if record[0]:
                shares[(record[0] - 1) // per_caller].append(record)
            else:
                stale.setdefault(record[2], []).append(record[12])
        empty = [entry for entry, share in zip(callers, shares, strict=True) if not share]
        for entry in empty:
            if entry.queue_id in stale:
                group_ids = stale.pop(entry.queue_id)
                self._stale[entry.queue_id] = (entry.retention_seconds, group_ids)
        ready = await self._ready_queues(connection, empty) if empty else set()
        again = []
        for entry, share in zip(callers, shares, strict=True):
            if share:
                self._in_flight[entry.queue_id].allowance -= len(share)
                entry.done(_received(share, entry))
            elif entry.queue_id in ready and entry.tries < _TRIES:
                entry.tries += 1
                again.append(entry)
            else:
                entry.done([])
        return again

    async def _ready_queues(self, connection: Connection, empty: list[Receive]) -> set[int]:
        """Return queues with a ready group although these callers got nothing."""
        queue_ids = {entry.queue_id for entry in empty if entry.tries < _TRIES}
        if not queue_ids:
            return set()
        try:
            async with unavailable_when_lost():
                now = self._now_of(empty[0].queue_id)
                rows = await connection.fetch(_READY_QUEUES, now, list(queue_ids))
        except Unavailable as error:
            # The receive is committed: callers that got messages need their answer.
            _log.log(error.log_level, "could not look for more: %s", error)
            return set()
        return {row[0] for row in rows}

    async def _refresh(self, connection: Connection) -> None:
        """Reconcile groups in which the last flush found nothing to deliver."""
        while self._stale:
            queue_id, (retention_seconds, group_ids) = self._stale.popitem()
            now = self._now_of(queue_id)
            await connection.execute(_REFRESH, now, queue_id, group_ids, retention_seconds)

    def _now_of(self, queue_id: int) -> datetime | None:
        return self.receive.now_of(queue_id, self._now)

    async def _full_queues(self, connection: Connection, queue_ids: Iterable[int]) -> list[int]:
        """Return queues with MAX_IN_FLIGHT messages in flight.

        Counted after this process delivered half of the remaining capacity (at least 1,000
        messages), not at every receive: other processes may overshoot by as much.
        """
        full = []
        for queue_id in queue_ids:
            state = self._in_flight.get(queue_id)
            if state is None:
                state = self._in_flight[queue_id] = _InFlight()
            if state.allowance <= 0:
                time = asyncio.get_running_loop().time()
                if time >= state.count_at:
                    count = await connection.fetchval(
                        _COUNT_IN_FLIGHT, self._now_of(queue_id), queue_id, self.max_in_flight
                    )
                    room = self.max_in_flight - count
                    state.allowance = min(max(room // 2, 1000), room)
                    state.count_at = time + 1.0 if room <= 0 else 0.0
                if state.allowance <= 0:
                    full.append(queue_id)
        return full

    # Delete

    async def _flush_deletes(self, connection: Connection, batch: list[Delete]) -> list[Delete]:
        for archives in (False, True):
            some = [entry for entry in batch if entry.archives is archives]
            if some:
                await self._delete(connection, some)
        return []

    async def _delete(self, connection: Connection, batch: list[Delete]) -> None:
        newest: dict[tuple[int, str | None, int], int] = {}
        for entry in batch:
            for queue_id, group_id, sequence, count in entry.handles:
                key = (queue_id, group_id, sequence)
                if newest.get(key, 0) < count:
                    newest[key] = count
        # In the order in which groups are locked: by UTF-8, which equals code point order.
        keys = sorted(newest, key=_by_group)
        counts = [newest[key] for key in keys]
        done, expired = await self._deleted_of(connection, batch[0], keys, counts)
        states: dict[_Key, ReceiptOutcome] = {keys[position - 1]: "ok" for position in done}
        states.update({keys[position - 1]: "expired" for position in expired})
        if expired:
            for key in await self._past_retention(connection, [keys[p - 1] for p in expired]):
                del states[key]
        for entry in batch:
            outcomes = [_deleted(handle, newest, states) for handle in entry.handles]
            if entry.archives:
                deleted = zip(entry.handles, outcomes, strict=True)
                states.update({handle[:3]: "gone" for handle, state in deleted if state == "ok"})
            entry.done(outcomes)

    async def _deleted_of(
        self, connection: Connection, first: Delete, keys: list[_Key], counts: list[int]
    ) -> tuple[Iterable[int], Sequence[int]]:
        """Delete messages by their keys and counts, with the statement of the first entry; return
        the positions done and the expired."""
        queue_id = keys[0][0]
        now = self._now_of(queue_id)
        is_serial = first.variant == SERIAL.order
        statement = _DELETE_AND_ARCHIVE if first.archives else _DELETE
        is_plain = not (first.archives or is_serial)
        arguments: tuple[object, ...]
        if is_plain and len(keys) == 1:
            statement = _DELETE_ONE
            arguments = (*keys[0], counts[0])
        elif is_plain and _are_of_one_each(keys):
            _, group_ids, sequences = zip(*keys, strict=True)
            statement = _DELETE_ONE_OF_EACH_GROUP
            arguments = (queue_id, group_ids, sequences, counts)
        else:
            arguments = (*zip(*keys, strict=True), counts, is_serial)
        row = await connection.fetchrow(statement, now, *arguments)
        assert row is not None
        done, expired = row
        return range(1, len(keys) + 1) if done is None else done, expired or ()

    async def _past_retention(self, connection: Connection, keys: list[_Key]) -> list[_Key]:
        """Return the messages with expired handles that only await removal by a worker."""
        try:
            async with unavailable_when_lost():
                rows = await connection.fetch(
                    _PAST_RETENTION,
                    self._now_of(keys[0][0]),
                    *zip(*keys, strict=True),
                    _DEFAULT_RETENTION_SECONDS,
                )
        except Unavailable as error:
            # The delete is committed: callers with valid handles need their answer.
            _log.log(error.log_level, "could not look for ended messages: %s", error)
            return []
        return [keys[row[0] - 1] for row in rows]


def _by_group(key: _Key) -> tuple[int, str]:
    return key[0], key[1] or ""


def _are_of_one_each(keys: list[_Key]) -> bool:
    """Return True if these sorted keys are of one queue and each of another group."""
    if keys[0][0] != keys[-1][0]:
        return False
    return len({group_id for _, group_id, _ in keys}) == len(keys)


def _deleted(
    handle: Handle,
    newest: dict[tuple[int, str | None, int], int],
    states: dict[tuple[int, str | None, int], ReceiptOutcome],
) -> ReceiptOutcome:
    key = handle[:3]
    state = states.get(key, "gone")
    return "expired" if state == "ok" and handle[3] != newest[key] else state


def _shares_of(entry: Receive) -> int:
    """Return the callers in the statement that represent one receive. On strict FIFO queues it is
    one, which may take any number of messages."""
    return 1 if entry.variant is SERIAL else max(entry.limit // _SHARE, 1)


def _received(share: list[asyncpg.Record], entry: Receive) -> list[Received]:
    """Return the messages of a receive in order: its shares one after the other."""
    share.sort(key=_by_place)
    if entry.limit > _SHARE:
        share.sort(key=_by_share)
    if entry.variant is not SERIAL:
        return [Received(*record[2:-1]) for record in share]
    messages: list[Received] = []
    for record in share:
        message = ReceivedInTurn(*record[2:-1])
        message.exact_us = record[-1]
        messages.append(message)
    return messages


def _by_place(record: asyncpg.Record) -> int:
    place: int = record[1]
    return place


def _by_share(record: asyncpg.Record) -> int:
    number: int = record[0]
    return number
