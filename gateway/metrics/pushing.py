"""Pushes what /metrics shows to a collector over OTLP, every minute or as often as is set.

What is there is what a scrape would get at that moment, of all processes of this gateway together:
one of them pushes. A collector that is away costs a line in the log when it begins and one when it
is over, and no memory: the numbers are totals, so the next push makes up for those that failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from queuegate.gateway.metrics.scraping import Metrics

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.tracing.exporters import Way

_log = logging.getLogger("queuegate.metrics")

_LAST_PUSH_SECONDS = 2.0


class PushMetrics:
    """Pushes until it is stopped, and once more then."""

    def __init__(self, metrics: Metrics, settings: Settings) -> None:
        self._metrics = metrics
        self._settings = settings
        self._started_at = time.time_ns()
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._way: Way[MetricExporter] | None = None
        self._is_out = False

    def start(self, *, after_seconds: float = 0.0) -> None:
        """Begin."""
        work = self._run(after_seconds + self._settings.otlp_metrics_seconds)
        self._task = asyncio.get_running_loop().create_task(work, name="push metrics")

    async def stop(self) -> None:
        """Push what was counted since the last time, within two seconds, and end."""
        self._stopping.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait([task], timeout=_LAST_PUSH_SECONDS)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._way is not None:
            self._way.exporter.shutdown(timeout_millis=0)

    async def _run(self, first_seconds: float) -> None:
        pause = first_seconds
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = self._settings.otlp_metrics_seconds
            page = await self._metrics.render()
            self._tell(await asyncio.to_thread(self._push, page.decode()))

    def _push(self, page: str) -> str:
        """In a thread, as is all that a collector may hold up: "" or why it did not work."""
        # Imported here: who pushes nothing needs none of it.
        from queuegate.gateway.metrics.otlp_metrics import pushed
        from queuegate.gateway.tracing.exporters import metrics_way_to
        from queuegate.gateway.tracing.opening import collector

        if self._way is None:
            self._way = metrics_way_to(*collector(self._settings))
        return pushed(self._way.exporter, page, self._started_at)

    def _tell(self, trouble: str) -> None:
        assert self._way is not None
        if trouble and not self._is_out:
            _log.warning("metrics are not pushed to %s: %s", self._way.url, trouble)
        elif self._is_out and not trouble:
            _log.info("metrics are pushed to %s again", self._way.url)
        self._is_out = bool(trouble)
