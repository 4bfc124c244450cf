"""Receives of the native API: up to a hundred messages at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.operations.receiving import Receiving, Reply
from storage.model import Queue

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine

MOST_MESSAGES = 100
"""Of one receive; SQS's ten is a rule of SQS."""


class NativeReceive(NamedTuple):
    """What to receive, within its limits. None: as the queue is set."""

    max_messages: int = 1
    visibility_timeout_seconds: int | None = None
    wait_seconds: int | None = None

    def visibility_of(self, queue: Queue) -> int:
        """For how many seconds messages are hidden from others."""
        if self.visibility_timeout_seconds is None:
            return queue.visibility_timeout_seconds
        return self.visibility_timeout_seconds


def receive_native(
    engine: Engine, caller: Caller, queue: Queue, request: NativeReceive, reply: Reply
) -> Receiving:
    """Lease messages; the reply is list[Received], oldest first, maybe empty.

    A long poll answers as soon as there is one message and never waits to fill the maximum.
    """
    wait = queue.receive_wait_seconds if request.wait_seconds is None else request.wait_seconds
    receiving = Receiving(
        engine,
        queue,
        limit=request.max_messages,
        visibility_seconds=request.visibility_of(queue),
        reply=reply,
    )
    receiving.start(wait)
    return receiving
