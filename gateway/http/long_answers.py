"""Long answers of receives on the fast path: encoded in steps and sent in parts.

Between them the code yields to the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.runtime.background_tasks import run_in_steps

if TYPE_CHECKING:
    from queuegate.gateway.http.fast_path import Exchange


async def answer_in_parts(exchange: Exchange, received: Any, release: Callable[[], None]) -> None:
    """Send the answer as fast as the client reads. Release messages if it disconnects before.

    ``release`` ends the traffic count of ``received``; then the parts count.
    """
    route, receiving = exchange.route, exchange.receiving
    assert receiving is not None
    finish = route.pair.finish_in_steps
    assert finish is not None
    try:
        members = await run_in_steps(finish(exchange.context, exchange.members, received))
        parts = await run_in_steps(
            route.wire.encode_in_steps(route.action, members, exchange.request_id)
        )
    except Exception as error:  # noqa: BLE001 - the outermost handler of this path
        receiving.give_back(received)
        exchange.failed(error)
        return
    finally:
        release()
    protocol = exchange.protocol
    if not protocol.is_answering(exchange):
        receiving.give_back(received)
        return
    # From here on, a client that only ends its stream keeps its messages.
    exchange.receiving = None
    caller, series = exchange.context.caller, exchange.context.engine.series
    size = sum(map(len, parts))
    if series.on_answer is not None:
        series.on_answer(caller, size)
    route.count(series, exchange.started)
    protocol.write_head(exchange, size)
    async for part in protocol.traffic.held(parts, caller.account_id):
        await protocol.flow.drain()
        if not protocol.is_answering(exchange):
            return
        protocol.transport.write(part)
    protocol.answered(exchange, 200)
