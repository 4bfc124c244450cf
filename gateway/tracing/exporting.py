"""From finished spans to the collector: bounded, in a thread, and quiet about its troubles.

At most 4096 spans wait; more are dropped. A collector that is away, slow or refuses costs nothing
else: one line in the log when it begins, one when it is over.

What the SDK reads from variables of its own holds, such as ``OTEL_RESOURCE_ATTRIBUTES``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Sequence
from importlib.metadata import version

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Tracer

from queuegate.gateway.tracing.exporters import Way

_log = logging.getLogger("queuegate.tracing")

_MOST_WAITING = 4_096
_MOST_AT_ONCE = 512
_PAUSE_MS = 1_000
_MOST_LINKS = 256
"""As many entries as a flush has at most (``storage.lanes``)."""
_DROPS_TOLD_SECONDS = 60.0
CLOSE_SECONDS = 2.0


class _Quiet(SpanExporter):
    """An exporter whose outages are told once, however many batches they cost."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._is_out = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand a batch to the exporter behind."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self.failed("no success")
        elif self._is_out:
            self._is_out = False
            _log.info("traces are exported to %s again", self._endpoint)
        return result

    def failed(self, reason: str) -> None:
        """Something went wrong; the first of it is told."""
        if not self._is_out:
            self._is_out = True
            _log.warning("traces are not exported to %s: %s", self._endpoint, reason)

    def shutdown(self) -> None:
        """Break off what is under way."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return self._exporter.force_flush(timeout_millis)


class _Notes(logging.Handler):
    """What the SDK would log, per batch and with what clients sent: told in our words, or not."""

    def __init__(self, quiet: _Quiet) -> None:
        super().__init__(logging.WARNING)
        self._quiet = quiet
        self._told_at = -_DROPS_TOLD_SECONDS

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record."""
        if record.name.startswith("opentelemetry.exporter."):
            self._quiet.failed(record.getMessage())
        elif record.getMessage().startswith("Queue full"):
            now = time.monotonic()
            if now - self._told_at >= _DROPS_TOLD_SECONDS:
                self._told_at = now
                _log.warning("more spans come than can be exported: some are dropped")


class Exporting:
    """The tracer of this process, and the end of it."""

    def __init__(self, way: Way[SpanExporter]) -> None:
        quiet = _Quiet(way.exporter, way.url)
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        self._notes = _Notes(quiet)
        logger.addHandler(self._notes)
        self._provider = TracerProvider(
            # What is not to be sampled is not begun.
            sampler=ALWAYS_ON,
            resource=Resource.create(
                {
                    "service.name": "queuegate",
                    "service.version": version("queuegate"),
                    "service.instance.id": str(uuid.uuid4()),
                }
            ),
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_links=_MOST_LINKS),
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                quiet,
                max_queue_size=_MOST_WAITING,
                max_export_batch_size=_MOST_AT_ONCE,
                schedule_delay_millis=_PAUSE_MS,
            )
        )

    @property
    def tracer(self) -> Tracer:
        """Makes spans that are exported when they end."""
        return self._provider.get_tracer("queuegate", version("queuegate"))

    async def close(self) -> None:
        """Export what is left, for two seconds at most; what a collector has not taken by then is
        lost."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end() -> None:
            self._provider.shutdown()
            # Too late, the loop is closed and nobody waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        # Not a thread of the loop's: those are waited for at the end of the process.
        threading.Thread(target=end, name="last traces", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await ended.wait()
        except TimeoutError:
            _log.warning("the collector did not take the last traces in %g s", CLOSE_SECONDS)
        logging.getLogger("opentelemetry").removeHandler(self._notes)
