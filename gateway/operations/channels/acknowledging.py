"""Acknowledging what was received of a channel, and giving it back.

Either counts only from whoever received the message last: from anybody else it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.operations.queues.finishing import change_last, finish_last
from gateway.operations.replies import answered
from storage.errors import ReceiptHandleIsInvalid

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.model import Handle, Outcome, Queue, Received


def token_of(engine: Engine, channel: Queue, message: Received) -> str:
    """What whoever received this message acknowledges it by."""
    return engine.receipts.handle_of(message, engine.clock.of(channel.account_id).seconds())


async def acknowledge(
    engine: Engine, caller: Caller, channel: Queue, tokens: Sequence[str]
) -> list[Outcome]:
    """Delete messages that were received; the outcomes of ``finish_last``.

    Raises ReceiptHandleIsInvalid, and then has changed nothing.
    """
    handles = _handles(engine, channel, tokens)
    outcomes: list[Outcome] = await answered(finish_last, engine, channel, handles)
    return outcomes


async def give_back(
    engine: Engine, caller: Caller, channel: Queue, tokens: Sequence[str], delay_seconds: int
) -> list[Outcome]:
    """Let messages that were received be received again in so many seconds, 0: at once. That they
    were received still counts. Outcomes and what it raises are as of ``acknowledge``."""
    return await change_last(engine, channel, _handles(engine, channel, tokens), delay_seconds)


def _handles(engine: Engine, channel: Queue, tokens: Sequence[str]) -> list[Handle]:
    now = engine.clock.of(channel.account_id).seconds()
    handles = []
    for token in tokens:
        receipt = engine.receipts.read(channel, token, now)
        if receipt is None:
            raise ReceiptHandleIsInvalid(token)
        handles.append(receipt.handle)
    return handles
