"""The AWS face: detect the action, decode it, call its binding and encode the answer.

All services and wires share one path. A face decides nothing: an operation does the work, and the
face writes the result or the refusal in the form of the wire. The last part names the right that
each action needs, and its resource. Operations check rights to existing queues and topics when they
find them (``authorization``). The face checks all other rights before an action starts.
"""

from __future__ import annotations

import logging
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from queuegate.gateway.faces.aws import aws_refusals
from queuegate.gateway.faces.interface import (
    CallerAuthenticator,
    Face,
    Headers,
    Request,
    RequestedOperation,
    Response,
)
from queuegate.gateway.faces.request_facts import facts_of, log_unavailable
from queuegate.gateway.operations.access.authorization import (
    check_elsewhere,
    check_right,
    find_queue_at,
    find_queue_by_url,
    own_arn,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.gateway.operations.runtime.background_tasks import run_in_steps
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import Reply
from queuegate.protocol import (
    aws_errors,
    json_wire,
    names,
    query_wire,
    rest_json_wire,
    service_detection,
    shapes,
)
from queuegate.protocol.aws_errors import AwsError
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.scheduler_shapes import ROUTES, RULES, SCHEDULER
from queuegate.protocol.service_detection import (
    NOT_ON_QUEUE_PATH,
    SERVICES,
    Detected,
    detect,
    has_form,
)
from queuegate.protocol.shapes import Action
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from queuegate.protocol.urls import QueueAddress, queue_from_url, queue_url, url_of_path
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    Kind,
    MalformedInput,
    Rejected,
    RequestTooLarge,
    ScheduleInvalid,
    Unavailable,
    UnknownAction,
)

_log = logging.getLogger("queuegate.aws")

Members = dict[str, Any]

WITHOUT_CREDENTIALS = frozenset({"ConfirmSubscription", "Unsubscribe"})
"""SNS actions behind the links in messages to web hooks."""

_WEB_IDENTITY = "sts", "AssumeRoleWithWebIdentity"
"""For callers with a token of an identity provider."""

_SENDS = {
    "SendMessage": "",
    "SendMessageBatch": "Entries",
    "Publish": "",
    "PublishBatch": "PublishBatchRequestEntries",
}
"""Actions that count towards the rate of a key, with the member that holds the messages of a
batch."""
_LONG_BODIES: set[str | None] = {None, *_SENDS, "CreateSchedule", "UpdateSchedule"}
# A filter policy of 256 KB, which a form may encode with three bytes for one.
_LONG_BODIES |= {"Subscribe", "SetSubscriptionAttributes"}

_LONG = 65_536
_HUGE = 1_048_576
"""Bodies of at least this many bytes are decoded in a thread: megabytes of base64 take long."""

_SCHEDULER_PATHS = rest_json_wire.router(ROUTES)

_WAITS = "ReceiveMessage"
_WAITS_IN_FORMS = _WAITS.encode()


class InvalidAddress(Rejected):
    """A QueueUrl on the Query wire that names no queue (docs/contract/protocol.md 1.4)."""

    kind = Kind.ABSENT

    def __init__(self, url: str) -> None:
        super().__init__(f"The address {names.printable(url)} is not valid for this endpoint.")


@dataclass(slots=True)
class AwsCall:
    """A decoded action, the argument of its binding."""

    engine: Engine
    caller: Caller
    members: Members
    request: Request
    detected: Detected
    release: Callable[[], object] = field(default=tuple, init=False)
    """Stops counting the bytes of messages that become an answer."""

    def count_received(self, receiving: Receiving) -> None:
        """Count the bytes of received messages until the answer counts."""
        self.release = receiving.taken()

    def required(self, name: str, *, may_be_empty: bool = True) -> Any:
        """Return a member that the service requires, although its model does not say so."""
        value = self.members.get(name)
        if value is None or not (value or may_be_empty):
            raise aws_refusals.missing(self.detected.service, name)
        return value

    @property
    def right(self) -> str:
        """Return the right that the caller needs, under its name in IAM."""
        return right_to(self.detected.service, self.detected.action or "")

    @property
    def is_query(self) -> bool:
        """Return True on the Query wire, where a few rules differ (docs/contract/sqs.md 2.5)."""
        return self.detected.wire == "query"

    async def queue(self) -> Queue:
        """Find the queue of this call: that of its QueueUrl, otherwise that of its path."""
        url = self.members.get("QueueUrl")
        if not url and self.detected.path_queue is None:
            return await self.find(None)
        if not url:
            # The host of the request may name a region.
            url = url_of_path(self.request.headers.get("host", ""), self.request.path)
        if self.is_query and queue_from_url(url) is None:
            raise InvalidAddress(url)
        return await find_queue_by_url(self.engine, self.caller, self.right, url)

    async def find(self, address: QueueAddress | None) -> Queue:
        """Find the queue of an address. The caller's account and region are the defaults. Raises
        QueueDoesNotExist."""
        return await find_queue_at(self.engine, self.caller, self.right, address)

    def queue_url(self, region: str, account_id: str, name: str) -> str:
        """Return the URL of a queue behind the host that the caller used."""
        rules = self.engine.rules
        return queue_url(
            self.request.base_url,
            region,
            QueueAddress(account_id, name),
            home_region=rules.region,
            region_in=rules.region_in_queue_urls,
        )


Binding = Callable[[AwsCall], Awaitable[Members | None]]


def most_bytes(action: str | None) -> int:
    """Return the maximum length of an action's body; None: the maximum of all actions."""
    return LIMITS.message_request_bytes if action in _LONG_BODIES else LIMITS.request_bytes


class AwsFace(Face):
    """The face for every AWS request of this process."""

    def __init__(
        self,
        engine: Engine,
        callers: CallerAuthenticator,
        bindings: Mapping[str, Mapping[str, Binding]],
    ) -> None:
        self.engine = engine
        self.callers = callers
        self._bindings = bindings

    def most_bytes(self, request: Request) -> int:
        """Return the maximum length of a body. Only X-Amz-Target names the action before the body
        is read."""
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
        """Return True if the request may be a long poll."""
        target = request.headers.get("x-amz-target")
        if target is not None:
            return target.endswith(_WAITS)
        if _WAITS_IN_FORMS in request.query:
            return True
        # Requests for long polls are short, so longer bodies need no search.
        return len(request.body) <= most_bytes(_WAITS) and _WAITS_IN_FORMS in request.body

    async def answer(self, request: Request) -> Response:
        """Answer any request with a result, a refusal, or a 500 without detail."""
        # Used for refusals before detection: only parameters of a form are refused so early.
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
            request.refusal = error
            said = request.request_id, detected.action
            log_unavailable(_log, self.engine, error, said, partial(facts_of, request))
            return _error(request, detected, *aws_refusals.what_to_say(detected.service, error))
        except Exception as error:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            request.refusal = error
            asked = request.request_id, detected.action
            _log.exception("%s %s failed", *asked, extra=facts_of(request))
            return _error(request, detected, *aws_refusals.what_to_say(detected.service, error))

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """Refuse a request whose body was not read to its end, in the form of its wire. Only the
        head can name the action."""
        is_json = "x-amz-target" in request.headers
        detected = Detected("sqs", "json" if is_json else "query", None)
        if "/scheduler/aws4_request" in request.headers.get("authorization", ""):
            detected = Detected("scheduler", "rest", None)
        if isinstance(refusal, Unavailable):
            words = aws_refusals.what_to_say(detected.service, refusal)
            return _error(request, detected, *words)
        if isinstance(refusal, RequestTooLarge):
            return _unread(request) or _too_large(request, detected, refusal)
        return refuse(request, detected, refusal)

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
            content_type = "application/x-amz-json-1.0"
            await run_in_steps(json_wire.count_values(request.body))
            decode = partial(json_wire.decode, action.input, request.body, is_counted=True)
        else:
            as_json = detected.wants_json
            content_type = query_wire.JSON_CONTENT_TYPE if as_json else query_wire.XML_CONTENT_TYPE
            decode = partial(query_wire.decode, action.input, detected.params)
        members = await to_thread(decode) if len(request.body) > _HUGE else decode()
        call = AwsCall(self.engine, caller, members, request, detected)
        headers = _headers(request.request_id, content_type)
        try:
            result = await self._done(call)
            if result and is_long(result.get("Messages", ())):
                return await self._answer_in_parts(request, detected, action, result, headers)
        finally:
            call.release()
        if is_json:
            body = json_wire.encode(action.output, result or {})
        elif detected.wants_json:
            body = query_wire.encode_result_as_json(action, result or {}, request.request_id)
        else:
            body = query_wire.encode_result(service, action, result or {}, request.request_id)
        return Response(200, headers, body, action.name)

    async def _answer_in_parts(
        self,
        request: Request,
        detected: Detected,
        action: Action,
        result: Members,
        headers: Headers,
    ) -> Response:
        """Encode a long answer in steps, and yield to the event loop between them."""
        if detected.wire == "json":
            steps = json_wire.encode_in_steps(action.output, result)
        elif detected.wants_json:
            steps = query_wire.encode_as_json_in_steps(action, result, request.request_id)
        else:
            service = SERVICES[detected.service]
            steps = query_wire.encode_in_steps(service, action, result, request.request_id)
        parts = await run_in_steps(steps)
        size, series, caller = sum(map(len, parts)), self.engine.series, request.caller
        headers.append((b"content-length", b"%d" % size))
        if series.on_answer is not None:
            series.on_answer(caller, size)
        held = series.traffic.held(parts, caller.account_id if caller else "")
        # The share of the receive ends before the connection asks for a part: count the answer now.
        await anext(held)
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
        breaches = shapes.constraint_errors(action.input, members, RULES)
        if breaches is not None:
            raise ScheduleInvalid(breaches)
        result = await self._done(AwsCall(self.engine, caller, members, request, detected))
        body = rest_json_wire.encode(action.output, result or {})
        headers = _headers(request.request_id, rest_json_wire.CONTENT_TYPE)
        return Response(200, headers, body, action.name)

    async def _done(self, call: AwsCall) -> Members | None:
        """Carry out a decoded action if the caller has the right to it."""
        service, action = call.detected.service, call.detected.action or ""
        call.request.asked = _asked(service, action, call)
        resource = resource_of(service, action, call.members)
        # The token of a link is the right to follow it.
        if resource is not None and not call.caller.is_anonymous:
            is_arn = resource.startswith("arn:")
            arn = resource if is_arn else own_arn(call.caller, call.right, resource or "*")
            check = check_elsewhere if action in WITHOUT_CREDENTIALS else check_right
            check(self.engine, call.caller, call.right, arn)
        if call.caller.producer is not None and action in _SENDS:
            entries = call.members.get(_SENDS[action]) or (None,)
            await self.engine.rates.take(call.caller, len(entries))
        if self.engine.faults is not None:
            from queuegate.gateway.faces.injected_faults import meet

            await meet(self.engine, call.request, "aws", f"{service}:{action}", call)
        result = await self._bindings[service][action](call)
        if call.request.span is not None:
            call.request.span.note_result(result)
        return result


def is_long(messages: Sequence[Members]) -> bool:
    """Return True if the received messages are so long that encoding them delays others."""
    sizes = [len(one["Body"]) for one in messages if "MessageAttributes" not in one]
    return len(sizes) < len(messages) or sum(sizes) > _LONG


def _asked(service: str, action: str | None, call: AwsCall | None = None) -> RequestedOperation:
    action = action or ""
    return RequestedOperation(f"{service}:{action}", right_to(service, action), call)


def is_link_of_sns(request: Request) -> bool:
    """Return True if the request follows a link in a message of SNS, whose token is the
    authority."""
    if request.raw_path != "/" or request.method != "GET" or not request.query:
        return False
    try:
        return query_wire.parse_form(request.query).get("Action") in WITHOUT_CREDENTIALS
    except Malformed:
        return False


def _check_length(request: Request, action: str | None) -> None:
    most = most_bytes(action)
    if len(request.body) > most:
        raise RequestTooLarge(most)


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
    """Return 404, or 405 if the path has other methods."""
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
    return [(b"x-amzn-requestid", request_id.encode()), (b"content-type", content_type.encode())]


def _no_action(request: Request) -> Response:
    """Answer a request to a queue's URL that names no action. AWS uses no envelope (protocol.md
    1.3)."""
    return Response(
        aws_errors.NO_ACTION_STATUS,
        _headers(request.request_id, query_wire.XML_CONTENT_TYPE),
        aws_errors.NO_ACTION_BODY,
    )


def _named_service(request: Request, detected: Detected) -> Response | None:
    """Refuse a request for another AWS service; None: it names no other service.

    Only requests without an action of ours get this refusal. A signature scope alone is no reason
    to refuse.
    """
    service = SERVICES.get(detected.service)
    if service is not None and detected.action in service.actions:
        return None
    name = service_detection.signed_for(request.headers, request.query)
    return None if name is None else wrong_service(request, name)


def _unread(request: Request) -> Response | None:
    """Do the same for a body that is too long to read; None: the body may be a form with an action
    of ours."""
    if request.method == "POST" and has_form("POST", request.headers, b"?"):
        return None
    asked = detect(request.method, request.path, b"", request.headers, b"")
    return _named_service(request, asked)


def wrong_service(request: Request, name: str) -> Response:
    """Refuse a request that is signed for a service that Queuegate does not have."""
    status, headers, body = service_detection.refusal(
        name, request.headers, request.query, request.request_id
    )
    return Response(status, [(b"x-amzn-requestid", request.request_id.encode()), *headers], body)


def refuse(request: Request, detected: Detected, refusal: Rejected) -> Response:
    """Write a refusal in the form of the request's wire."""
    request.refusal = refusal
    is_query = detected.wire == "query"
    words = aws_refusals.what_to_say(detected.service, refusal, is_query=is_query)
    response = _error(request, detected, *words)
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
            content_type = query_wire.JSON_CONTENT_TYPE
            body = query_wire.encode_error_as_json(*texts)
        else:
            content_type = query_wire.XML_CONTENT_TYPE
            body = query_wire.encode_error(service or SERVICES["sqs"], *texts)
        headers = _headers(request.request_id, content_type)
    if status == 503:
        headers.append((b"retry-after", b"1"))
    known = service is not None and action in service.actions
    return Response(status, headers, body, action if known else "")


C = TypeVar("C")
R = TypeVar("R")


class HotAction(NamedTuple, Generic[C, R]):
    """A hot action in two halves, shared by the ordinary path and the fast path.

    ``start(context, members, reply)`` hands the work to a lane, and may return a receive that can
    be cancelled. ``finish(context, members, result)`` makes the response members or refuses.
    ``finish_in_steps`` does the same for a result that may be long.
    """

    start: Callable[[C, Members, Reply[R]], Receiving | None]
    finish: Callable[[C, Members, R], Members | None]
    finish_in_steps: Callable[[C, Members, R], Generator[None, None, Members]] | None = None


_OF_QUEUES = {name for name, action in SQS.actions.items() if "QueueUrl" in action.input.members}
_FOUND: Mapping[str, set[str]] = {
    "sqs": _OF_QUEUES
    | {"CancelMessageMoveTask", "GetQueueUrl", "ListMessageMoveTasks", "StartMessageMoveTask"},
    "sns": {
        name
        for name, action in SNS.actions.items()
        if not {"TopicArn", "ResourceArn"}.isdisjoint(action.input.members)
    }
    - {"ConfirmSubscription", "Publish"},
    "sts": {"AssumeRoleWithWebIdentity", "GetCallerIdentity", "GetSessionToken"},
}
"""Actions that find a queue or a topic, and actions that need no right."""
_ARNS = (
    "TopicArn",
    "TargetArn",
    "ResourceArn",
    "SubscriptionArn",
    "PlatformApplicationArn",
    "EndpointArn",
    "SourceArn",
    "RoleArn",
)
_BATCH = "Batch"
_NEW = {"CreateQueue": "QueueName", "CreateTopic": "Name"}
"""The member with the name of a resource to create."""
_GROUPED = {"CreateSchedule", "DeleteSchedule", "GetSchedule", "UpdateSchedule"}
_GROUPS = {"CreateScheduleGroup", "DeleteScheduleGroup", "GetScheduleGroup"}


def right_to(service: str, action: str) -> str:
    """Return the right to an action. A batch needs the right to its entries."""
    return f"{service}:{action.removesuffix(_BATCH)}"


def resource_of(service: str, action: str, members: Mapping[str, Any]) -> str | None:
    """Return the ARN that an action is about, or the part of it behind the account.

    Empty: the action is about the whole account. None: the operation checks the right when it finds
    the resource.
    """
    if action in _FOUND.get(service, ()) or (
        (service, action) == ("sns", "Publish") and published_topic(members)
    ):
        return None
    named = _named(action, members)
    if named:
        return named
    arn: str = next((members[name] for name in _ARNS if members.get(name)), "")
    # The right to a subscription is one to its topic, as in IAM.
    return arn.rpartition(":")[0] if arn and arn == members.get("SubscriptionArn") else arn


def _named(action: str, members: Mapping[str, Any]) -> str:
    if action in _NEW:
        name: str = members.get(_NEW[action]) or ""
        return name
    if action in _GROUPED:
        return f"schedule/{members.get('GroupName') or 'default'}/{members.get('Name')}"
    return f"schedule-group/{members.get('Name')}" if action in _GROUPS else ""


def published_topic(members: Mapping[str, Any]) -> str | None:
    """Return the topic of a Publish request; None: it goes elsewhere. TargetArn may name a topic,
    too."""
    if members.get("PhoneNumber"):
        return None
    arn: str | None = members.get("TopicArn") or members.get("TargetArn")
    return None if arn is None or ":endpoint/" in arn else arn
