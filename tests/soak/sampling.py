"""Samples of a gateway and its PostgreSQL: memory, sizes, dead rows, connections, flushes, lag."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg

from tests.bench.servers import database_url
from tests.faces.connections import fetch
from tests.seed.pages import Page
from tests.soak.series import COUNT, DEAD_ROWS, LATENCY_P50, LATENCY_P99, MEMORY, SIZE, Recording

if TYPE_CHECKING:
    from tests.bench.servers import Server

_TABLES = """
SELECT t.relname::text AS name, pg_table_size(t.relid) / 1048576.0 AS table_mib,
  pg_indexes_size(t.relid) / 1048576.0 AS index_mib, t.n_dead_tup AS dead_rows
FROM pg_stat_user_tables AS t WHERE t.schemaname = 'queuegate'
"""
_FLUSH = "queuegate_lane_flush_duration_seconds"
_STATES = ("active", "idle", "idle in transaction")


class Sampler:
    """Reads /metrics, the catalogs and /proc. ``is_long``: memory and sizes are judged, which rise
    in the first minutes of any run."""

    def __init__(self, server: Server, recording: Recording, *, is_long: bool) -> None:
        self._server = server
        self._recording = recording
        self._memory = MEMORY if is_long else None
        self._size = SIZE if is_long else None
        self._dead = DEAD_ROWS if is_long else None
        self._before: Page | None = None
        self._counts: dict[str, int] = {}
        self._at = 0.0

    async def sample(self, at: float) -> None:
        """Add a point to every series."""
        recording = self._recording
        recording.ends_at = at
        recording.sample_latencies()
        self._rates(at)
        memory = await asyncio.to_thread(self._server.tree.memory)
        recording.add("memory", "gateway", "MiB", memory.gateway_pss, self._memory)
        recording.add("memory", "PostgreSQL", "MiB", memory.database_pss, self._memory)
        await self._tables()
        host, port = self._server.address
        answer = await asyncio.to_thread(fetch, f"http://{host}:{port}", "/metrics")
        self._page(Page(answer.text))

    def _rates(self, at: float) -> None:
        passed, self._at = at - self._at, at
        for name, count in self._recording.counts.items():
            rate = (count - self._counts.get(name, 0)) / passed
            self._recording.add("finished", name, "a second", rate)
        self._counts = dict(self._recording.counts)

    async def _tables(self) -> None:
        connection = await asyncpg.connect(database_url(self._server))
        rows = await connection.fetch(_TABLES)
        await connection.close()
        add = self._recording.add
        for name, table_mib, index_mib, dead_rows in rows:
            if table_mib > 0.1:
                add("table-size", name, "MiB", float(table_mib), self._size)
                add("index-size", name, "MiB", float(index_mib), self._size)
                add("dead-rows", name, "rows", dead_rows, self._dead)

    def _page(self, page: Page) -> None:
        add, before, self._before = self._recording.add, self._before, page
        for state in _STATES:
            value = page.value("queuegate_database_connections", state=state)
            add("connections", f"PostgreSQL, {state}", "", value, COUNT)
        add("connections", "clients", "", page.value("queuegate_connections"), COUNT)
        lag = page.value("queuegate_event_loop_lag_seconds") * 1000
        add("loop-lag", "highest in 30 s", "ms", lag, LATENCY_P99)
        stored = page.value("queuegate_queue_depth")
        add("messages-stored", "visible", "messages", stored, COUNT)
        if before is None:
            return
        for lane in page.values_of(f"{_FLUSH}_count", "lane"):
            count, seconds = (
                page.value(f"{_FLUSH}_{end}", lane=lane)
                - before.value(f"{_FLUSH}_{end}", lane=lane)
                for end in ("count", "sum")
            )
            if count:
                add("flush", lane, "ms, mean", seconds / count * 1000, LATENCY_P50)
