"""The text face: the four methods of ``/queue``, with payloads as bodies and facts in headers.

Imported in the background, after the start or at its first request.
"""

from __future__ import annotations

import logging
import re
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from queuegate.gateway.faces.interface import (
    CallerAuthenticator,
    CredentialRule,
    Face,
    Headers,
    Request,
    RequestedOperation,
    Response,
)
from queuegate.gateway.faces.json.decoding import decode_query
from queuegate.gateway.faces.json.json_endpoints import (
    Answer,
    Answered,
    Call,
    Endpoint,
    allowed,
    endpoint_for,
    status_of,
)
from queuegate.gateway.faces.json.json_openapi import FaceDescription, with_document
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues import queues, sends
from queuegate.gateway.operations.queues.deletions import change, finish_last
from queuegate.gateway.operations.queues.queues import DEFAULT_QUEUE
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_many
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.protocol.digests import md5_of_bytes, sha1_of
from queuegate.protocol.routing import Router
from queuegate.storage.queue_model import Handle, NewMessage, Queue, ReceiptOutcome, SentMessage
from queuegate.storage.storage_errors import (
    DeduplicationIdUnfit,
    IdInvalid,
    InvalidMessageContents,
    MalformedInput,
    MessageIncomplete,
    QueueDoesNotExist,
    Rejected,
    RequestTooLarge,
    Unavailable,
)

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})").search

Timeout = Annotated[
    int,
    Meta(
        ge=0,
        le=LIMITS.text_visibility_timeout_seconds,
        description="Visibility timeout in seconds, from now on.",
    ),
]
Id = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 128})]
Receipt = Annotated[str, Meta(description="`Message-Receipt-Id` of the receive.")]


class TextParameters(Struct, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """Parameters of every method."""

    queue: Annotated[str, Meta(description="The name of the queue.")] = DEFAULT_QUEUE


class EnqueueParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of POST."""

    group_id: Annotated[
        Id | None,
        Meta(
            description="Message group. One message of a group is in flight at a time, the oldest "
            "first. Required for text and FIFO queues."
        ),
    ] = None
    deduplication_id: Annotated[
        Id | None,
        Meta(
            description="A message with the same id in its group is a duplicate until this message "
            "is deleted. Absent: the SHA-1 of the payload."
        ),
    ] = None
    ttl: Annotated[
        Annotated[int, Meta(ge=1, le=LIMITS.ttl_seconds)] | None,
        Meta(description="Seconds until the message expires."),
    ] = None


class DequeueParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of GET."""

    visibility_timeout: Timeout = 60
    wait: Annotated[
        int,
        Meta(ge=0, le=LIMITS.receive_wait_seconds, description="Seconds to wait for a message."),
    ] = 0


class DeleteParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of DELETE."""

    receipt_id: Receipt


class ChangeParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of PATCH."""

    receipt_id: Receipt
    visibility_timeout: Timeout


def _decode_query(kind: type[Struct] | None, query: bytes) -> Any:
    """Decode a query string without repeated parameters. Raises MalformedInput."""
    broken = _BROKEN(query)
    if broken is not None:
        raise MalformedInput(
            f"The query string is not percent-encoded at byte {broken.start()}: write `%` as `%25`."
        )
    return decode_query(kind, query)


def _done(content: bytes | None = None, /, **facts: object) -> Answer:
    """Answer with facts in headers: ``message_id`` becomes Message-Id."""
    return Answer(
        200, content, {name.replace("_", "-"): str(value) for name, value in facts.items()}
    )


_NOTHING = Answer(204)


async def _enqueue(call: Call) -> Answer:
    given: EnqueueParameters = call.query
    engine, caller = call.engine, call.caller
    try:
        payload = call.body.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(
            f"The payload is not UTF-8 at byte {error.start}. Encode binary data as text, such as "
            "base64."
        ) from None
    await engine.rates.take(caller)
    queue = await _queue_for(call, given)
    deduplication_id = given.deduplication_id
    if deduplication_id is None and queue.kind.has_groups:
        deduplication_id = sha1_of(payload)
    message = NewMessage(
        payload,
        group_id=given.group_id,
        deduplication_id=deduplication_id,
        ttl_seconds=given.ttl,
    )
    encoded = sends.checked(engine, queue, message, 0)
    digest = md5_of_bytes(encoded)
    new = [message._replace(digest=digest)]
    outcomes: list[SentMessage] = await answered(
        sends.send, engine, caller, queue, new, len(encoded)
    )
    [sent] = outcomes
    if sent.is_duplicate:
        return _NOTHING
    facts: dict[str, object] = {"message_id": sent.message_id, "message_md5": digest.hex()}
    if sent.sent_at_us is not None:
        facts["message_timestamp"] = sent.sent_at_us
    return _done(**facts)


async def _queue_for(call: Call, given: EnqueueParameters) -> Queue:
    """Return the queue to send to. A message that would be refused creates no queue."""
    if given.group_id is None or not call.body:
        queue = await queues.find(call.engine, call.caller, call.right, given.queue)
        if queue is None:
            raise MessageIncomplete("group_id" if call.body else "body")
        return queue
    return await queues.find_or_make(call.engine, call.caller, call.right, given.queue)


async def _dequeue(call: Call) -> Answer:
    given: DequeueParameters = call.query
    engine = call.engine
    queue = await queues.find(engine, call.caller, call.right, given.queue)
    if queue is None:
        return _NOTHING
    request = ReceiveMany(1, given.visibility_timeout, given.wait)
    received = await receive_many(engine, call.caller, queue, request)
    if not received:
        return _NOTHING
    [message] = received
    now = engine.clock.of(queue.account_id).seconds()
    handle = engine.receipts.handle_of(message, now)
    return _done(
        message.body.encode(),
        message_receipt_id=f"{handle}.{message.message_id.hex}",
        message_id=message.message_id,
        message_timestamp=message.sent_at_us,
    )


class _Receipt(NamedTuple):
    """A decoded receipt id. ``message_id`` is not authenticated: it is only repeated in the answer
    to the client that sent it."""

    handle: Handle
    message_id: str


def _receipt(engine: Engine, queue: Queue, text: str) -> _Receipt:
    handle, _, digits = text.partition(".")
    receipt = engine.receipts.read(queue, handle, engine.clock)
    try:
        message_id = UUID(hex=digits)
    except ValueError:
        receipt = None
    if receipt is None:
        raise MalformedInput(
            f"receipt-id does not belong to queue '{queue.name}': send the value of the header "
            "Message-Receipt-Id and the parameter queue of the receive."
        )
    return _Receipt(receipt.handle, str(message_id))


async def _delete(call: Call) -> Answer:
    given: DeleteParameters = call.query
    queue = await queues.find(call.engine, call.caller, call.right, given.queue)
    if queue is None:
        return _NOTHING
    receipt = _receipt(call.engine, queue, given.receipt_id)
    outcomes = await answered(finish_last, call.engine, queue, [receipt.handle])
    return _finished(outcomes, receipt)


async def _change(call: Call) -> Answer:
    given: ChangeParameters = call.query
    queue = await queues.find(call.engine, call.caller, call.right, given.queue)
    if queue is None:
        return _NOTHING
    receipt = _receipt(call.engine, queue, given.receipt_id)
    wanted = [(receipt.handle, given.visibility_timeout)]
    return _finished(await answered(change, call.engine, queue, wanted), receipt)


def _finished(outcomes: list[ReceiptOutcome], receipt: _Receipt) -> Answer:
    """Answer 204 without facts for a receipt that is not of the last receive."""
    return _done(message_id=receipt.message_id) if outcomes == ["ok"] else _NOTHING


_TAG = "messages"
_MESSAGE_ID = {"Message-Id": "The id of the message in SQS."}
_TIMESTAMP = {"Message-Timestamp": "The time of the send in microseconds."}
_RECEIPT = {
    "receipt-id": "$response.header.Message-Receipt-Id",
    "queue": "$request.query.queue",
}
_NOT_THE_LAST = "Unchanged: the message was received again or deleted."


ABOUT = FaceDescription(
    "Queuegate plain-text queue",
    "Queues in plain text: the payload is the body, and facts about the message are in headers. "
    "The first message creates a queue. Messages can be sent and received over SQS, too.\n\n"
    "Every refusal is a line of text with the necessary change.",
    {"messages": "Send, receive and delete messages.", "about": "This API."},
    "Needed only if the gateway has a key: that key, or one of `queuegate keys`.",
    str,
    needs_credentials=False,
    header="api-key",
    media_type="text/plain",
    always=(401, 403, 422, 503),
)

_log = logging.getLogger("queuegate.text")
_TEXT: tuple[bytes, bytes] = (b"content-type", b"text/plain")
_JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
_UNPROCESSABLE = (400, 413)
_SIGN_IN = "This gateway requires a key: send it in the header api-key."
_MOST_SHOWN = 80


class TextFace(Face):
    """Answers every request to ``/queue`` and to its OpenAPI document."""

    def __init__(self, engine: Engine, callers: CallerAuthenticator) -> None:
        self._engine = engine
        self._callers = callers
        everything = with_document(ENDPOINTS, "/queue", ABOUT)
        self._router = Router((one.method, one.path, one) for one in everything)

    def most_bytes(self, request: Request) -> int:
        """Return the limit of a message, or of a request without one."""
        return LIMITS.message_bytes if request.method == "POST" else LIMITS.request_bytes

    def claimed(self, request: Request) -> str | None:
        """Return the account of the key in the head. Empty: the endpoint is public."""
        endpoint = endpoint_for(request.method, self._router.find(request.raw_path))
        if request.method == "OPTIONS" or (endpoint is not None and endpoint.public):
            return ""
        return self._callers.claimed(request, {}, CredentialRule.KEY)

    def may_wait(self, request: Request) -> bool:
        """Return True for a long poll."""
        return request.method == "GET" and b"wait=" in request.query

    async def answer(self, request: Request) -> Response:
        """Return the response to any request."""
        try:
            response = await self._answer(request)
        except Rejected as refusal:
            request.refusal = refusal
            response = _rejected(refusal)
        except Unavailable as error:
            _log.log(error.log_level, "%s: %s", request.request_id, error)
            response = _unavailable(error)
        except Exception:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            _log.exception("%s %s failed", request.request_id, request.method)
            response = _refused(500, "We encountered an internal error. Please try again.")
        response.headers.append((b"x-request-id", request.request_id.encode()))
        # One of two paths: a bounded label.
        response.route = request.raw_path
        return response

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """The refusal of a request whose body was not read to its end."""
        response = _refusal(refusal)
        if isinstance(refusal, RequestTooLarge | Unavailable):
            # The rest of the body is discarded, so the connection cannot be reused.
            response.headers.append((b"connection", b"close"))
        return response

    async def _answer(self, request: Request) -> Response:
        found = self._router.find(request.raw_path)
        assert found is not None
        allow = [(b"allow", allowed(found.place).encode())]
        if request.method == "OPTIONS":
            return Response(204, allow, b"")
        endpoint = endpoint_for(request.method, found)
        is_public = endpoint is not None and endpoint.public
        if endpoint is not None:
            request.asked = RequestedOperation(
                f"text:{endpoint.name}", endpoint.right, None, endpoint.effect
            )
        try:
            caller: Caller = self._callers.caller(
                request, {}, may_be_anonymous=is_public, wants=CredentialRule.KEY
            )
        except Rejected as refusal:
            request.refusal = refusal
            return _refused(401, _SIGN_IN)
        if endpoint is None:
            text = f"{request.method} is not allowed here. Allowed are {allowed(found.place)}."
            response = _refused(405, text)
            response.headers += allow
            return response
        if self._engine.quotas.asks() and not is_public:
            await self._engine.quotas.admit(caller, len(request.body))
        given = _decode_query(endpoint.query, request.query)
        call = Call(self._engine, caller, request, None, given, request.body, endpoint.right)
        request.asked = request.asked and request.asked._replace(about=call)
        answer = await endpoint.handler(call)
        return _written(answer)


def _written(answer: Answer) -> Response:
    """Encode an answer. Only the OpenAPI document is JSON."""
    body = answer.content or b""
    headers: Headers = [_TEXT]
    if isinstance(body, dict):
        headers, body = [_JSON], msgspec.json.encode(body) + b"\n"
    for name, value in (answer.headers or {}).items():
        headers.append((name.encode(), value.encode()))
    return Response(answer.status, headers, body)


def _refusal(refusal: Rejected | Unavailable) -> Response:
    return _unavailable(refusal) if isinstance(refusal, Unavailable) else _rejected(refusal)


def _rejected(refusal: Rejected) -> Response:
    status = status_of(refusal)
    response = _refused(422 if status in _UNPROCESSABLE else status, _text_of(refusal))
    seconds = refusal.retry_after_seconds
    if seconds is not None:
        response.headers.append((b"retry-after", str(seconds).encode()))
    return response


def _text_of(refusal: Rejected) -> str:
    """Return the text of a refusal, with the necessary change."""
    if isinstance(refusal, MessageIncomplete):
        if refusal.what == "body":
            return "The payload is empty: send it as the body of the request."
        return "group-id is missing: messages of a group are received in order, one at a time."
    if isinstance(refusal, IdInvalid):
        name = refusal.what.replace("_", "-")
        return f"{name} must have 1 to 128 characters, without spaces for FIFO queues."
    if isinstance(refusal, DeduplicationIdUnfit):
        return "deduplication-id requires a queue with groups: leave it out for this queue."
    if isinstance(refusal, InvalidMessageContents):
        return "The payload has a control character, U+FFFE or U+FFFF, which SQS cannot deliver."
    if isinstance(refusal, QueueDoesNotExist):
        return f"Queue '{(refusal.queue_name or '')[:_MOST_SHOWN]}' does not exist."
    return str(refusal)


def _refused(status: int, text: str) -> Response:
    """Make a refusal of one line. Replace unprintable characters, which may come from a request."""
    line = "".join([one if one.isprintable() else "?" for one in text])
    return Response(status, [_TEXT], f"{line}\n".encode(errors="replace"))


def _unavailable(error: Unavailable) -> Response:
    response = _refused(503, f"{error} Try again in a moment.")
    response.headers.append((b"retry-after", b"1"))
    return response


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/queue",
        "sendText",
        "Send a message",
        "The message is durable when the answer arrives. Creates the queue if it does not exist.",
        _TAG,
        _enqueue,
        (
            Answered(
                200,
                None,
                "The message is sent.",
                headers={**_MESSAGE_ID, "Message-Md5": "MD5 of the payload.", **_TIMESTAMP},
            ),
            Answered(204, None, "The message is a duplicate of one in the queue."),
        ),
        refusals=(404, 429),
        query=EnqueueParameters,
        body=str,
        example="Waddap",
        right="sqs:SendMessage",
    ),
    Endpoint(
        "GET",
        "/queue",
        "receiveText",
        "Receive a message",
        "One message of a group is in flight at a time. A message that is not deleted within its "
        "timeout is redelivered.",
        _TAG,
        _dequeue,
        (
            Answered(
                200,
                str,
                "The payload.",
                "Waddap",
                headers={
                    "Message-Receipt-Id": "Receipt of this receive, for deletes and changes.",
                    **_MESSAGE_ID,
                    **_TIMESTAMP,
                },
                media_type="text/plain",
                links={"deleteText": _RECEIPT, "changeText": _RECEIPT},
            ),
            Answered(204, None, "No message is available."),
        ),
        refusals=(404, 429),
        query=DequeueParameters,
        is_safe=False,
        may_wait=True,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "DELETE",
        "/queue",
        "deleteText",
        "Delete a message",
        "Requires the receipt of the last receive.",
        _TAG,
        _delete,
        (
            Answered(200, None, "The message is deleted.", headers=_MESSAGE_ID),
            Answered(204, None, _NOT_THE_LAST),
        ),
        query=DeleteParameters,
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "PATCH",
        "/queue",
        "changeText",
        "Change the timeout of a message",
        "Requires the receipt of the last receive. The timeout starts now. 0 shows the message at "
        "once.",
        _TAG,
        _change,
        (
            Answered(200, None, "The timeout is changed.", headers=_MESSAGE_ID),
            Answered(204, None, _NOT_THE_LAST),
        ),
        query=ChangeParameters,
        right="sqs:ChangeMessageVisibility",
    ),
)
