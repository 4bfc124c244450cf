"""Opens the traces of a process, when they are on. Only then their libraries are loaded."""

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
    """BadSetting when something is to be exported and what that needs is not installed."""
    for name, is_on, what in (
        ("QUEUEGATE_OTLP_ENABLED", settings.otlp_enabled, "traces"),
        (
            "QUEUEGATE_OTLP_METRICS_ENABLED",
            settings.otlp_metrics_enabled,
            "metrics that are pushed",
        ),
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
        # Not even what it is in.
        return False


def collector(settings: Settings) -> tuple[str, str]:
    """Where the collector is, and the protocol that it is told in."""
    endpoint, protocol = settings.otlp_endpoint, settings.otlp_protocol
    if protocol is None:
        is_grpc = endpoint is not None and urlsplit(endpoint).port == _GRPC_PORT
        protocol = _GRPC if is_grpc else "http/protobuf"
    return endpoint or _ENDPOINTS[protocol], protocol


@contextlib.asynccontextmanager
async def open_tracing(settings: Settings) -> AsyncIterator[Tracing | None]:
    """What makes spans; None when they are off. What is left at the end is exported, for two
    seconds at most."""
    if not settings.otlp_enabled:
        yield None
        return
    from queuegate.gateway.tracing.exporters import way_to
    from queuegate.gateway.tracing.exporting import Exporting
    from queuegate.gateway.tracing.spans import Tracing

    exporting = Exporting(way_to(*collector(settings)))
    try:
        yield Tracing(exporting.tracer, settings.otlp_sample_rate)
    finally:
        await exporting.close()
