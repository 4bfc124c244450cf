"""/metrics: the numbers of this process, of its siblings, and what the database knows.

Each of several gateway processes keeps its own counters. A scrape reaches one process. This process
requests the counters of the others over sockets in the runtime directory and adds them up, so that
counters never decrease. The last known counters stand in for a process that is too busy to answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from queuegate.gateway.metrics import old_names
from queuegate.gateway.metrics.snapshots import NOTHING_STORED, DatabaseSnapshot, ProcessSnapshot
from queuegate.gateway.operations.telemetry.database_health import DatabaseHealth, DatabaseReport
from queuegate.gateway.operations.telemetry.series import MOST_GROUPS, MOST_QUEUES
from queuegate.storage.logs import stored_logs
from queuegate.storage.queues import depths
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics import web_hook_deliveries

if TYPE_CHECKING:
    from queuegate.gateway.http.tls import Certificate
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.process.disk_watch import DiskWatch


_log = logging.getLogger("queuegate.metrics")

_REFRESH_SECONDS = 10.0
_PATIENCE_SECONDS = 2.0
_PACKING = 1
"""Level of gzip: the fastest one compresses well enough."""
_IN_TOTAL = b"total\n"
_DATABASE = b"database\n"
_DATABASE_PATIENCE_SECONDS = 1.5
_MOST_PRIORITISED = 100
"""Maximum queues with series by priority, up to eleven series each."""


class Scrape(NamedTuple):
    """The parts and the form of a page that a client requests."""

    names: frozenset[str] = frozenset()
    """Names of metrics; empty: all."""
    in_total: bool = False
    """Sum over accounts and their resources."""
    is_packed: bool = False
    """Compress by gzip."""
    has_old_names: bool | None = None
    """Repeat renamed metrics under their old names; None: if there is room."""


_WHOLE = Scrape()


class MetricsPage:
    """The page /metrics of one process."""

    def __init__(
        self,
        engine: Engine,
        runtime_dir: Path | None,
        worker_number: int,
        disk: DiskWatch | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self._engine = engine
        self._disk = disk
        self._certificate = certificate
        self._runtime_dir = runtime_dir
        self._worker_number = worker_number
        self._stored = NOTHING_STORED
        self._depths_at = float("-inf")
        self._tidied_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._pages: dict[tuple[Path, bool], bytes] = {}
        self._renderings: dict[Scrape, asyncio.Task[bytes]] = {}
        self._turn = asyncio.Lock()
        asks = runtime_dir is not None and worker_number != 0
        engine.siblings.ask = self._ask_siblings
        self.health = DatabaseHealth(engine.database, self._ask_first if asks else None)

    async def _own(self, names: frozenset[str] = frozenset(), *, in_total: bool) -> bytes:
        """Render the counters of this process in a thread: 1,000 queues take half a second."""
        numbers = ProcessSnapshot.of(self._engine)

        def rendered() -> bytes:
            # Imported late: prometheus_client takes 20 ms to load.
            from queuegate.gateway.metrics import exposition

            return exposition.process_page(numbers, exposition.requested(names), in_total=in_total)

        return await asyncio.to_thread(rendered)

    async def render(self, scrape: Scrape = _WHOLE) -> bytes:
        """Render the page. Concurrent equal scrapes share it; different ones run one by one."""
        rendering = self._renderings.get(scrape)
        if rendering is None:
            rendering = self._renderings[scrape] = asyncio.create_task(self._in_turn(scrape))
            rendering.add_done_callback(lambda _: self._renderings.pop(scrape))
        return await asyncio.shield(rendering)

    async def _in_turn(self, scrape: Scrape) -> bytes:
        async with self._turn:
            return await self._render(scrape)

    async def _render(self, scrape: Scrape) -> bytes:
        names, in_total, is_packed, has_old_names = scrape
        wanted = names | old_names.renamed(names)
        health = await self.health.report()
        await self._refresh(waits=health.is_up)
        own, *others = await asyncio.gather(
            self._own(wanted, in_total=in_total),
            *[self._page_of(path, in_total=in_total) for path in self._siblings()],
        )
        pages = [own, *[page for page in others if page]]
        stored, certificates = self._stored, self._certificates()
        room = None if self._disk is None else self._disk.room
        refuses = bool(self._engine.refuses_sends)

        def rendered() -> bytes:
            from queuegate.gateway.metrics import exposition

            wants = exposition.requested(wanted)
            total = exposition.added(pages, wants) if len(pages) > 1 else pages[0]
            total += exposition.depth_page(stored, wants, in_total=in_total)
            total += exposition.disk_page(room, wants, refuses=refuses)
            total += exposition.health_page(health, certificates, wants, in_total=in_total)
            total = old_names.with_old_names(total, names, repeats=has_old_names)
            return gzip.compress(total, _PACKING) if is_packed else total

        return await asyncio.to_thread(rendered)

    def _certificates(self) -> dict[str, str]:
        """Return the certificates in use, in PEM."""
        found = {} if self._certificate is None else {"tls": self._certificate.pem}
        signer = self._engine.signer
        return (
            found if signer.loaded_fingerprint is None else found | {"sns": signer.certificate_pem}
        )

    async def _refresh(self, *, waits: bool) -> None:
        """Refresh the gauges every 10 s at most; a page does not wait for a slow database, nor
        without ``waits`` for any."""
        time = asyncio.get_running_loop().time()
        if self._refreshing is None and time - self._depths_at > _REFRESH_SECONDS:
            self._depths_at = time
            self._refreshing = asyncio.create_task(self._ask_database())
        if self._refreshing is not None and waits:
            patience = max(self._depths_at + _PATIENCE_SECONDS - time, 0.0)
            await asyncio.wait([self._refreshing], timeout=patience)

    async def _ask_database(self) -> None:
        """Read the gauges, without deleted queues, and drop the series of those."""
        try:
            await self._tidy()
            now = self._engine.clock.now()
            fair = await self._engine.fairness.gauges()
            async with self._engine.database.transaction() as tx:
                self._stored = DatabaseSnapshot(
                    await depths.depths(tx, now, MOST_QUEUES),
                    await depths.titled_depths(tx, now, MOST_QUEUES),
                    await depths.oldest_by_priority(tx, now, _MOST_PRIORITISED),
                    await web_hook_deliveries.gauges(tx, now),
                    await stored_logs.group_gauges(tx, now, MOST_GROUPS),
                    await depths.paused(tx, MOST_QUEUES),
                    fair,
                    await depths.oldest_ages(tx, now, MOST_QUEUES, self._engine.standard.marks()),
                )
        except Unavailable as error:
            _log.log(error.log_level, "gauges of the database are unknown: %s", error)
            self._stored = NOTHING_STORED
        finally:
            self._refreshing = None

    async def _tidy(self) -> None:
        """Drop the series of deleted queues, topics and groups, every 10 s at most."""
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
                live_groups = await stored_logs.live_groups(tx, groups)
        except Unavailable as error:
            _log.log(error.log_level, "deleted queues are unknown: %s", error)
            return
        for queue_id in set(queue_ids) - live:
            series.forget(queue_id)
        for arn, topic in topics.items():
            if topic.labels() not in live_topics:
                series.topics.forget(arn)
        for group_id in groups.keys() - live_groups:
            series.groups.forget(group_id)

    def process_count(self) -> int:
        """Return the number of processes of this gateway."""
        return 1 + len(self._siblings())

    def _socket(self) -> Path | None:
        return self._runtime_dir / f"metrics-{self._worker_number}" if self._runtime_dir else None

    def _siblings(self) -> list[Path]:
        if self._runtime_dir is None:
            return []
        return [path for path in self._runtime_dir.glob("metrics-*") if path != self._socket()]

    async def _page_of(self, path: Path, *, in_total: bool) -> bytes:
        """Return a sibling's page, its last page after a timeout, or nothing if it is dead."""
        key = path, in_total
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                page = await _ask(path, _IN_TOTAL if in_total else b"\n")
                self._pages[key] = page
        except TimeoutError:
            page = self._pages.get(key, b"")
            age = "its last ones" if page else "nothing"
            _log.warning(
                "a worker does not send its counters (%s): /metrics includes %s", path.name, age
            )
        except OSError as error:
            self._pages.pop(key, None)
            page = b""
            _log.warning("counters of a worker are missing (%s): %s", path.name, error)
        return page

    async def _ask_first(self) -> DatabaseReport:
        """Return the report of the first process. Raises OSError or ValueError."""
        assert self._runtime_dir is not None
        async with asyncio.timeout(_DATABASE_PATIENCE_SECONDS):
            answer = await _ask(self._runtime_dir / "metrics-0", _DATABASE)
        return msgspec.json.decode(answer, type=DatabaseReport)

    async def _ask_siblings(self, question: bytes) -> list[bytes]:
        """Return the answers of all other processes of this gateway, without dead and slow ones."""
        answers = await asyncio.gather(
            *[self._answer_of(path, question) for path in self._siblings()]
        )
        return [answer for answer in answers if answer]

    async def _answer_of(self, path: Path, question: bytes) -> bytes:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await _ask(path, question)
        return b""

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Serve the counters of this process to its siblings."""
        path = self._socket()
        if path is None:
            yield
            return
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._send_counters, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def _send_counters(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        question = await reader.readline()
        if (answer := self._engine.siblings.answer(question)) is not None:
            writer.write(answer)
        elif question == _DATABASE:
            writer.write(msgspec.json.encode(await self.health.report()))
        else:
            writer.write(await self._own(in_total=question == _IN_TOTAL))
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()
        # After the answer: the sibling waits 2 s at most. This process may never be scraped itself.
        await self._tidy()


async def _ask(path: Path, question: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(question)
        return await reader.read()
    finally:
        writer.close()
