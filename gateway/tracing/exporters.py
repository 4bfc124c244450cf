"""The two ways to a collector: OTLP as protobuf over HTTP, and over gRPC.

What the SDK reads from variables of its own holds for both: ``OTEL_EXPORTER_OTLP_HEADERS`` for a
collector that wants credentials, ``_CERTIFICATE``, ``_COMPRESSION``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

if TYPE_CHECKING:
    import requests

_TIMEOUT_SECONDS = 5.0
_Exporter = TypeVar("_Exporter")


class Way(NamedTuple, Generic[_Exporter]):
    """Where spans or metrics go."""

    exporter: _Exporter
    url: str
    """For the log."""


def way_to(endpoint: str, protocol: str) -> Way[SpanExporter]:
    """The exporter of spans to a collector, of which only the chosen one is loaded."""
    return _way(endpoint, protocol, "trace_exporter", "OTLPSpanExporter", "/v1/traces")


def metrics_way_to(endpoint: str, protocol: str) -> Way[MetricExporter]:
    """The same for metrics."""
    return _way(endpoint, protocol, "metric_exporter", "OTLPMetricExporter", "/v1/metrics")


def _way(endpoint: str, protocol: str, module: str, name: str, path: str) -> Way[Any]:
    wire = "grpc" if protocol == "grpc" else "http"
    exporter = getattr(import_module(f"opentelemetry.exporter.otlp.proto.{wire}.{module}"), name)
    if wire == "http":
        url = endpoint + path
        return Way(exporter(endpoint=url, timeout=_TIMEOUT_SECONDS, session=_session()), url)
    made = exporter(
        endpoint=endpoint,
        # Not what a variable says, which is about other programs' endpoints.
        insecure=not endpoint.startswith("https:"),
        timeout=_TIMEOUT_SECONDS,
        channel_options=(("grpc.enable_http_proxy", 0),),
    )
    return Way(made, endpoint)


def _session() -> requests.Session:
    import requests

    session = requests.Session()
    # Neither proxies nor credentials that are there for something else.
    session.trust_env = False
    return session
