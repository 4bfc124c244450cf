"""Export of spans and metrics to a collector: OTLP as protobuf over HTTP, or over gRPC.

Variables that the SDK reads itself hold for both protocols: ``OTEL_EXPORTER_OTLP_HEADERS`` for the
credentials of a collector, ``_CERTIFICATE``, ``_COMPRESSION`` and ``OTEL_RESOURCE_ATTRIBUTES``.

A thread exports spans. At most 4,096 spans wait; further spans are dropped. An outage of the
collector costs nothing else: one log line when it begins and one when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Tracer

if TYPE_CHECKING:
    import requests

_TIMEOUT_SECONDS = 5.0
_Exporter = TypeVar("_Exporter")


class CollectorExporter(NamedTuple, Generic[_Exporter]):
    """An exporter of spans or metrics, and its URL."""

    exporter: _Exporter
    url: str
    """The address for log lines."""


def span_exporter_for(endpoint: str, protocol: str) -> CollectorExporter[SpanExporter]:
    """Return the exporter of spans; only that of this protocol is loaded."""
    return _exporter_for(endpoint, protocol, "trace_exporter", "OTLPSpanExporter", "/v1/traces")


def metric_exporter_for(endpoint: str, protocol: str) -> CollectorExporter[MetricExporter]:
    """Return the exporter of metrics; only that of this protocol is loaded."""
    return _exporter_for(endpoint, protocol, "metric_exporter", "OTLPMetricExporter", "/v1/metrics")


def _exporter_for(
    endpoint: str, protocol: str, module: str, name: str, path: str
) -> CollectorExporter[Any]:
    wire = "grpc" if protocol == "grpc" else "http"
    exporter = getattr(import_module(f"opentelemetry.exporter.otlp.proto.{wire}.{module}"), name)
    if wire == "http":
        url = endpoint + path
        return CollectorExporter(
            exporter(endpoint=url, timeout=_TIMEOUT_SECONDS, session=_session()), url
        )
    made = exporter(
        endpoint=endpoint,
        # Set here, because OTEL_EXPORTER_OTLP_INSECURE may be meant for other programs.
        insecure=not endpoint.startswith("https:"),
        timeout=_TIMEOUT_SECONDS,
        channel_options=(("grpc.enable_http_proxy", 0),),
    )
    return CollectorExporter(made, endpoint)


def _session() -> requests.Session:
    import requests

    session = requests.Session()
    # Use no proxies and credentials of the environment, which are meant for other programs.
    session.trust_env = False
    return session


_log = logging.getLogger("queuegate.tracing")

_MAX_WAITING_SPANS = 4_096
_MAX_BATCH_SPANS = 512
_EXPORT_INTERVAL_MS = 1_000
_MAX_LINKS = 256
"""Maximum entries of a flush (``storage.lanes``)."""
_DROP_WARNING_SECONDS = 60.0
CLOSE_SECONDS = 2.0


class _OutageReporter(SpanExporter):
    """An exporter that logs each outage once."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._is_out = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self.failed("no success")
        elif self._is_out:
            self._is_out = False
            _log.info("traces are exported to %s again", self._endpoint)
        return result

    def failed(self, reason: str) -> None:
        """Log the first failure of an outage."""
        if not self._is_out:
            self._is_out = True
            _log.warning("traces are not exported to %s: %s", self._endpoint, reason)

    def shutdown(self) -> None:
        """Cancel the export in progress."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter behind."""
        return self._exporter.force_flush(timeout_millis)


class _SdkLogFilter(logging.Handler):
    """Replaces log records of the SDK, which are one per batch and may contain data of clients."""

    def __init__(self, quiet: _OutageReporter) -> None:
        super().__init__(logging.WARNING)
        self._quiet = quiet
        self._warned_at = -_DROP_WARNING_SECONDS

    def emit(self, record: logging.LogRecord) -> None:
        """Report an outage or dropped spans; discard other records."""
        if record.name.startswith("opentelemetry.exporter."):
            self._quiet.failed(record.getMessage())
        elif record.getMessage().startswith("Queue full"):
            now = time.monotonic()
            if now - self._warned_at >= _DROP_WARNING_SECONDS:
                self._warned_at = now
                _log.warning("spans come faster than they can be exported: some are dropped")


class TraceExporter:
    """The tracer of this process, with its exporter."""

    def __init__(self, target: CollectorExporter[SpanExporter]) -> None:
        quiet = _OutageReporter(target.exporter, target.url)
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        self._notes = _SdkLogFilter(quiet)
        logger.addHandler(self._notes)
        self._provider = TracerProvider(
            # Unsampled spans are never started.
            sampler=ALWAYS_ON,
            resource=Resource.create(
                {
                    "service.name": "queuegate",
                    "service.version": version("queuegate"),
                    "service.instance.id": str(uuid.uuid4()),
                }
            ),
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_links=_MAX_LINKS),
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                quiet,
                max_queue_size=_MAX_WAITING_SPANS,
                max_export_batch_size=_MAX_BATCH_SPANS,
                schedule_delay_millis=_EXPORT_INTERVAL_MS,
            )
        )

    @property
    def tracer(self) -> Tracer:
        """Return the tracer; its spans are exported when they end."""
        return self._provider.get_tracer("queuegate", version("queuegate"))

    async def close(self) -> None:
        """Export the remaining spans, for 2 s at most; later spans are lost."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end() -> None:
            self._provider.shutdown()
            # After the deadline the loop is closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        # A daemon thread: the process would wait for a thread of the loop.
        threading.Thread(target=end, name="last traces", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await ended.wait()
        except TimeoutError:
            _log.warning("the collector did not take the last traces in %g s", CLOSE_SECONDS)
        logging.getLogger("opentelemetry").removeHandler(self._notes)
