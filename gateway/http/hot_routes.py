"""Actions of the fast path: their routes, their queue or topic, and their exchanges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.gateway.faces.aws import aws_refusals
from queuegate.gateway.faces.aws.aws_face import (
    HotAction,
    Members,
    most_bytes,
    published_topic,
    right_to,
)
from queuegate.gateway.faces.aws.sns import sns_publishing as aws_sns_messages
from queuegate.gateway.faces.aws.sqs import sqs_messages as aws_sqs_messages
from queuegate.gateway.faces.request_facts import code_of, facts, log_unavailable
from queuegate.gateway.operations.access.authorization import known_audience, known_queue
from queuegate.gateway.operations.access.caller import Caller, RequestOrigin
from queuegate.gateway.operations.queues.receives import Receiving, is_short
from queuegate.gateway.operations.runtime.background_tasks import run_in_steps, spawn
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.runtime.replies import Client
from queuegate.gateway.operations.telemetry.series import HTTP_SECONDS, Histogram, Series
from queuegate.gateway.operations.topics.fan_out import Publisher
from queuegate.protocol import aws_errors, json_wire, query_wire
from queuegate.protocol.aws_errors import AwsError
from queuegate.protocol.shapes import Action, ServiceModel
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from queuegate.protocol.urls import url_of_path
from queuegate.storage.storage_errors import Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.http.connection_limits import LimitedConnection
    from queuegate.gateway.tracing.spans import RequestSpan


Headers = Mapping[bytes, bytes]
_log = logging.getLogger("queuegate.aws")

_POST_TO_ROOT = b"POST / "


class HotRequest(NamedTuple):
    """A request with a known head and caller. Header values are bytes."""

    engine: Engine
    caller: Caller
    route: Route
    headers: Headers
    data: bytes
    """The complete request."""
    links_url: str | None
    """Base of links in messages; None: the URL that the request was sent to."""
    connection: LimitedConnection

    def origin(self) -> RequestOrigin:
        """Return the origin of the request, computed on demand."""
        return self.connection.origin(self.headers.items())


Find = Callable[[HotRequest, Members], Any]
"""Returns the context of a pair, from caches alone; None: leave the request to the face."""


class WireFormat(NamedTuple):
    """The wire format of a service: JSON, or forms and XML."""

    service: ServiceModel
    is_query: bool
    content_type: bytes
    decode: Callable[[Action, Any], Members]
    """Decodes the body of a request, or the parameters of a form."""
    encode: Callable[[Action, Members, str], bytes]
    encode_in_steps: Callable[[Action, Members, str], Generator[None, None, list[bytes]]]
    """Encodes long received messages, in parts."""
    refuse: Callable[[AwsError, str, str], tuple[int, list[tuple[bytes, bytes]], bytes]]
    """Returns status, headers except the request id, and body, from error, text and request id."""


class Route:
    """A hot action on one wire."""

    __slots__ = (
        "action",
        "count_key",
        "find",
        "most_bytes",
        "name",
        "pair",
        "right",
        "seconds",
        "service",
        "wire",
    )

    def __init__(
        self, wire: WireFormat, name: str, pair: HotAction[Any, Any], find: Find, seconds: Histogram
    ) -> None:
        self.wire = wire
        self.service = wire.service.name
        self.name = name
        self.action = wire.service.actions[name]
        self.pair = pair
        self.find = find
        self.right = right_to(self.service, name)
        self.count_key = ("POST", "/", name, 200)
        self.most_bytes = most_bytes(name)
        self.seconds = seconds

    def count(self, series: Series, started: float) -> None:
        """Count a success that started at the ``perf_counter()`` value ``started``."""
        series.requests[self.count_key] = series.requests.get(self.count_key, 0) + 1
        self.seconds.observe(perf_counter() - started)


def _json(service: ServiceModel) -> WireFormat:
    return WireFormat(
        service,
        False,
        b"application/x-amz-json-1.0",
        lambda action, body: json_wire.decode(action.input, body),
        lambda action, members, _: json_wire.encode(action.output, members),
        lambda action, members, _: json_wire.encode_in_steps(action.output, members),
        lambda error, text, _: aws_errors.json_error(error, text),
    )


def _query(service: ServiceModel) -> WireFormat:
    content_type = query_wire.XML_CONTENT_TYPE.encode()

    def refuse(
        error: AwsError, text: str, request_id: str
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        body = query_wire.encode_error(service, error.query_code, text, error.fault, request_id)
        return error.status, [(b"content-type", content_type)], body

    return WireFormat(
        service,
        True,
        content_type,
        lambda action, params: query_wire.decode(action.input, params),
        lambda action, members, request_id: query_wire.encode_result(
            service, action, members, request_id
        ),
        lambda action, members, request_id: query_wire.encode_in_steps(
            service, action, members, request_id
        ),
        refuse,
    )


def _find_queue(asked: HotRequest, members: Members) -> aws_sqs_messages.QueueContext | None:
    caller, route, headers = asked.caller, asked.route, asked.headers
    url = members.get("QueueUrl") or ""
    if not url and not asked.data.startswith(_POST_TO_ROOT):
        path = asked.data.split(b" ", 2)[1].decode("ascii")
        url = url_of_path(headers[b"host"].decode("latin-1"), path)
    queue = known_queue(asked.engine, caller, route.right, url)
    if queue is None:
        return None
    trace = headers.get(b"x-amzn-trace-id")
    return aws_sqs_messages.QueueContext(
        asked.engine, caller, queue, trace.decode("latin-1") if trace else None, route.wire.is_query
    )


def _find_topic(asked: HotRequest, members: Members) -> aws_sns_messages.TopicContext | None:
    arn = published_topic(members) or ""
    audience = known_audience(asked.engine, asked.caller, asked.route.right, arn)
    if audience is None or audience.topic.region != asked.caller.region:
        return None
    headers = asked.headers
    base_url = asked.links_url
    if base_url is None:
        origin = asked.origin()
        base_url = f"{origin.scheme}://{origin.host or headers[b'host'].decode('latin-1')}"
    trace = headers.get(b"x-amzn-trace-id")
    publisher = Publisher(asked.caller, base_url, trace.decode("latin-1") if trace else None)
    return aws_sns_messages.TopicContext(asked.engine, publisher, audience)


def routes_by_target(seconds: dict[str, Histogram]) -> dict[bytes, Route]:
    """Return routes by X-Amz-Target, for the JSON wires."""
    return {
        f"{route.wire.service.target_prefix}.{name}".encode(): route
        for name, route in _routes(_json, seconds)
    }


def routes_by_action(seconds: dict[str, Histogram]) -> dict[bytes, Route]:
    """Return routes by Action, for forms: the wire of SNS in AWS SDKs, and of SQS in old SDKs."""
    return {name.encode(): route for name, route in _routes(_query, seconds)}


def _routes(
    wire_of: Callable[[ServiceModel], WireFormat], seconds: dict[str, Histogram]
) -> Iterator[tuple[str, Route]]:
    tables: tuple[tuple[ServiceModel, Mapping[str, HotAction[Any, Any]], Find], ...] = (
        (SQS, aws_sqs_messages.HOT, _find_queue),
        (SNS, aws_sns_messages.HOT, _find_topic),
    )
    for service, pairs, find in tables:
        wire = wire_of(service)
        for name, pair in pairs.items():
            histogram = seconds.setdefault(name, Histogram(HTTP_SECONDS))
            yield name, Route(wire, name, pair, find, histogram)


def caller_of(exchange: Any) -> Caller | None:
    """Return the caller of a request in flight; None: unknown."""
    where = getattr(exchange, "request", None) or getattr(exchange, "context", None)
    caller: Caller | None = getattr(where, "caller", None)
    return caller


def refusal(
    route: Route, error: BaseException, request_id: str
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return status, headers and body of an error. Errors other than refusals become 500."""
    shape, text = aws_refusals.what_to_say(route.service, error, is_query=route.wire.is_query)
    status, headers, content = route.wire.refuse(shape, text, request_id)
    seconds = error.retry_after_seconds if isinstance(error, Rejected) else None
    if seconds is None and status == 503:
        seconds = 1
    if seconds is not None:
        headers.append((b"retry-after", b"%d" % seconds))
    return status, headers, content


class Exchange:
    """A request on the fast path, from its decoding to its answer."""

    __slots__ = (
        "context",
        "error",
        "headers",
        "members",
        "protocol",
        "receiving",
        "request_id",
        "route",
        "span",
        "started",
    )

    def __init__(
        self, protocol: Any, route: Route, context: Any, members: Members, started: float
    ) -> None:
        self.protocol = protocol
        self.route = route
        self.context = context
        self.members = members
        self.started = started
        self.request_id = new_id()
        self.receiving: Receiving | None = None
        self.headers: dict[bytes, bytes] = {}
        self.span: RequestSpan | None = None

    error: str
    """The code of a refusal that is logged; otherwise absent."""

    def facts(self) -> dict[str, object]:
        """Return the facts of the request for log lines."""
        context = self.context
        name, account_id = context.arn.rpartition(":")[2], context.caller.account_id
        known = facts(self.request_id, account_id, name, "aws", self.route.name)
        return known | {"error": getattr(self, "error", "")}

    def start(self) -> None:
        """Run the operation. Refusals that need no database are answered at once."""
        try:
            self.receiving = self.route.pair.start(self.context, self.members, self)
        except Exception as error:  # noqa: BLE001 - the outermost handler of this path
            self.failed(error)

    def client(self) -> Client:
        """Return the client, for the list of waiting receivers."""
        return self.context.caller, self.protocol.origin(self.headers.items())

    def done(self, result: object) -> None:
        """Write the answer."""
        route = self.route
        if self.receiving is not None:
            if self.span is not None:
                self.span.note_received(result)  # type: ignore[arg-type]
            if not is_short(result):  # type: ignore[arg-type]
                spawn(answer_in_parts(self, result, self.receiving.taken()))
                return
        try:
            members = route.pair.finish(self.context, self.members, result)
            body = route.wire.encode(route.action, members or {}, self.request_id)
        except Exception as error:  # noqa: BLE001 - the outermost handler of this path
            self.failed(error)
            return
        if self.span is not None:
            self.span.note_result(members)
        series = self.context.engine.series
        if series.on_answer is not None:
            series.on_answer(caller_of(self), len(body))
        route.count(series, self.started)
        self.protocol.fast_answer(self, body)

    def failed(self, error: BaseException) -> None:
        """Write a refusal or a server error."""
        if self.protocol.shared.access_log or not isinstance(error, Rejected):
            self.error = code_of(self.route.service, error)
        if self.span is not None:
            self.span.note_error(error)
        if isinstance(error, Unavailable):
            said = self.request_id, self.route.name
            log_unavailable(_log, self.context.engine, error, said, self.facts)
        elif not isinstance(error, Rejected):
            asked = self.request_id, self.route.name
            _log.error("%s %s failed", *asked, exc_info=error, extra=self.facts())
        status, headers, body = refusal(self.route, error, self.request_id)
        self.context.engine.series.answered("POST", "/", self.route.name, status, self.started)
        auditor = self.protocol.shared.auditor
        if auditor is not None:
            auditor.refused_at_once(self, error, status)
        self.protocol.fast_refusal(self, status, headers, body)


async def answer_in_parts(exchange: Exchange, received: Any, release: Callable[[], None]) -> None:
    """Send the answer as fast as the client reads. Release messages if it disconnects before.

    ``release`` ends the traffic count of ``received``; then the parts count.
    """
    route, receiving = exchange.route, exchange.receiving
    assert receiving is not None
    finish = route.pair.finish_in_steps
    assert finish is not None
    try:
        members = await run_in_steps(finish(exchange.context, exchange.members, received))
        parts = await run_in_steps(
            route.wire.encode_in_steps(route.action, members, exchange.request_id)
        )
    except Exception as error:  # noqa: BLE001 - the outermost handler of this path
        receiving.give_back(received)
        exchange.failed(error)
        return
    finally:
        release()
    protocol = exchange.protocol
    if not protocol.is_answering(exchange):
        receiving.give_back(received)
        return
    # From here on, a client that only ends its stream keeps its messages.
    exchange.receiving = None
    caller, series = exchange.context.caller, exchange.context.engine.series
    size = sum(map(len, parts))
    if exchange.span is not None:
        exchange.span.note_result(members)
    if series.on_answer is not None:
        series.on_answer(caller, size)
    route.count(series, exchange.started)
    protocol.fast_answer(exchange, b"", size)
    async for part in protocol.traffic.held(parts, caller.account_id):
        await protocol.flow.drain()
        if not protocol.is_answering(exchange):
            return
        protocol.transport.write(part)
    protocol.answered(exchange, 200)
