"""The two ways to a collector: OTLP as protobuf over HTTP, and over gRPC.

What the SDK reads from variables of its own holds for both: ``OTEL_EXPORTER_OTLP_HEADERS`` for a
collector that wants credentials, ``_CERTIFICATE``, ``_COMPRESSION``.
"""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.sdk.trace.export import SpanExporter

_TIMEOUT_SECONDS = 5.0


class Way(NamedTuple):
    """Where spans go."""

    exporter: SpanExporter
    url: str
    """For the log."""


def way_to(endpoint: str, protocol: str) -> Way:
    """The exporter to a collector, of which only the chosen one is loaded."""
    return _by_grpc(endpoint) if protocol == "grpc" else _by_http(endpoint)


def _by_http(endpoint: str) -> Way:
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    session = requests.Session()
    # Neither proxies nor credentials that are there for something else.
    session.trust_env = False
    url = f"{endpoint}/v1/traces"
    return Way(OTLPSpanExporter(endpoint=url, timeout=_TIMEOUT_SECONDS, session=session), url)


def _by_grpc(endpoint: str) -> Way:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(
        endpoint=endpoint,
        # Not what a variable says, which is about other programs' endpoints.
        insecure=not endpoint.startswith("https:"),
        timeout=_TIMEOUT_SECONDS,
        channel_options=(("grpc.enable_http_proxy", 0),),  # type: ignore[arg-type]  # gRPC has numbers
    )
    return Way(exporter, endpoint)
