"""The text face: the four methods of ``/queue``, with payloads as bodies and facts in headers.

Imported in the background, after the start or at its first request.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from msgspec import Meta, Struct

from queuegate.gateway.faces import interface
from queuegate.gateway.faces.json.json_endpoints import Answer, Call, Endpoint, Endpoints, status_of
from queuegate.gateway.faces.json.json_face import JsonFace, JsonFaceConfiguration
from queuegate.gateway.faces.json.json_fields import about
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.operations.queues import queues, sends
from queuegate.gateway.operations.queues.deletions import change, finish_last
from queuegate.gateway.operations.queues.queues import DEFAULT_QUEUE
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_many
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.protocol.digests import md5_of_bytes, sha1_of
from queuegate.protocol.routing import RouteMatch
from queuegate.storage import storage_errors
from queuegate.storage.queue_model import Handle, NewMessage, Queue, ReceiptOutcome, SentMessage

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})").search

Timeout = Annotated[
    int,
    about("Visibility timeout in seconds, from now on."),
    Meta(ge=0, le=LIMITS.text_visibility_timeout_seconds),
]
Id = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 128})]
Receipt = Annotated[str, about("`Message-Receipt-Id` of the receive.")]


class TextParameters(Struct, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """Parameters of every method."""

    queue: Annotated[str, about("The name of the queue.")] = DEFAULT_QUEUE


class EnqueueParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of POST."""

    group_id: Annotated[
        Id | None,
        about(
            "Message group. One message of a group is in flight at a time, the oldest "
            "first. Required for text and FIFO queues."
        ),
    ] = None
    deduplication_id: Annotated[
        Id | None,
        about(
            "A message with the same id in its group is a duplicate until this message "
            "is deleted. Absent: the SHA-1 of the payload."
        ),
    ] = None
    ttl: Annotated[
        Annotated[int, Meta(ge=1, le=LIMITS.ttl_seconds)] | None,
        about("Seconds until the message expires."),
    ] = None


class DequeueParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of GET."""

    visibility_timeout: Timeout = 60
    wait: Annotated[
        int, about("Seconds to wait for a message.", ge=0, le=LIMITS.receive_wait_seconds)
    ] = 0


class DeleteParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of DELETE."""

    receipt_id: Receipt


class ChangeParameters(TextParameters, rename="kebab", kw_only=True):
    """Parameters of PATCH."""

    receipt_id: Receipt
    visibility_timeout: Timeout


def _done(content: bytes | None = None, /, **facts: object) -> Answer[Any]:
    """Answer with facts in headers: ``message_id`` becomes Message-Id."""
    return Answer(
        200, content, {name.replace("_", "-"): str(value) for name, value in facts.items()}
    )


_NOTHING = Answer(204)


endpoint = Endpoints("messages")
_MESSAGE_ID = {"Message-Id": "The id of the message in SQS."}
_TIMESTAMP = {"Message-Timestamp": "The time of the send in microseconds."}
_RECEIPT = {"receipt-id": "$response.header.Message-Receipt-Id", "queue": "$request.query.queue"}


@endpoint(
    "POST /queue",
    "sqs:SendMessage",
    refusals=(404, 429),
    body=str,
    example="Waddap",
    headers={**_MESSAGE_ID, "Message-Md5": "MD5 of the payload.", **_TIMESTAMP},
)
async def send_text(call: Call, query: EnqueueParameters) -> Answer[None]:
    """Send a message. The message is durable when the answer arrives. Creates the queue if it does
    not exist. Returns 200: The message is sent. Returns 204: The message is a duplicate of one in
    the queue."""
    engine, caller = call.engine, call.caller
    try:
        payload = call.body.decode()
    except UnicodeDecodeError as error:
        raise storage_errors.MalformedInput(
            f"The payload is not UTF-8 at byte {error.start}. Encode binary data as text, such as "
            "base64."
        ) from None
    await engine.rates.take(caller)
    queue = await _queue_for(call, query)
    deduplication_id = query.deduplication_id
    if deduplication_id is None and queue.kind.has_groups:
        deduplication_id = sha1_of(payload)
    message = NewMessage(
        payload, group_id=query.group_id, deduplication_id=deduplication_id, ttl_seconds=query.ttl
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
            raise storage_errors.MessageIncomplete("group_id" if call.body else "body")
        return queue
    return await queues.find_or_make(call.engine, call.caller, call.right, given.queue)


@endpoint(
    "GET /queue",
    "sqs:ReceiveMessage",
    refusals=(404, 429),
    is_safe=False,
    may_wait=True,
    shows={200: "Waddap"},
    headers={
        "Message-Receipt-Id": "Receipt of this receive, for deletes and changes.",
        **_MESSAGE_ID,
        **_TIMESTAMP,
    },
    media_type="text/plain",
    links={"deleteText": _RECEIPT, "changeText": _RECEIPT},
)
async def receive_text(call: Call, query: DequeueParameters) -> Answer[str]:
    """Receive a message. One message of a group is in flight at a time. A message that is not
    deleted within its timeout is redelivered. Returns 200: The payload. Returns 204: No message is
    available."""
    engine = call.engine
    queue = await queues.find(engine, call.caller, call.right, query.queue)
    if queue is None:
        return _NOTHING
    origin = call.request.origin
    request = ReceiveMany(1, query.visibility_timeout, query.wait, origin=origin)
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
        raise storage_errors.MalformedInput(
            f"receipt-id does not belong to queue '{queue.name}': send the value of the header "
            "Message-Receipt-Id and the parameter queue of the receive."
        )
    return _Receipt(receipt.handle, str(message_id))


@endpoint("DELETE /queue", "sqs:DeleteMessage", headers=_MESSAGE_ID)
async def delete_text(call: Call, query: DeleteParameters) -> Answer[None]:
    """Delete a message. Requires the receipt of the last receive. Returns 200: The message is
    deleted. Returns 204: Unchanged: the message was received again or deleted."""
    queue = await queues.find(call.engine, call.caller, call.right, query.queue)
    if queue is None:
        return _NOTHING
    receipt = _receipt(call.engine, queue, query.receipt_id)
    outcomes = await answered(finish_last, call.engine, queue, [receipt.handle])
    return _finished(outcomes, receipt)


@endpoint("PATCH /queue", "sqs:ChangeMessageVisibility", headers=_MESSAGE_ID)
async def change_text(call: Call, query: ChangeParameters) -> Answer[None]:
    """Change the timeout of a message. Requires the receipt of the last receive. The timeout starts
    now. 0 shows the message at once. Returns 200: The timeout is changed. Returns 204: Unchanged:
    the message was received again or deleted."""
    queue = await queues.find(call.engine, call.caller, call.right, query.queue)
    if queue is None:
        return _NOTHING
    receipt = _receipt(call.engine, queue, query.receipt_id)
    wanted = [(receipt.handle, query.visibility_timeout)]
    return _finished(await answered(change, call.engine, queue, wanted), receipt)


def _finished(outcomes: list[ReceiptOutcome], receipt: _Receipt) -> Answer[Any]:
    """Answer 204 without facts for a receipt that is not of the last receive."""
    return _done(message_id=receipt.message_id) if outcomes == ["ok"] else _NOTHING


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

_TEXT: tuple[bytes, bytes] = (b"content-type", b"text/plain")
_UNPROCESSABLE = (400, 413)
_SIGN_IN = "This gateway requires a key: send it in the header api-key."
_MOST_SHOWN = 80


class TextFace(JsonFace):
    """Answers every request to ``/queue`` and to its OpenAPI document. Only the latter is JSON."""

    def __init__(self, engine: Engine, callers: interface.CallerAuthenticator) -> None:
        configuration = JsonFaceConfiguration(
            name="text",
            prefix="/queue",
            about=ABOUT,
            refused=lambda refusal, _: (_status_of(refusal), _text_of(refusal)),
            worded=lambda _, text: text,
            sign_in=_SIGN_IN,
            wants=interface.CredentialRule.KEY,
        )
        super().__init__(engine, callers, tuple(endpoint), configuration)

    def most_bytes(self, request: interface.Request) -> int:
        """Return the limit of a message, or of a request without one."""
        return LIMITS.message_bytes if request.method == "POST" else LIMITS.request_bytes

    def may_wait(self, request: interface.Request) -> bool:
        """Return True for a long poll."""
        return request.method == "GET" and b"wait=" in request.query

    def _call(self, request: interface.Request, *given: Any) -> Call:
        if broken := _BROKEN(request.query):
            raise storage_errors.MalformedInput(
                f"The query string is not percent-encoded at byte {broken.start()}: write `%` as "
                "`%25`."
            )
        return super()._call(request, *given)

    def _body(self, _: Endpoint, body: bytes) -> Generator[None, None, bytes]:
        yield from ()
        return body

    def _failed(
        self, error: BaseException, request: interface.Request, found: RouteMatch[Endpoint] | None
    ) -> interface.Response:
        if isinstance(error, storage_errors.Rejected) and request.caller is None:
            request.refusal = error
            return self._refused(401, _SIGN_IN)
        return super()._failed(error, request, found)

    def _written(self, answer: Answer[Any]) -> interface.Response:
        if isinstance(answer.content, dict):
            return super()._written(answer)
        facts = [(name.encode(), value.encode()) for name, value in (answer.headers or {}).items()]
        return interface.Response(answer.status, [_TEXT, *facts], answer.content or b"")

    def _refused(self, status: int, text: str) -> interface.Response:
        """Make a refusal of one line. Replace unprintable characters, which may come from a
        request."""
        line = "".join([one if one.isprintable() else "?" for one in text])
        return interface.Response(status, [_TEXT], f"{line}\n".encode(errors="replace"))


def _status_of(refusal: storage_errors.Rejected) -> int:
    status = status_of(refusal)
    return 422 if status in _UNPROCESSABLE else status


def _text_of(refusal: storage_errors.Rejected) -> str:
    """Return the text of a refusal, with the necessary change."""
    if isinstance(refusal, storage_errors.MessageIncomplete):
        if refusal.what == "body":
            return "The payload is empty: send it as the body of the request."
        return "group-id is missing: messages of a group are received in order, one at a time."
    if isinstance(refusal, storage_errors.IdInvalid):
        name = refusal.what.replace("_", "-")
        return f"{name} must have 1 to 128 characters, without spaces for FIFO queues."
    if isinstance(refusal, storage_errors.DeduplicationIdUnfit):
        return "deduplication-id requires a queue with groups: leave it out for this queue."
    if isinstance(refusal, storage_errors.InvalidMessageContents):
        return "The payload has a control character, U+FFFE or U+FFFF, which SQS cannot deliver."
    if isinstance(refusal, storage_errors.QueueDoesNotExist):
        return f"Queue '{(refusal.queue_name or '')[:_MOST_SHOWN]}' does not exist."
    return str(refusal)


ENDPOINTS = tuple(endpoint)
