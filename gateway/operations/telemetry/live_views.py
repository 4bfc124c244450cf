"""Live figures of queues, channels, topics and logs, for people who look at them: depths, rates,
ages, and who reads.

A view is a page of an account and region, or of all accounts, or one queue. This process computes
the figures of a view once for all its viewers, by one statement every 2 s for each account. Viewers
get the rows that have changed since they looked. A slow viewer skips figures and keeps none in
memory.

The processes of a gateway ask one another for receivers and for counts of topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import orjson

from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.wakeups import place_of_pause
from queuegate.gateway.operations.telemetry.series import ChannelTotals, Throughput
from queuegate.storage.queues import depths
from queuegate.storage.queues.depths import LiveFigures
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine

READERS: Final = "readers"
"""The question to other processes of the gateway. A queue's number follows: list its receivers."""
RIGHTS: Final[Mapping[str, str]] = {
    "channel": "sqs:GetQueueAttributes",
    "log": "log:GetLog",
    "queue": "sqs:GetQueueAttributes",
    "topic": "sns:GetTopicAttributes",
}
"""The kinds of rows, and the right to the figures of each."""
_MOST_ROWS = 1_000
"""Rows of a view."""
_APART_SECONDS = 2.0
_SHARE = 50
"""A statement that takes long is repeated less often: it runs at most 2 % of the time. The time of
other processes does not count: one that hangs would stop the figures."""
_AT_ONCE = 200
"""Rows between turns of the event loop."""
_MOST_LISTED = 100
"""Waiting receivers of a queue that a process lists."""
_MOST_SECONDS = 90.0
"""Rates over longer times are not shown: this process has looked only once."""
_LAST = "~"
"""Sorts behind all accounts and regions."""


def readers_here(engine: Engine, number: str) -> bytes:
    """Return, as JSON, the readers of this process: of each queue the number of waiting receives
    and the milliseconds of the last one that returned messages, and of each topic by place the
    numbers of published and of delivered messages; or the receives that wait at one queue: key,
    address and seconds left, null for a consumer of a channel."""
    if not number:
        last = {one: series.received_at_ms for one, series in engine.series.queues.items()}
        waiting = engine.wakeups.parked_queues()
        queues = {str(one): (waiting.get(one, 0), last.get(one, 0)) for one in last | waiting}
        topics = {
            "/".join(one.labels()): (one.published, one.delivered())
            for one in engine.series.topics.shown()
        }
        return orjson.dumps([queues, topics])
    queue_id = int(number)
    wakeups = engine.wakeups
    parked = wakeups.parked_at(queue_id) + wakeups.parked_at(place_of_pause(queue_id))
    # Only receives park at queues. JSON has null for no deadline.
    return orjson.dumps([cast(Receiving, one).client() for one in parked[:_MOST_LISTED]])


class LivePage(NamedTuple):
    """The rows of a view: those of some kinds from a place on whose names contain ``find``, or the
    queue ``name``. Without an account, they are of all accounts and regions."""

    kinds: tuple[str, ...]
    account_id: str = ""
    region: str = ""
    name: str = ""
    find: str = ""
    first: str = ""
    """Account, region and name of the first row, with slashes between; empty: all rows."""

    def most_rows(self) -> int:
        """Return the maximum number of rows."""
        return 1 if self.name else _MOST_ROWS

    def span(self) -> tuple[depths.Place, depths.Place]:
        """Return the place of the first row, and the account and region of the last one."""
        account_id, region, name = [*self.first.split("/", 2), "", ""][:3]
        if not self.account_id:
            return (account_id, region, name), (_LAST, _LAST)
        own = self.account_id, self.region
        return max((account_id, region, name), (*own, self.name)), own


class LiveView:
    """The rows of a page, each as JSON with the version in which it changed."""

    def __init__(self) -> None:
        self.viewers = 0
        self.is_ended = False
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._version = 0
        self._whole = 0
        """Viewers of an earlier version get all rows: some were deleted since."""
        self._rows: dict[str, tuple[int, bytes]] = {}
        self._head: dict[str, object] = {}

    def put(self, rows: dict[str, bytes], head: dict[str, object]) -> None:
        """Replace the rows, and tell the viewers."""
        self._version += 1
        if self._rows.keys() - rows.keys():
            self._whole = self._version
        before = self._rows
        self._rows = {}
        for name, row in rows.items():
            version, known = before.get(name, (0, b""))
            self._rows[name] = (version if known == row else self._version, row)
        self.tell(head)

    def tell(self, head: dict[str, object]) -> None:
        """Tell the viewers something beside the rows."""
        self._head = head
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """End all viewers."""
        self.is_ended = True
        self._changed.set()

    async def changes(self) -> AsyncGenerator[bytes, None]:
        """Yield what changed, as JSON, each time that the view is computed."""
        seen = 0
        while not self.is_ended:
            changed = self._changed
            if self._head:
                rows = [row for version, row in self._rows.values() if version > seen]
                if seen < self._whole:
                    rows = [row for _, row in self._rows.values()]
                head = orjson.dumps(self._head | {"whole": seen < self._whole or not seen})
                seen = self._version
                yield b'%b,"rows":[%b]}' % (head[:-1], b",".join(rows))
            await changed.wait()


class _Readers(NamedTuple):
    """The readers of all processes of the gateway, as those of ``readers_here``."""

    queues: dict[str, tuple[int, float]]
    topics: dict[str, tuple[int, int]]


class LiveViews:
    """The views of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._views: dict[LivePage, LiveView] = {}
        self._throughput = Throughput()
        self._readers = _Readers({}, {})
        self._readers_at = -math.inf

    @contextlib.contextmanager
    def view(self, page: LivePage) -> Iterator[LiveView]:
        """Compute a page while somebody views it."""
        view = self._views.get(page)
        if view is None:
            view = self._views[page] = LiveView()
            view.task = asyncio.create_task(self._keep(page, view))
        view.viewers += 1
        try:
            yield view
        finally:
            view.viewers -= 1
            if not view.viewers and view.task is not None:
                self._views.pop(page, None)
                view.task.cancel()

    async def _keep(self, page: LivePage, view: LiveView) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._engine.stopping and not view.is_ended:
                started = ended = loop.time()
                try:
                    found = await self._find(page)
                    ended = loop.time()
                    await self._show(page, view, found)
                except Unavailable as error:
                    view.tell({"error": str(error)})
                spent = ended - started
                views = sum(one.account_id == page.account_id for one in self._views)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(_APART_SECONDS, _SHARE * spent) * views):
                        await self._engine.draining.wait()
        finally:
            view.end()

    async def _find(self, page: LivePage) -> list[LiveFigures]:
        """Return the rows of a page, and the one behind them if there is one."""
        now = self._engine.clock.of(page.account_id).now()
        limit = page.most_rows() + 1
        async with self._engine.database.transaction() as tx:
            return await depths.overview(tx, now, page.kinds, page.span(), page.find, limit=limit)

    async def _show(self, page: LivePage, view: LiveView, found: list[LiveFigures]) -> None:
        """Show these rows to the viewers of a page."""
        most = page.most_rows()
        # Readers are known by the common clock.
        ahead = self._engine.clock.of(page.account_id).timestamp() - self._engine.clock.timestamp()
        if page.name and (not found or found[0].name != page.name):
            # Viewers come again, and are told that the queue does not exist.
            view.end()
            return
        readers = await self._all_readers()
        rows = {}
        for number, one in enumerate(found[:most]):
            rows[f"{one.kind}/{_place(one)}"] = self._row(one, readers, ahead)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await yield_to_loop()
        head: dict[str, object] = {
            "at": found[0].now.timestamp() if found else self._engine.clock.timestamp(),
            "next": None if page.name or len(found) <= most else _place(found[most]),
            "since": self._engine.series.started_at + ahead,
        }
        view.put(
            rows, head | (await self._receivers(page.account_id, found[0].id) if page.name else {})
        )

    async def _receivers(self, account_id: str, queue_id: int) -> dict[str, object]:
        """Return the receives that wait at a queue, and the processes that were asked."""
        engine = self._engine
        answers = await engine.siblings.all(READERS, queue_id)
        return {
            "recording": account_id in engine.events.rings,
            "receivers": [one for answer in answers for one in answer],
            "processes": len(answers),
            "elsewhere": engine.wakeups.peer_count() >= len(answers),
        }

    async def _all_readers(self) -> _Readers:
        """Return the readers, at most a second old."""
        time = asyncio.get_running_loop().time()
        if time - self._readers_at > _APART_SECONDS / 2:
            first, *others = await self._engine.siblings.all(READERS)
            readers = _Readers(*first)
            for queues, topics in others:
                for queue_id, (waiting, last) in queues.items():
                    more, later = readers.queues.get(queue_id, (0, 0))
                    readers.queues[queue_id] = waiting + more, max(last, later)
                for topic, (published, delivered) in topics.items():
                    known = readers.topics.get(topic, (0, 0))
                    readers.topics[topic] = published + known[0], delivered + known[1]
            self._readers, self._readers_at = readers, time
        return self._readers

    def _row(self, one: LiveFigures, readers: _Readers, ahead: float) -> bytes:
        """Return kind, account, region, name, visible, in flight, delayed, time of the oldest,
        rates in and out, dead letters, waiting receivers, time of the last receive, and 1 if
        paused. Times are in seconds."""
        waiting: float = one.readers or 0
        last_ms, arrived = 0.0, one.arrived
        finished = (arrived or 0) - (one.total or 0)
        if one.kind == "topic":
            arrived, finished = readers.topics.get(_place(one), (None, 0))
        elif one.kind != "log":
            waiting, last_ms = readers.queues.get(str(one.id), (0, 0))
        totals = ChannelTotals(one.now, arrived or 0, max(finished, 0), 0)
        rates = self._throughput.rates((one.kind, one.id), one.created_at, totals)
        is_known = arrived is not None and rates.over_seconds < _MOST_SECONDS
        return orjson.dumps(
            (
                *(one.kind, one.account_id, one.region, one.name),
                None if one.total is None else max(one.total - one.in_flight - one.delayed, 0),
                one.in_flight,
                one.delayed,
                None if one.oldest_at is None else int(one.oldest_at.timestamp()),
                round(max(rates.published, 0), 2) if is_known else None,
                round(max(rates.finished, 0), 2) if is_known else None,
                one.dead,
                waiting,
                int(last_ms / 1000 + ahead) if last_ms else None,
                int(one.is_paused),
            )
        )


def _place(one: LiveFigures) -> str:
    return f"{one.account_id}/{one.region}/{one.name}"
