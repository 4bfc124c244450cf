"""Prometheus text: the numbers of this process, of its siblings, and what the database knows.

With several workers each keeps its own numbers. A scrape reaches one of them; it asks the others
over sockets in the runtime directory and adds everything up, so that a counter never jumps back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gateway.operations.series import MOST_QUEUES, Histogram, QueueSeries, Series
from storage import depths
from storage.errors import Unavailable

if TYPE_CHECKING:
    from gateway.operations.engine import Engine

_log = logging.getLogger("queuegate.metrics")

_DEPTHS_SECONDS = 10.0
_SIBLING_SECONDS = 2.0

Labels = list[str]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))


def _histogram(
    name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, Histogram]]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for value, histogram in values:
        family.add_metric(value, _buckets(histogram), histogram.total)
    return family


def _counter(
    name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for value, number in values:
        family.add_metric(value, number)
    return family


class _ProcessNumbers(Collector):
    """What this process counted itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        series = self._engine.series
        yield from _http(series)
        yield from _queues([*series.queues.values(), series.other])
        yield _histogram(
            "queue_coalescer_flush_batch_size",
            "Entries per flush of a lane.",
            ["lane"],
            [([lane], histogram) for lane, histogram in series.flushes.items()],
        )
        size, idle = self._engine.database.pool_counts()
        for name, value, text in (
            ("db_pool_size", size, "Open connections of the pool."),
            ("db_pool_idle", idle, "Idle connections of the pool."),
            ("db_pool_active", size - idle, "Connections of the pool in use."),
            ("queuegate_parked_receives", self._engine.wakeups.parked_count(), "Long polls."),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "db_pool_acquire_timeouts", "Waits for a connection in vain.", series.pool_timeouts
        )


def _http(series: Series) -> Iterator[Metric]:
    totals: dict[tuple[str, str, str], int] = {}
    for (method, path, _, status), number in series.requests.items():
        key = (method, path, str(status))
        totals[key] = totals.get(key, 0) + number
    yield _counter(
        "http_requests",
        "Requests completed.",
        ["method", "path", "status"],
        [(list(key), number) for key, number in totals.items()],
    )
    durations: dict[tuple[str, str], Histogram] = {}
    for (method, path, _), histogram in series.request_seconds.items():
        total = durations.setdefault((method, path), Histogram(histogram.bounds))
        total.total += histogram.total
        total.counts = [a + b for a, b in zip(total.counts, histogram.counts, strict=True)]
    yield _histogram(
        "http_request_duration_seconds",
        "Time to answer a request.",
        ["method", "path"],
        [(list(key), histogram) for key, histogram in durations.items()],
    )
    yield GaugeMetricFamily(
        "http_connections_active", "Requests in flight.", series.active_requests
    )
    yield _counter(
        "queuegate_actions",
        "AWS actions answered.",
        ["action", "status"],
        [
            ([action, str(status)], number)
            for (_, _, action, status), number in series.requests.items()
            if action
        ],
    )
    yield _histogram(
        "queuegate_action_duration_seconds",
        "Time to answer an AWS action; long polls include their wait.",
        ["action"],
        [([action], h) for (_, _, action), h in series.request_seconds.items() if action],
    )


def _queues(all_series: list[QueueSeries]) -> Iterator[Metric]:
    for attribute, text in (
        ("sent", "Messages committed."),
        ("received", "Messages handed out."),
        ("deleted", "Messages deleted by their receivers."),
        ("redelivered", "Messages handed out again."),
    ):
        values = _by_name(all_series, attribute)
        yield _counter(f"queue_messages_{attribute}", text, ["queue"], values)
    for attribute, name, text in (
        ("send_seconds", "queue_message_send_duration_seconds", "Time to commit a send."),
        ("receive_seconds", "queue_message_receive_duration_seconds", "Time of one look."),
        ("delete_seconds", "queue_message_delete_duration_seconds", "Time to commit a delete."),
        ("age_seconds", "queue_message_age_at_receive_seconds", "Age at the first delivery."),
    ):
        yield _histogram(name, text, ["queue"], _histograms_by_name(all_series, attribute))


def _by_name(all_series: list[QueueSeries], attribute: str) -> list[tuple[Labels, float]]:
    """One value per queue name: the same name may exist in several accounts and regions."""
    values: dict[str, float] = {}
    for series in all_series:
        values[series.name] = values.get(series.name, 0.0) + getattr(series, attribute)
    return [([name], value) for name, value in values.items()]


def _histograms_by_name(
    all_series: list[QueueSeries], attribute: str
) -> list[tuple[Labels, Histogram]]:
    merged: dict[str, Histogram] = {}
    for series in all_series:
        histogram: Histogram = getattr(series, attribute)
        total = merged.setdefault(series.name, Histogram(histogram.bounds))
        total.total += histogram.total
        total.counts = [a + b for a, b in zip(total.counts, histogram.counts, strict=True)]
    return [([name], histogram) for name, histogram in merged.items()]


class Metrics:
    """Renders /metrics."""

    def __init__(self, engine: Engine, runtime_dir: Path | None, worker_number: int) -> None:
        self._engine = engine
        self._runtime_dir = runtime_dir
        self._worker_number = worker_number
        self._registry = CollectorRegistry()
        self._registry.register(_ProcessNumbers(engine))
        ProcessCollector(registry=self._registry)
        self._depths: list[depths.Depth] = []
        self._depths_at = float("-inf")

    async def render(self) -> bytes:
        """The whole page."""
        own = generate_latest(self._registry)
        others = await asyncio.gather(*[_ask(path) for path in self._siblings()])
        page = _added([own, *[text for text in others if text]]) if others else own
        return page + await self._depth_lines()

    async def _depth_lines(self) -> bytes:
        """Depth gauges, from the database at most every ten seconds; deleted queues are absent."""
        time = asyncio.get_running_loop().time()
        if time - self._depths_at > _DEPTHS_SECONDS:
            self._depths_at = time
            try:
                async with self._engine.database.transaction() as tx:
                    self._depths = await depths.depths(tx, self._engine.clock.now(), MOST_QUEUES)
            except Unavailable as error:
                _log.warning("depths are not known: %s", error)
                self._depths = []
        registry = CollectorRegistry()
        registry.register(_Depths(self._depths))
        return generate_latest(registry)

    def _socket(self) -> Path | None:
        return self._runtime_dir / f"metrics-{self._worker_number}" if self._runtime_dir else None

    def _siblings(self) -> list[Path]:
        if self._runtime_dir is None:
            return []
        return [path for path in self._runtime_dir.glob("metrics-*") if path != self._socket()]

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

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(generate_latest(self._registry))
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()


class _Depths(Collector):
    def __init__(self, depths: list[depths.Depth]) -> None:
        self._values = depths

    def collect(self) -> Iterator[Metric]:
        visible = GaugeMetricFamily("queue_depth", "Messages visible now.", labels=["queue"])
        hidden = GaugeMetricFamily(
            "queue_in_flight", "Messages received or delayed, not visible.", labels=["queue"]
        )
        totals: dict[str, tuple[int, int]] = {}
        for depth in self._values:
            before = totals.get(depth.name, (0, 0))
            totals[depth.name] = (before[0] + depth.visible, before[1] + depth.hidden)
        for name, (shown, held) in totals.items():
            visible.add_metric([name], shown)
            hidden.add_metric([name], held)
        yield visible
        yield hidden


async def _ask(path: Path) -> bytes:
    """A sibling's page; nothing when it has just died."""
    try:
        async with asyncio.timeout(_SIBLING_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            page = await reader.read()
            writer.close()
            return page
    except (OSError, TimeoutError) as error:
        _log.warning("a worker's numbers are missing (%s): %s", path.name, error)
        return b""


class _Sum(Collector):
    def __init__(self, pages: list[bytes]) -> None:
        self._pages = pages

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        totals: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for page in self._pages:
            for family in text_string_to_metric_families(page.decode()):
                families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                samples = totals.setdefault(family.name, {})
                for sample in family.samples:
                    key = (sample.name, tuple(sample.labels.items()))
                    samples[key] = samples.get(key, 0.0) + sample.value
        for name, family in families.items():
            for (sample_name, labels), value in totals[name].items():
                family.add_sample(sample_name, dict(labels), value)
            yield family


def _added(pages: list[bytes]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Sum(pages))
    return generate_latest(registry)
