"""What the face of channels says of refusals."""

from __future__ import annotations

from queuegate.gateway.faces.json.refusals import status_of as status_of
from queuegate.storage.errors import (
    QueueDoesNotExist,
    QueueNameInvalid,
    ReceiptHandleIsInvalid,
    Rejected,
)

_MOST_SHOWN = 60


def text_of(refusal: Rejected) -> str:
    """What is said of a refusal: of channels where others speak of queues."""
    if isinstance(refusal, QueueDoesNotExist):
        name = refusal.queue_name
        return "The channel does not exist." if name is None else f"Channel '{name}' does not exist"
    if isinstance(refusal, QueueNameInvalid):
        return (
            "A channel cannot be called so. Allowed are 1 to 80 letters, digits, hyphens and "
            "underscores."
        )
    if isinstance(refusal, ReceiptHandleIsInvalid):
        return (
            f"'{refusal.receipt_handle[:_MOST_SHOWN]}' is no `ack` of a message of this channel: "
            "take it from what you polled."
        )
    return str(refusal)
