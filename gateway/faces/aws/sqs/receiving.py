"""ReceiveMessage: SQS's limits and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.operations.queues.deletions import check_visibility
from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.protocol import names
from queuegate.storage.errors import IdInvalid, InvalidParameterValue

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.runtime.replies import Reply
    from queuegate.storage.model import Queue, Received


class ReceiveMessage(NamedTuple):
    """What to receive; None: the queue's setting, or AWS's default."""

    max_messages: int | None = None
    visibility_timeout_seconds: int | None = None
    wait_seconds: int | None = None
    attempt_id: str | None = None


def receive_message(
    engine: Engine, queue: Queue, request: ReceiveMessage, reply: Reply[list[Received]]
) -> Receiving:
    """Lease up to ten messages, oldest first, maybe none.

    A long poll answers as soon as there is one message and never waits to fill the maximum.
    """
    limits = engine.limits
    maximum = request.max_messages
    if maximum is None:
        maximum = 1
    elif not 1 <= maximum <= AWS.received_messages:
        raise InvalidParameterValue(
            f"Value {maximum} for parameter MaxNumberOfMessages is invalid. Reason: Must be "
            f"between 1 and {AWS.received_messages}, if provided."
        )
    wait = request.wait_seconds
    if wait is None:
        wait = queue.receive_wait_seconds
    elif not 0 <= wait <= limits.receive_wait_seconds:
        raise InvalidParameterValue(
            f"Value {wait} for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= "
            f"{limits.receive_wait_seconds}, if provided."
        )
    visibility = request.visibility_timeout_seconds
    if visibility is None:
        visibility = queue.visibility_timeout_seconds
    else:
        check_visibility(visibility, limits.visibility_timeout_seconds)
    if request.attempt_id is not None and not names.is_fifo_id(request.attempt_id):
        raise IdInvalid("attempt_id", request.attempt_id)
    receiving = Receiving(engine, queue, limit=maximum, visibility_seconds=visibility, reply=reply)
    receiving.attempt_id = request.attempt_id
    receiving.start(wait)
    return receiving
