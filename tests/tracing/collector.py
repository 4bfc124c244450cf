"""Collectors of traces on this machine: take OTLP over HTTP or gRPC, and keep the spans."""

from __future__ import annotations

import gzip
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import grpc  # type: ignore[import-untyped]  # no stubs are locked
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

PATIENCE_SECONDS = 20.0

_trace_numbers = itertools.count(1)


@dataclass(frozen=True)
class Span:
    """One span as it came; ids are hex, as in ``traceparent``."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    state: str
    is_error: bool
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    """(trace, span)."""
    resource: dict[str, Any]
    nanoseconds: int
    raw: bytes
    """All of it, to look for what must not be in it."""

    @property
    def place(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


def caller(*, is_sampled: bool = True) -> tuple[str, str, str]:
    """(trace, span, ``traceparent``) of a caller that nobody else is."""
    number = next(_trace_numbers)
    trace, span = f"{number:032x}", f"{number:016x}"
    return trace, span, f"00-{trace}-{span}-{is_sampled:02x}"


class Received(ABC):
    """The content of a collector, which refuses while ``is_refusing``."""

    protocol: str
    port: int

    def __init__(self) -> None:
        self.is_refusing = False
        self.refused = 0
        self.requests: list[dict[str, str]] = []
        """Headers of each."""
        self._spans: list[Span] = []
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """With these a gateway exports here all that it does."""
        return {
            "QUEUEGATE_OTLP_ENABLED": "true",
            "QUEUEGATE_OTLP_ENDPOINT": self.url,
            "QUEUEGATE_OTLP_PROTOCOL": self.protocol,
            "QUEUEGATE_OTLP_SAMPLE_RATE": "1",
        }

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    def take(self, headers: dict[str, str], request: ExportTraceServiceRequest) -> bool:
        """Take a request and keep its spans; return False to refuse."""
        with self._changed:
            if self.is_refusing:
                self.refused += 1
            else:
                self.requests.append(headers)
                self._spans += _spans_of(request)
            self._changed.notify_all()
            return not self.is_refusing

    def until(self, wanted: Callable[[Self], bool]) -> None:
        """Wait until something is so."""
        with self._changed:
            names = [span.name for span in self._spans]
            assert self._changed.wait_for(lambda: wanted(self), PATIENCE_SECONDS), names

    @property
    def spans(self) -> list[Span]:
        """All that came until now."""
        with self._changed:
            return list(self._spans)

    def some(self, count: int = 1, **facts: Any) -> list[Span]:
        """So many spans with these facts, once they are there; attributes have __ for dots."""

        def found() -> list[Span]:
            return [span for span in self._spans if _has(span, facts)]

        self.until(lambda _: len(found()) >= count)
        with self._changed:
            spans = found()
        assert len(spans) == count, [span.name for span in spans]
        return spans

    def one(self, **facts: Any) -> Span:
        """The span with these facts, once it is there."""
        [span] = self.some(1, **facts)
        return span


class Collector(Received):
    """Takes protobuf over HTTP; on ``port``, or a free one."""

    protocol = "http/protobuf"

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                assert self.path == "/v1/traces"
                assert headers["content-type"] == "application/x-protobuf"
                if headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                is_taken = collector.take(headers, ExportTraceServiceRequest.FromString(body))
                self.send_response(200 if is_taken else 400)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not a word."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class GrpcCollector(Received):
    """Takes gRPC; on ``port``, or a free one."""

    protocol = "grpc"

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        collector = self

        class Service(TraceServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
                headers = dict(context.invocation_metadata())
                if not collector.take(headers, request):
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused with a 400")
                return ExportTraceServiceResponse()

        self._server = grpc.server(ThreadPoolExecutor(2))
        add_TraceServiceServicer_to_server(Service(), self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()


def _has(span: Span, facts: dict[str, Any]) -> bool:
    return all(
        span.attributes.get(name.replace("__", ".")) == value
        if "__" in name
        else getattr(span, name) == value
        for name, value in facts.items()
    )


def _spans_of(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        _read(span, _plain(resource.resource.attributes))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _read(span: trace_pb2.Span, resource: dict[str, Any]) -> Span:
    return Span(
        span.name,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.trace_state,
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        _plain(span.attributes),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        resource,
        span.end_time_unix_nano - span.start_time_unix_nano,
        span.SerializeToString(),
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in attributes}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
