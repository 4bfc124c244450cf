"""Many messages at once, as SQS gives them: receive, hide and delete by receipt handle.

For readers in bulk, such as the source of Spark: what ReceiveMessage, DeleteMessageBatch and
ChangeMessageVisibilityBatch do for ten messages, with their members and refusals, for a thousand.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from queuegate.gateway.faces.aws.aws_refusals import failed_entry
from queuegate.gateway.faces.aws.sqs import sqs_receiving
from queuegate.gateway.faces.aws.sqs.sqs_messages import ReceiveSelection, received_members
from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.message_members import AttemptId, Timeout
from queuegate.gateway.operations.access.authorization import find_queue_by_url
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_shown
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage.errors import Rejected
from queuegate.storage.model import Queue, Received

_TAG = "receipts"
_PATH = "/v1/receipts"
_MOST_BYTES = 8 << 20
_MOST_NAMES = 100
_LONGEST_NAME = 256

QueueUrl = Annotated[
    str, Meta(max_length=2048, description="The URL of a queue as SQS gave it, or its name.")
]
Names = Annotated[
    list[Annotated[str, Meta(max_length=_LONGEST_NAME)]], Meta(max_length=_MOST_NAMES)
]
ReceiptHandles = Annotated[
    list[str],
    Meta(min_length=1, max_length=LIMITS.receipts, description="Of messages of this queue."),
]


class Receive(Struct, forbid_unknown_fields=True):
    """What to receive."""

    queue: QueueUrl
    max: Annotated[int, Meta(ge=1, le=LIMITS.receipts, description="At most so many messages.")] = (
        LIMITS.receipts
    )
    visibility_timeout: Annotated[
        Timeout | None, Meta(description="Absent: the queue's, normally 30.")
    ] = None
    wait: Annotated[
        Annotated[int, Meta(ge=0, le=LIMITS.receive_wait_seconds)] | None,
        Meta(description="Seconds to wait for one. Absent: the queue's, normally 0."),
    ] = None
    attempt_id: Annotated[
        AttemptId | None,
        Meta(description="ReceiveRequestAttemptId: an answer that was lost is given again."),
    ] = None
    attributes: Annotated[
        Names, Meta(description="MessageSystemAttributeNames; `All` are all.")
    ] = []
    message_attributes: Annotated[
        Names, Meta(description="MessageAttributeNames; `All` are all, `prefix.*` some.")
    ] = []


class ReceivedMessages(Struct):
    """Messages, maybe none."""

    messages: Annotated[
        list[dict[str, Any]], Meta(description="As ReceiveMessage gives them, member for member.")
    ]


class Delete(Struct, forbid_unknown_fields=True):
    """What to delete."""

    queue: QueueUrl
    receipt_handles: ReceiptHandles


class Hide(Struct, forbid_unknown_fields=True):
    """What to hide, and for how long."""

    queue: QueueUrl
    receipt_handles: ReceiptHandles
    visibility_timeout: Annotated[
        Timeout, Meta(description="Seconds from now; 0 shows the messages at once.")
    ]


class Failed(Struct):
    """Those that could not be: all others could."""

    failed: Annotated[
        list[dict[str, Any]],
        Meta(
            description="As in answers of SQS's batches: `Code`, `Message`, `SenderFault`, and as "
            "`Id` the place of the receipt handle in the request, from 0."
        ),
    ]


async def _queue(call: Call) -> Queue:
    return await find_queue_by_url(call.engine, call.caller, call.right, call.body.queue)


async def _receive(call: Call) -> Answer:
    queue = await _queue(call)
    asked: Receive = call.body
    request = ReceiveMany(
        asked.max, asked.visibility_timeout, asked.wait, asked.attempt_id, _MOST_BYTES
    )
    want = ReceiveSelection(tuple(asked.attributes), tuple(asked.message_attributes))
    now = call.engine.clock.of(queue.account_id).seconds
    handle_of = call.engine.receipts.handle_of

    def show(message: Received, _: datetime) -> dict[str, Any]:
        return received_members(message, want, handle_of(message, now()))

    shown = await receive_shown(call.engine, call.caller, queue, request, show)
    return Answer(200, ReceivedMessages(shown))


async def _delete(call: Call) -> Answer:
    queue = await _queue(call)
    asked: Delete = call.body
    handles = asked.receipt_handles
    outcomes = await answered(sqs_receiving.delete_messages, call.engine, queue, handles)
    return _failed(outcomes)


async def _hide(call: Call) -> Answer:
    queue = await _queue(call)
    asked: Hide = call.body
    changes = [(handle, asked.visibility_timeout) for handle in asked.receipt_handles]
    outcomes = await answered(
        sqs_receiving.change_message_visibilities, call.engine, queue, changes
    )
    return _failed(outcomes)


def _failed(outcomes: sqs_receiving.Outcomes) -> Answer:
    failed = [
        failed_entry("sqs", str(place), outcome)
        for place, outcome in enumerate(outcomes)
        if isinstance(outcome, Rejected)
    ]
    return Answer(200, Failed(failed))


_QUEUE = "http://127.0.0.1:9324/000000000000/jobs"
_HANDLE = "QGS2AAAAAQAAAAAAAAQSAAAAAWXyAAAt9m2Jc1yVxgr3"
_FOUND = {
    "MessageId": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
    "ReceiptHandle": _HANDLE,
    "MD5OfBody": "114c7d6626d5b19bd49fed30fff40ea7",
    "Body": '{"job": "resize", "image": 7}',
    "Attributes": {"SentTimestamp": "1896080400000"},
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        _PATH,
        "receiveReceipts",
        "Receive many messages, with receipt handles",
        "What ReceiveMessage of SQS does for ten: others do not see them for "
        "`visibility_timeout` seconds. A FIFO group gives ten at once. An answer ends at 8 MB and "
        "ten messages: one with fewer than `max` does not say that there are no more.",
        _TAG,
        _receive,
        (Answered(200, ReceivedMessages, "Messages, maybe none.", {"messages": [_FOUND]}),),
        refusals=(404, 429),
        body=Receive,
        example={"queue": _QUEUE, "max": 1000, "wait": 5, "attributes": ["SentTimestamp"]},
        may_wait=True,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "DELETE",
        _PATH,
        "deleteReceipts",
        "Delete many messages by receipt handle",
        "What DeleteMessageBatch of SQS does for ten: each is deleted or not by itself, and one "
        "that is gone counts as deleted.",
        _TAG,
        _delete,
        (Answered(200, Failed, "Those that were not deleted.", {"failed": []}),),
        body=Delete,
        example={"queue": _QUEUE, "receipt_handles": [_HANDLE]},
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "PATCH",
        _PATH,
        "changeReceipts",
        "Hide many messages for longer, or show them again",
        "What ChangeMessageVisibilityBatch of SQS does for ten.",
        _TAG,
        _hide,
        (Answered(200, Failed, "Those that stay as they were.", {"failed": []}),),
        body=Hide,
        example={"queue": _QUEUE, "receipt_handles": [_HANDLE], "visibility_timeout": 60},
        right="sqs:ChangeMessageVisibility",
    ),
)
