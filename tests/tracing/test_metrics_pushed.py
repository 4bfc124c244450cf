"""Metrics arrive at a collector without being scraped, over HTTP and gRPC."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc  # type: ignore[import-untyped]  # no stubs are locked
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

from queuegate.gateway.metrics.otlp_metrics import metrics_of
from tests.faces.servers import Server
from tests.faces.simple.client import Simple
from tests.tracing.collector import PATIENCE_SECONDS


class Pushed:
    """The content of a collector, which refuses while ``is_refusing``."""

    def __init__(self) -> None:
        self.is_refusing = False
        self.refused = 0
        self._requests: list[ExportMetricsServiceRequest] = []
        self._changed = threading.Condition()

    def take(self, request: ExportMetricsServiceRequest) -> bool:
        with self._changed:
            self.refused += self.is_refusing
            if not self.is_refusing:
                self._requests.append(request)
            self._changed.notify_all()
            return not self.is_refusing

    def until(self, wanted: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(wanted, PATIENCE_SECONDS)

    def value(self, name: str, **labels: str) -> float | None:
        """The last value of the metric with these labels."""
        for request in reversed(self._requests):
            for metric in _metrics(request):
                kind = metric.WhichOneof("data")
                if metric.name != name or kind == "histogram":
                    continue
                for point in getattr(metric, kind).data_points:
                    found = {one.key: one.value.string_value for one in point.attributes}
                    if labels.items() <= found.items():
                        return float(point.as_double)
        return None

    def names(self) -> set[str]:
        return {metric.name for request in self._requests for metric in _metrics(request)}


def _metrics(request: ExportMetricsServiceRequest) -> Iterator[Any]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


@pytest.fixture(params=["http/protobuf", "grpc"])
def collector(request: pytest.FixtureRequest) -> Iterator[tuple[Pushed, dict[str, str]]]:
    """A collector, and the settings with which a gateway pushes there every second."""
    pushed = Pushed()
    if request.param == "grpc":
        stop, port = _by_grpc(pushed)
    else:
        stop, port = _by_http(pushed)
    settings = {
        "QUEUEGATE_OTLP_METRICS_ENABLED": "true",
        "QUEUEGATE_OTLP_METRICS_SECONDS": "1",
        "QUEUEGATE_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "QUEUEGATE_OTLP_PROTOCOL": request.param,
    }
    yield pushed, settings
    stop()


def _by_http(pushed: Pushed) -> tuple[Callable[[], None], int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/metrics"
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            is_taken = pushed.take(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200 if is_taken else 400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not a word."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop, server.server_port


def _by_grpc(pushed: Pushed) -> tuple[Callable[[], None], int]:
    class Service(MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
            if not pushed.take(request):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    add_MetricsServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
    port: int = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return lambda: server.stop(None).wait(), port


def test_what_is_counted_is_pushed_again_and_again(
    collector: tuple[Pushed, dict[str, str]],
) -> None:
    """Longer than it takes: it is a push every second, and a collector that refuses in between."""
    pushed, settings = collector
    labels = {"queue": "orders", "outcome": "success"}
    with Server(**settings) as server, Simple(server.url) as simple:
        queue_id = simple.create()
        simple.enqueue(queue_id)
        pushed.until(lambda: pushed.value("simplemq.enqueue.total", **labels) == 1)
        pushed.until(lambda: pushed.value("simplemq.queue.depth", queue="orders") is not None)
        pushed.is_refusing = True
        simple.enqueue(queue_id)
        pushed.until(lambda: pushed.refused)
        pushed.is_refusing = False
        pushed.until(lambda: pushed.value("simplemq.enqueue.total", **labels) == 2)
        simple.enqueue(queue_id)
    # The last push is that of a gateway that stops.
    assert pushed.value("simplemq.enqueue.total", **labels) == 3
    assert {"queue_messages_sent_total", "http_request_duration_seconds"} <= pushed.names()


def test_histograms_keep_their_buckets() -> None:
    page = (
        "# TYPE a histogram\n"
        'a_bucket{le="0.5",q="x"} 2.0\na_bucket{le="1.0",q="x"} 3.0\n'
        'a_bucket{le="+Inf",q="x"} 7.0\n'
        'a_count{q="x"} 7.0\na_sum{q="x"} 40.0\n'
    )
    [resource] = metrics_of(page, 1, 2).resource_metrics
    [metric] = resource.scope_metrics[0].metrics
    [point] = metric.data.data_points
    assert (point.count, point.sum, list(point.bucket_counts)) == (7, 40.0, [2, 1, 4])  # type: ignore[union-attr]
    assert list(point.explicit_bounds) == [0.5, 1.0]  # type: ignore[union-attr]
    assert point.attributes == {"q": "x"}
