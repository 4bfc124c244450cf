"""Receipt handles: the form that this process writes, and the forms that it reads.

All processes on a database use one secret to check them (``storage.queues.stored_queues``).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from queuegate.protocol import names, opaque_tokens
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.opaque_tokens import FifoReceipt, StandardReceipt

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.storage.queue_model import Queue, Received
    from queuegate.storage.queues.stored_queues import ReceiptSecret

Receipt = StandardReceipt | FifoReceipt

ROLLING_SECONDS = 3600
"""Seconds after an upgrade for which older gateways may run, which read old handles only."""

OLD_SECONDS = ROLLING_SECONDS + 43_200
"""Seconds after an upgrade for which old handles may be valid: twelve hours after the last one was
written."""


class ReceiptHandles:
    """A writer and reader of handles. It has a random secret until ``use`` is called."""

    __slots__ = ("_keyed", "_old", "_old_until", "_rolling_until")

    def __init__(self) -> None:
        self._keyed = opaque_tokens.keyed(secrets.token_bytes(opaque_tokens.SECRET_BYTES))
        self._old = opaque_tokens.unkeyed()
        self._rolling_until = self._old_until = 0

    def use(self, secret: ReceiptSecret) -> None:
        """Use the secret and the form that the database has."""
        self._keyed = opaque_tokens.keyed(secret.secret)
        if secret.is_upgrade:
            self._rolling_until = secret.made_at + ROLLING_SECONDS
            self._old_until = secret.made_at + OLD_SECONDS

    def handle_of(self, message: Received, received_at: int) -> str:
        """Return the handle that deletes the message, as received at that second."""
        handles = self._old if received_at < self._rolling_until else self._keyed
        if message.group_id is not None:
            return handles.encode_fifo(
                message.queue_id,
                message.group_id,
                message.sequence,
                message.receive_count,
                received_at,
            )
        return handles.encode_standard(
            message.queue_id, message.sequence, message.receive_count, received_at
        )

    def read(self, queue: Queue, handle: str, clock: Clock) -> Receipt | None:
        """Return the contents of a handle of this queue; None: invalid. ``clock`` is the common
        clock, read only for old handles."""
        try:
            receipt = self._keyed.decode(handle)
        except Malformed:
            if clock.of(queue.account_id).seconds() >= self._old_until:
                return None
            try:
                receipt = self._old.decode(handle)
            except Malformed:
                return None
        if receipt[0] != queue.queue_id:
            return None
        if not isinstance(receipt, FifoReceipt):
            return None if queue.kind.has_groups else receipt
        fits = queue.is_serial or names.is_fifo_id(receipt.group_id)
        return receipt if fits and queue.kind.has_groups else None
