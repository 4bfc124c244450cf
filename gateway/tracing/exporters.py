"""The two ways to a collector: OTLP as protobuf over HTTP, and over gRPC.

What the SDK reads from variables of its own holds for both: ``OTEL_EXPORTER_OTLP_HEADERS`` for a
collector that wants credentials, ``_CERTIFICATE``, ``_COMPRESSION``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

if TYPE_CHECKING:
    import requests

_TIMEOUT_SECONDS = 5.0
_NO_PROXY: Any = (("grpc.enable_http_proxy", 0),)


class Way(NamedTuple):
    """Where spans go."""

    exporter: SpanExporter
    url: str
    """For the log."""


class MetricsWay(NamedTuple):
    """Where metrics go."""

    exporter: MetricExporter
    url: str
    """For the log."""


def metrics_way_to(endpoint: str, protocol: str) -> MetricsWay:
    """The same for metrics."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as by_grpc

        grpc_exporter = by_grpc.OTLPMetricExporter(
            endpoint=endpoint,
            insecure=not endpoint.startswith("https:"),
            timeout=_TIMEOUT_SECONDS,
            channel_options=_NO_PROXY,
        )
        return MetricsWay(grpc_exporter, endpoint)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    url = f"{endpoint}/v1/metrics"
    exporter = OTLPMetricExporter(endpoint=url, timeout=_TIMEOUT_SECONDS, session=_session())
    return MetricsWay(exporter, url)


def way_to(endpoint: str, protocol: str) -> Way:
    """The exporter to a collector, of which only the chosen one is loaded."""
    return _by_grpc(endpoint) if protocol == "grpc" else _by_http(endpoint)


def _by_http(endpoint: str) -> Way:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    url = f"{endpoint}/v1/traces"
    return Way(OTLPSpanExporter(endpoint=url, timeout=_TIMEOUT_SECONDS, session=_session()), url)


def _session() -> requests.Session:
    import requests

    session = requests.Session()
    # Neither proxies nor credentials that are there for something else.
    session.trust_env = False
    return session


def _by_grpc(endpoint: str) -> Way:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(
        endpoint=endpoint,
        # Not what a variable says, which is about other programs' endpoints.
        insecure=not endpoint.startswith("https:"),
        timeout=_TIMEOUT_SECONDS,
        channel_options=_NO_PROXY,
    )
    return Way(exporter, endpoint)
