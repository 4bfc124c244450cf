"""Replies that coroutines wait for."""

from __future__ import annotations

import asyncio
import gc

from queuegate.gateway.faces.aws.sqs.sqs_sending import SendResult
from queuegate.gateway.operations.runtime.replies import Reply, answered
from queuegate.storage.queue_model import SentMessage


async def test_what_was_answered_needs_no_collector() -> None:
    def send(reply: Reply[SendResult]) -> None:
        sent = SendResult("", None, None).answering(reply)
        asyncio.get_running_loop().call_soon(sent.done, [SentMessage("m", None)])

    await answered(send)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            sent = await answered(send)
        assert sent.message_id == "m"
        assert gc.collect() < 100
    finally:
        gc.enable()
