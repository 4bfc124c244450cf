"""Setup of traces: checks, the collector's address, and the tracing of a process.

The libraries are loaded only if traces are on.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from queuegate.gateway.configuration.settings import BadSetting

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.tracing.spans import Tracing


_GRPC = "grpc"
_GRPC_PORT = 4317
_ENDPOINTS = {"http/protobuf": "http://localhost:4318", _GRPC: f"http://localhost:{_GRPC_PORT}"}
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.grpc")


def check_installed(settings: Settings) -> None:
    """Raise BadSetting if an export is on and its packages are not installed."""
    for name, is_on, what in (
        ("QUEUEGATE_OTLP_ENABLED", settings.otlp_enabled, "traces"),
        ("QUEUEGATE_OTLP_METRICS_ENABLED", settings.otlp_metrics_enabled, "pushed metrics"),
    ):
        if is_on and not all(map(_is_installed, _NEEDED)):
            raise BadSetting(
                f"{name}=true: {what} need packages that are not installed: "
                "pip install 'queuegate[otlp]'"
            )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The parent package is not installed either.
        return False


def collector(settings: Settings) -> tuple[str, str]:
    """Return the address and the protocol of the collector."""
    endpoint, protocol = settings.otlp_endpoint, settings.otlp_protocol
    if protocol is None:
        is_grpc = endpoint is not None and urlsplit(endpoint).port == _GRPC_PORT
        protocol = _GRPC if is_grpc else "http/protobuf"
    return endpoint or _ENDPOINTS[protocol], protocol


@contextlib.asynccontextmanager
async def open_tracing(settings: Settings) -> AsyncIterator[Tracing | None]:
    """Yield the tracing of this process, or None if traces are off.

    At the end, remaining spans are exported for 2 s at most.
    """
    if not settings.otlp_enabled:
        yield None
        return
    from queuegate.gateway.tracing.exporters import TraceExporter, span_exporter_for
    from queuegate.gateway.tracing.spans import Tracing

    exporting = TraceExporter(span_exporter_for(*collector(settings)))
    try:
        yield Tracing(exporting.tracer, settings.otlp_sample_rate)
    finally:
        await exporting.close()
