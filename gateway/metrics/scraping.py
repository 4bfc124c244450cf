"""/metrics: the numbers of this process, of its siblings, and what the database knows.

With several workers each keeps its own numbers. A scrape reaches one of them; it asks the others
over sockets in the runtime directory and adds everything up, so that a counter never jumps back.
Of one that is too busy to answer, what it said last counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.telemetry.series import MOST_GROUPS, MOST_QUEUES, Series
from queuegate.storage.deliveries import delivery_inspection
from queuegate.storage.deliveries.delivery_inspection import Gauges
from queuegate.storage.errors import Unavailable
from queuegate.storage.logs import gauges
from queuegate.storage.queues import depths

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.fair_queueing import FairGauges
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.process.disk import DiskWatch

_log = logging.getLogger("queuegate.metrics")

_REFRESH_SECONDS = 10.0
_PATIENCE_SECONDS = 2.0
_PACKING = 1
"""The level of gzip: what is quick is small already."""
_IN_TOTAL = b"total\n"
_MOST_PRIORITISED = 100
"""Queues, each of which may have eleven series."""


class Scrape(NamedTuple):
    """The parts of a page that a client asks for."""

    names: frozenset[str] = frozenset()
    """Of metrics; none: all."""
    in_total: bool = False
    """Without what tells accounts and their queues, topics and logs apart."""
    is_packed: bool = False
    """By gzip."""


_WHOLE = Scrape()


class Numbers(NamedTuple):
    """What this process counted, as of one moment."""

    series: Series
    pool_size: int
    pool_idle: int
    acquire_timeouts: int
    parked_receives: int

    @classmethod
    def of(cls, engine: Engine) -> Numbers:
        """Those of the engine now. Threads can read them while it goes on counting."""
        size, idle = engine.database.pool_counts()
        return cls(
            engine.series.copy(),
            size,
            idle,
            engine.database.acquire_timeouts,
            engine.wakeups.parked_count() + engine.readers.waiting_count(),
        )


class Stored(NamedTuple):
    """What the database holds, as of one moment."""

    depths: list[depths.Depth]
    titled: list[depths.TitledDepth]
    priorities: list[depths.PriorityAge]
    deliveries: Gauges | None
    groups: list[gauges.GroupGauges]
    paused: list[tuple[str, ...]]
    fair: list[FairGauges]


_UNKNOWN = Stored([], [], [], None, [], [], [])


class Metrics:
    """Renders /metrics."""

    def __init__(
        self,
        engine: Engine,
        runtime_dir: Path | None,
        worker_number: int,
        disk: DiskWatch | None = None,
    ) -> None:
        self._engine = engine
        self._disk = disk
        self._runtime_dir = runtime_dir
        self._worker_number = worker_number
        self._stored = _UNKNOWN
        self._depths_at = float("-inf")
        self._tidied_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._pages: dict[tuple[Path, bool], bytes] = {}
        self._renderings: dict[Scrape, asyncio.Task[bytes]] = {}
        self._turn = asyncio.Lock()

    async def _own(self, names: frozenset[str] = frozenset(), *, in_total: bool) -> bytes:
        """Our page. In a thread, and so is all that makes text of numbers: of a thousand queues
        that takes half a second, in which requests are served."""
        numbers = Numbers.of(self._engine)

        def rendered() -> bytes:
            # Imported late, for it takes a while, too.
            from queuegate.gateway.metrics import exposition

            return exposition.process_page(numbers, exposition.wanted(names), in_total=in_total)

        return await asyncio.to_thread(rendered)

    async def render(self, scrape: Scrape = _WHOLE) -> bytes:
        """The page. Whoever wants the same meanwhile shares it, and others wait for their turn."""
        rendering = self._renderings.get(scrape)
        if rendering is None:
            rendering = self._renderings[scrape] = asyncio.create_task(self._in_turn(scrape))
            rendering.add_done_callback(lambda _: self._renderings.pop(scrape))
        return await asyncio.shield(rendering)

    async def _in_turn(self, scrape: Scrape) -> bytes:
        async with self._turn:
            return await self._render(scrape)

    async def _render(self, scrape: Scrape) -> bytes:
        names, in_total, is_packed = scrape
        await self._refresh()
        own, *others = await asyncio.gather(
            self._own(names, in_total=in_total),
            *[self._page_of(path, in_total=in_total) for path in self._siblings()],
        )
        pages = [own, *[page for page in others if page]]
        stored = self._stored
        room = None if self._disk is None else self._disk.room
        refuses = bool(self._engine.refuses_sends)

        def rendered() -> bytes:
            from queuegate.gateway.metrics import exposition

            wants = exposition.wanted(names)
            total = exposition.added(pages, wants) if len(pages) > 1 else pages[0]
            total += exposition.depth_page(stored, wants, in_total=in_total)
            total += exposition.disk_page(room, wants, refuses=refuses)
            return gzip.compress(total, _PACKING) if is_packed else total

        return await asyncio.to_thread(rendered)

    async def _refresh(self) -> None:
        """Ask the database, at most every ten seconds; when it is slow the page goes without."""
        time = asyncio.get_running_loop().time()
        if self._refreshing is None and time - self._depths_at > _REFRESH_SECONDS:
            self._depths_at = time
            self._refreshing = asyncio.create_task(self._ask_database())
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing], timeout=_PATIENCE_SECONDS)

    async def _ask_database(self) -> None:
        """How deep the queues are; deleted ones are absent, and so are their other series."""
        try:
            await self._tidy()
            now = self._engine.clock.now()
            fair = await self._engine.fairness.gauges()
            async with self._engine.database.transaction() as tx:
                self._stored = Stored(
                    await depths.depths(tx, now, MOST_QUEUES),
                    await depths.titled_depths(tx, now, MOST_QUEUES),
                    await depths.oldest_by_priority(tx, now, _MOST_PRIORITISED),
                    await delivery_inspection.gauges(tx, now),
                    await gauges.of_groups(tx, now, MOST_GROUPS),
                    await depths.paused(tx, MOST_QUEUES),
                    fair,
                )
        except Unavailable as error:
            _log.log(error.log_level, "depths are not known: %s", error)
            self._stored = _UNKNOWN
        finally:
            self._refreshing = None

    async def _tidy(self) -> None:
        """Forget deleted queues, topics and groups for which nothing is counted any more, at most
        every ten seconds."""
        time = asyncio.get_running_loop().time()
        if time - self._tidied_at <= _REFRESH_SECONDS:
            return
        self._tidied_at = time
        series = self._engine.series
        queue_ids, topics = series.unused_queues(), series.topics.unused()
        groups = series.groups.unused()
        if not (queue_ids or topics or groups):
            return
        try:
            async with self._engine.database.transaction() as tx:
                live = await depths.live(tx, queue_ids)
                names = [one.labels() for one in topics.values()]
                live_topics = await depths.live_topics(tx, names)
                live_groups = await gauges.live_groups(tx, groups)
        except Unavailable as error:
            _log.log(error.log_level, "which queues were deleted is not known: %s", error)
            return
        for queue_id in set(queue_ids) - live:
            series.forget(queue_id)
        for arn, topic in topics.items():
            if topic.labels() not in live_topics:
                series.topics.forget(arn)
        for group_id in groups.keys() - live_groups:
            series.groups.forget(group_id)

    def _socket(self) -> Path | None:
        return self._runtime_dir / f"metrics-{self._worker_number}" if self._runtime_dir else None

    def _siblings(self) -> list[Path]:
        if self._runtime_dir is None:
            return []
        return [path for path in self._runtime_dir.glob("metrics-*") if path != self._socket()]

    async def _page_of(self, path: Path, *, in_total: bool) -> bytes:
        """A sibling's page, or the one before when it takes too long; nothing when it is dead."""
        key = path, in_total
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                page = self._pages[key] = await _ask(path, in_total=in_total)
        except TimeoutError:
            page = self._pages.get(key, b"")
            age = "those of the last time" if page else "nothing"
            _log.warning("a worker does not tell its numbers (%s): shown is %s", path.name, age)
        except OSError as error:
            self._pages.pop(key, None)
            page = b""
            _log.warning("a worker's numbers are missing (%s): %s", path.name, error)
        return page

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Let the siblings read our numbers."""
        path = self._socket()
        if path is None:
            yield
            return
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._tell, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        in_total = await reader.readline() == _IN_TOTAL
        writer.write(await self._own(in_total=in_total))
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()
        # Only now: whoever asks does not wait for long, and may be the only one that is scraped.
        await self._tidy()


async def _ask(path: Path, *, in_total: bool = False) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_IN_TOTAL if in_total else b"\n")
        return await reader.read()
    finally:
        writer.close()
