"""Acknowledging what was received of a channel, and giving it back.

Either counts only from whoever received the message last: from anybody else it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from queuegate.gateway.operations.channels.pushed_tokens import number_of, process_of, receipt_of
from queuegate.gateway.operations.queues.finishing import change_last, finish_last
from queuegate.gateway.operations.replies import answered
from queuegate.storage.errors import ReceiptHandleIsInvalid

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.replies import Reply
    from queuegate.storage.model import Handle, Outcome, Queue, Received


def token_of(engine: Engine, channel: Queue, message: Received) -> str:
    """What whoever received this message acknowledges it by."""
    return engine.receipts.handle_of(message, engine.clock.of(channel.account_id).seconds())


def start_acknowledging(
    engine: Engine, channel: Queue, tokens: Sequence[str], reply: Reply[list[Outcome]]
) -> None:
    """Delete messages that were received; the outcomes of ``finish_last``.

    Raises ReceiptHandleIsInvalid, and then has changed nothing.
    """
    handles = _handles(engine, channel, tokens)
    finish_last(engine, channel, handles, _Acknowledged(engine, tokens, handles, reply))


async def acknowledge(
    engine: Engine, caller: Caller, channel: Queue, tokens: Sequence[str]
) -> list[Outcome]:
    """The same, awaited."""
    outcomes: list[Outcome] = await answered(start_acknowledging, engine, channel, tokens)
    return outcomes


async def give_back(
    engine: Engine, caller: Caller, channel: Queue, tokens: Sequence[str], delay_seconds: int
) -> list[Outcome]:
    """Let messages that were received be received again in so many seconds, 0: at once. That they
    were received still counts. Outcomes and what it raises are as of ``acknowledge``."""
    handles = _handles(engine, channel, tokens)
    outcomes = await change_last(engine, channel, handles, delay_seconds)
    _tell(engine, tokens, handles)
    return outcomes


class _Acknowledged:
    """Waits for a delete: whoever had the messages may get others."""

    __slots__ = ("_engine", "_handles", "_reply", "_tokens", "failed")

    def __init__(
        self,
        engine: Engine,
        tokens: Sequence[str],
        handles: list[Handle],
        reply: Reply[list[Outcome]],
    ) -> None:
        self._engine = engine
        self._tokens = tokens
        self._handles = handles
        self._reply = reply
        self.failed = reply.failed

    def done(self, outcomes: list[Outcome]) -> None:
        self._reply.done(outcomes)
        _tell(self._engine, self._tokens, self._handles)


def _tell(engine: Engine, tokens: Sequence[str], handles: list[Handle]) -> None:
    """Whatever became of the messages, who named them has them no longer: tell those that had them
    pushed, here or in the process that a token names."""
    if not "".join([process_of(token) for token in tokens]):
        return
    processes = {
        number_of(group_id, sequence): process_of(token)
        for (_, group_id, sequence, _), token in zip(handles, tokens, strict=True)
    }
    pushed = [number for number, process in processes.items() if process]
    for number in engine.consumers.finished(pushed):
        engine.wakeups.finished_here(number, processes[number])


def _handles(engine: Engine, channel: Queue, tokens: Sequence[str]) -> list[Handle]:
    handles = []
    for token in tokens:
        receipt = engine.receipts.read(channel, receipt_of(token), engine.clock)
        if receipt is None:
            raise ReceiptHandleIsInvalid(token)
        handles.append(receipt.handle)
    return handles
