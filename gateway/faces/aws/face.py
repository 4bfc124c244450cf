"""The AWS face: detect, decode, call, encode. One path for every service and both wires.

A face decides nothing: it finds out what is asked, hands it to an operation and writes the answer
or the refusal in the form of the wire.
"""

from __future__ import annotations

import logging
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from queuegate.gateway.faces.aws import refusals, rights
from queuegate.gateway.faces.callers import Callers
from queuegate.gateway.faces.face import Face
from queuegate.gateway.faces.requests import Asked, Headers, Request, Response, Scope
from queuegate.gateway.operations.access.authorization import (
    check_elsewhere,
    check_right,
    find_queue_at,
    find_queue_by_url,
    own_arn,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.background_tasks import run_in_steps
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import (
    aws_errors,
    constraints,
    json_wire,
    names,
    other_services,
    query_results,
    query_wire,
    rest_json_wire,
)
from queuegate.protocol.aws_errors import AwsError
from queuegate.protocol.detect import NOT_ON_QUEUE_PATH, SERVICES, Detected, detect, has_form
from queuegate.protocol.errors import Malformed
from queuegate.protocol.queue_urls import QueueAddress, queue_from_url, queue_url, url_of_path
from queuegate.protocol.scheduler_shapes import ROUTES, RULES, SCHEDULER
from queuegate.protocol.shapes import Action
from queuegate.storage.errors import (
    Kind,
    MalformedInput,
    Rejected,
    RequestTooLarge,
    Unavailable,
    UnknownAction,
)
from queuegate.storage.model import Queue
from queuegate.storage.schedule_errors import ScheduleInvalid

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.receives import Receiving

_log = logging.getLogger("queuegate.aws")

Members = dict[str, Any]

WITHOUT_CREDENTIALS = frozenset({"ConfirmSubscription", "Unsubscribe"})
"""SNS: what the links in messages to web hooks ask for."""

_WEB_IDENTITY = "sts", "AssumeRoleWithWebIdentity"
"""For whoever has the token of an identity provider."""

_MOST_BYTES = {
    "SendMessage": LIMITS.message_request_bytes,
    "SendMessageBatch": LIMITS.message_request_bytes,
    "Publish": LIMITS.message_request_bytes,
    "PublishBatch": LIMITS.message_request_bytes,
    "CreateSchedule": LIMITS.message_request_bytes,
    # A filter policy of 256 KB, which a form may encode with three bytes for one.
    "Subscribe": LIMITS.message_request_bytes,
    "SetSubscriptionAttributes": LIMITS.message_request_bytes,
    "UpdateSchedule": LIMITS.message_request_bytes,
}

_SENDS = {
    "SendMessage": "",
    "SendMessageBatch": "Entries",
    "Publish": "",
    "PublishBatch": "PublishBatchRequestEntries",
}
"""What counts for the rate of a key, and where a batch has its messages."""

_LONG = 65_536
_HUGE = 1_048_576
"""Bytes from which on a body is decoded in a thread: megabytes of base64 take long."""

_SCHEDULER_PATHS = rest_json_wire.router(ROUTES)

_WAITS = "ReceiveMessage"
_WAITS_IN_FORMS = _WAITS.encode()


class InvalidAddress(Rejected):
    """A QueueUrl that means no queue, on the Query wire (docs/contract/protocol.md 1.4)."""

    kind = Kind.ABSENT

    def __init__(self, url: str) -> None:
        super().__init__(f"The address {names.printable(url)} is not valid for this endpoint.")


@dataclass(slots=True)
class Call:
    """One decoded action: what bindings work with."""

    engine: Engine
    caller: Caller
    members: Members
    request: Request
    detected: Detected
    release: Callable[[], object] = field(default=tuple, init=False)
    """Ends what counts for messages that become an answer."""

    def hold(self, receiving: Receiving) -> None:
        """Let what was received count until the answer does."""
        self.release = receiving.taken()

    @property
    def right(self) -> str:
        """What the caller needs for it, as IAM calls it."""
        return rights.right_to(self.detected.service, self.detected.action or "")

    @property
    def is_query(self) -> bool:
        """Whether the Query wire asked: a few rules differ (docs/contract/sqs.md 2.5)."""
        return self.detected.wire == "query"

    async def queue(self) -> Queue:
        """The queue of this call: its QueueUrl if there is one, else the path's."""
        url = self.members.get("QueueUrl")
        if not url and self.detected.path_queue is None:
            return await self.find(None)
        if not url:
            # The request went to the URL: its host may be one that names a region.
            url = url_of_path(self.request.headers.get("host", ""), self.request.path)
        if self.is_query and queue_from_url(url) is None:
            raise InvalidAddress(url)
        return await find_queue_by_url(self.engine, self.caller, self.right, url)

    async def find(self, address: QueueAddress | None) -> Queue:
        """The queue of an address, in the caller's account and region unless it names others;
        QueueDoesNotExist."""
        return await find_queue_at(self.engine, self.caller, self.right, address)

    def queue_url(self, region: str, account_id: str, name: str) -> str:
        """The URL under which the caller reaches us and the queue."""
        rules = self.engine.rules
        return queue_url(
            self.request.base_url,
            region,
            QueueAddress(account_id, name),
            home_region=rules.region,
            region_in=rules.region_in_queue_urls,
        )


Binding = Callable[[Call], Awaitable[Members | None]]


def most_bytes(action: str | None) -> int:
    """The longest body of an action that makes sense; None: of any."""
    if action is None:
        return LIMITS.message_request_bytes
    return _MOST_BYTES.get(action, LIMITS.request_bytes)


class AwsFace(Face):
    """Answers every AWS request of this process."""

    def __init__(
        self,
        engine: Engine,
        callers: Callers,
        bindings: Mapping[str, Mapping[str, Binding]],
    ) -> None:
        self.engine = engine
        self.callers = callers
        self._bindings = bindings

    def most_bytes(self, request: Request) -> int:
        """How long a body may be, by the action in X-Amz-Target: elsewhere only the body tells."""
        target = request.headers.get("x-amz-target")
        return most_bytes(None if target is None else target.rpartition(".")[2])

    def claimed(self, request: Request) -> str | None:
        """Return the account of the credentials in the head; empty: links of SNS need none."""
        target = request.headers.get("x-amz-target", "").rpartition(".")[2]
        try:
            params = query_wire.parse_form(request.query)
        except Malformed:
            return ""
        if target in WITHOUT_CREDENTIALS or params.get("Action") in WITHOUT_CREDENTIALS:
            return ""
        return self.callers.claimed(request, params)

    def may_wait(self, request: Request) -> bool:
        """Whether the request may be a long poll."""
        target = request.headers.get("x-amz-target")
        if target is not None:
            return target.endswith(_WAITS)
        if _WAITS_IN_FORMS in request.query:
            return True
        # Nor is a long poll long: an action of another name need not be searched for it.
        return len(request.body) <= most_bytes(_WAITS) and _WAITS_IN_FORMS in request.body

    async def answer(self, request: Request) -> Response:
        """The response to any request: a result, a refusal, or a 500 without detail."""
        # Only the parameters of a form can be refused before it is known what is asked.
        detected = Detected("sqs", "query", None)
        try:
            form: bytes | Mapping[str, str] = request.body
            if len(request.body) > query_wire.LONG_FORM and has_form(
                request.method, request.headers, request.body
            ):
                form = await run_in_steps(query_wire.read_form(request.body))
            detected = detect(request.method, request.path, request.query, request.headers, form)
            _check_length(request, detected.action)
            if detected.wire == "rest":
                return await self._answer_rest(request, detected)
            if request.method not in ("GET", "POST"):
                # A link checker's HEAD must not end a subscription.
                raise UnknownAction(f"The method {request.method} is not valid for this endpoint.")
            if (
                detected.wire == "query"
                and detected.action is None
                and detected.path_queue
                and detected.service == "sqs"
            ):
                return _named_service(request, detected) or _no_action(request)
            return await self._answer(request, detected)
        except Malformed as error:
            return _refused(request, detected, MalformedInput(str(error)))
        except Rejected as refusal:
            return _refused(request, detected, refusal)
        except Unavailable as error:
            _log.log(error.log_level, "%s %s: %s", request.request_id, detected.action, error)
            return _error(request, detected, refusals.unavailable(detected.service), str(error))
        except Exception:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            _log.exception("%s %s failed", request.request_id, detected.action)
            text = "We encountered an internal error. Please try again."
            return _error(request, detected, refusals.internal(detected.service), text)

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """The refusal of a request whose body was not read to its end, in the form of the wire.

        Only the head tells what was asked.
        """
        is_json = "x-amz-target" in request.headers
        detected = Detected("sqs", "json" if is_json else "query", None)
        if "/scheduler/aws4_request" in request.headers.get("authorization", ""):
            detected = Detected("scheduler", "rest", None)
        if isinstance(refusal, Unavailable):
            kind = refusals.unavailable(detected.service)
            response = _error(request, detected, kind, str(refusal))
        elif isinstance(refusal, RequestTooLarge):
            response = _unread(request) or _too_large(request, detected, refusal)
        else:
            return refuse(request, detected, refusal)
        # What the client still sends is dropped: the connection cannot be used again.
        response.headers.append((b"connection", b"close"))
        return response

    async def _answer(self, request: Request, detected: Detected) -> Response:
        is_json = detected.wire == "json"
        request.asked = _asked(detected.service, detected.action)
        resource = f"{request.base_url}{request.path}"
        caller = self.callers.caller(
            request,
            detected.params,
            resource,
            may_be_anonymous=(detected.service == "sns" and detected.action in WITHOUT_CREDENTIALS)
            or (detected.service, detected.action) == _WEB_IDENTITY,
        )
        if self.engine.quotas.asks():
            await self.engine.quotas.admit(caller, len(request.body))
        service = SERVICES.get(detected.service)
        action = service.actions.get(detected.action or "") if service else None
        if service is None or action is None:
            raise _unknown_action(detected)
        if (
            not is_json
            and detected.path_queue
            and service.name == "sqs"
            and action.name in NOT_ON_QUEUE_PATH
        ):
            raise _unknown_action(detected)
        if is_json:
            await run_in_steps(json_wire.count_values(request.body))
            decode = partial(json_wire.decode, action.input, request.body, is_counted=True)
        else:
            decode = partial(query_wire.decode, action.input, detected.params)
        members = await to_thread(decode) if len(request.body) > _HUGE else decode()
        call = Call(self.engine, caller, members, request, detected)
        try:
            result = await self._done(call)
            if result and is_long(result.get("Messages", ())):
                return await self._answer_in_parts(request, detected, action, result)
        finally:
            call.release()
        if is_json:
            body = json_wire.encode(action.output, result or {})
            headers = json_headers(request.request_id, service.json_version or "1.0")
        elif detected.wants_json:
            body = query_results.encode_result_as_json(action, result or {}, request.request_id)
            headers = _headers(request.request_id, query_results.JSON_CONTENT_TYPE)
        else:
            body = query_results.encode_result(service, action, result or {}, request.request_id)
            headers = _headers(request.request_id, query_results.XML_CONTENT_TYPE)
        return Response(200, headers, body, action.name)

    async def _answer_in_parts(
        self, request: Request, detected: Detected, action: Action, result: Members
    ) -> Response:
        """The same of a long answer, with others having their turn."""
        service = SERVICES[detected.service]
        if detected.wire == "json":
            parts = await run_in_steps(json_wire.encode_in_steps(action.output, result))
            headers = json_headers(request.request_id, service.json_version or "1.0")
        elif detected.wants_json:
            steps = query_results.encode_as_json_in_steps(action, result, request.request_id)
            parts = await run_in_steps(steps)
            headers = _headers(request.request_id, query_results.JSON_CONTENT_TYPE)
        else:
            steps = query_results.encode_in_steps(service, action, result, request.request_id)
            parts = await run_in_steps(steps)
            headers = _headers(request.request_id, query_results.XML_CONTENT_TYPE)
        size, series, caller = sum(map(len, parts)), self.engine.series, request.caller
        headers.append((b"content-length", b"%d" % size))
        if series.on_answer is not None:
            series.on_answer(caller, size)
        held = series.traffic.held(parts, caller.account_id if caller else "")
        return Response(200, headers, held, action.name)

    async def _answer_rest(self, request: Request, detected: Detected) -> Response:
        """Answer on the rest-json wire, where method and path name the action."""
        found = rest_json_wire.find(_SCHEDULER_PATHS, request.method, request.raw_path)
        request.asked = _asked(
            detected.service, None if found.route is None else found.route.action
        )
        caller = self.callers.caller(
            request,
            detected.params or query_wire.parse_form(request.query),
            f"{request.base_url}{request.path}",
        )
        if self.engine.quotas.asks():
            await self.engine.quotas.admit(caller, len(request.body))
        if found.route is None:
            return _no_route(request, detected, found.methods)
        detected.action = found.route.action
        action = SCHEDULER.actions[found.route.action]
        _check_length(request, action.name)
        await run_in_steps(json_wire.count_values(request.body))
        members = rest_json_wire.decode(action, found, request.query, request.body, is_counted=True)
        breaches = constraints.refusal(action.input, members, RULES)
        if breaches is not None:
            raise ScheduleInvalid(breaches)
        result = await self._done(Call(self.engine, caller, members, request, detected))
        body = rest_json_wire.encode(action.output, result or {})
        headers = _headers(request.request_id, rest_json_wire.CONTENT_TYPE)
        return Response(200, headers, body, action.name)

    async def _done(self, call: Call) -> Members | None:
        """Carry out a decoded action, for whoever has the right to it."""
        service, action = call.detected.service, call.detected.action or ""
        call.request.asked = _asked(service, action, call)
        resource = rights.resource_of(service, action, call.members)
        # Whoever follows a link has its token for a right.
        if resource is not None and not call.caller.is_anonymous:
            is_arn = resource.startswith("arn:")
            arn = resource if is_arn else own_arn(call.caller, call.right, resource or "*")
            check = check_elsewhere if action in rights.BY_TOKEN else check_right
            check(self.engine, call.caller, call.right, arn)
        if call.caller.producer is not None and action in _SENDS:
            entries = call.members.get(_SENDS[action]) or (None,)
            await self.engine.rates.take(call.caller, len(entries))
        return await self._bindings[service][action](call)


def is_long(messages: Sequence[Members]) -> bool:
    """Return True if the received messages are so long that encoding them delays others."""
    sizes = [len(one["Body"]) for one in messages if "MessageAttributes" not in one]
    return len(sizes) < len(messages) or sum(sizes) > _LONG


def _asked(service: str, action: str | None, call: Call | None = None) -> Asked:
    action = action or ""
    return Asked(f"{service}:{action}", rights.right_to(service, action), call)


def is_link_of_sns(scope: Scope) -> bool:
    """Whether somebody follows a link in a message of SNS: the token in it is the authority."""
    if scope["raw_path"] != b"/" or scope["method"] != "GET" or not scope["query_string"]:
        return False
    try:
        return query_wire.parse_form(scope["query_string"]).get("Action") in WITHOUT_CREDENTIALS
    except Malformed:
        return False


def _check_length(request: Request, action: str | None) -> None:
    most = most_bytes(action)
    if len(request.body) > most:
        raise RequestTooLarge(
            f"The request body is larger than the {most} bytes that this endpoint takes."
        )


def _refused(request: Request, detected: Detected, refusal: Rejected) -> Response:
    if isinstance(refusal, UnknownAction | MalformedInput | RequestTooLarge):
        named = _named_service(request, detected)
        if named is not None:
            return named
    if isinstance(refusal, RequestTooLarge):
        return _too_large(request, detected, refusal)
    return refuse(request, detected, refusal)


def _too_large(request: Request, detected: Detected, refusal: RequestTooLarge) -> Response:
    response = refuse(request, detected, refusal)
    response.status = 413
    return response


def _no_route(request: Request, detected: Detected, methods: tuple[str, ...]) -> Response:
    """404, or 405 where the path has other methods."""
    text = f"There is no operation {request.method} {request.path}."
    named = _named_service(request, detected)
    if named is not None:
        return named
    response = refuse(request, detected, UnknownAction(text))
    if methods:
        response.status = 405
        response.headers.append((b"allow", ", ".join(methods).encode()))
    return response


def _unknown_action(detected: Detected) -> UnknownAction:
    name = detected.action
    if name is None:
        where = "X-Amz-Target" if detected.wire == "json" else "the parameter Action"
        return UnknownAction(f"The request names no action in {where}.")
    return UnknownAction(f"The action {name} is not valid for this endpoint.")


def _headers(request_id: str, content_type: str) -> Headers:
    return [
        (b"x-amzn-requestid", request_id.encode()),
        (b"content-type", content_type.encode()),
    ]


def json_headers(request_id: str, version: str = "1.0") -> Headers:
    """The headers of every success on the JSON wire."""
    return _headers(request_id, f"application/x-amz-json-{version}")


def _no_action(request: Request) -> Response:
    """AWS's answer to a queue's URL without an action: not in any envelope (protocol.md 1.3)."""
    return Response(
        aws_errors.NO_ACTION_STATUS,
        _headers(request.request_id, query_results.XML_CONTENT_TYPE),
        aws_errors.NO_ACTION_BODY,
    )


def _named_service(request: Request, detected: Detected) -> Response | None:
    """What whoever wanted another service of AWS is told; None: no action of ours was asked for
    that way. Only refusals become this: a scope of some other name is no reason to refuse."""
    service = SERVICES.get(detected.service)
    if service is not None and detected.action in service.actions:
        return None
    name = other_services.signed_for(request.headers, request.query)
    return None if name is None else wrong_service(request, name)


def _unread(request: Request) -> Response | None:
    """The same of a request whose body is too long to be read; None: it may be a form, and its
    action one of ours."""
    if request.method == "POST" and has_form("POST", request.headers, b"?"):
        return None
    asked = detect(request.method, request.path, b"", request.headers, b"")
    return _named_service(request, asked)


def wrong_service(request: Request, name: str) -> Response:
    """The refusal of a request that is signed for a service that is none of ours."""
    status, headers, body = other_services.refusal(
        name, request.headers, request.query, request.request_id
    )
    return Response(status, [(b"x-amzn-requestid", request.request_id.encode()), *headers], body)


def refuse(request: Request, detected: Detected, refusal: Rejected) -> Response:
    """A refusal in the form of the wire that asked."""
    service = detected.service
    request.refusal = refusal
    text = refusals.text_of(refusal, is_query=detected.wire == "query", service=service)
    response = _error(request, detected, refusals.aws_error(detected.service, refusal), text)
    if refusal.retry_after_seconds is not None:
        response.headers.append((b"retry-after", str(refusal.retry_after_seconds).encode()))
    return response


def _error(request: Request, detected: Detected, error: AwsError, text: str) -> Response:
    action = detected.action or ""
    service = SERVICES.get(detected.service)
    if detected.wire != "query":
        form = aws_errors.rest_error if detected.wire == "rest" else aws_errors.json_error
        status, headers, body = form(error, text)
        headers = [(b"x-amzn-requestid", request.request_id.encode()), *headers]
    else:
        status = error.status
        texts = (error.query_code, text, error.fault, request.request_id)
        if detected.wants_json:
            content_type = query_results.JSON_CONTENT_TYPE
            body = query_results.encode_error_as_json(*texts)
        else:
            content_type = query_results.XML_CONTENT_TYPE
            body = query_results.encode_error(service or SERVICES["sqs"], *texts)
        headers = _headers(request.request_id, content_type)
    if status == 503:
        headers.append((b"retry-after", b"1"))
    known = service is not None and action in service.actions
    return Response(status, headers, body, action if known else "")
