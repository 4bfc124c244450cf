"""From operations that reply to coroutines that wait.

Operations on messages hand an entry to a lane and return; their ``reply`` hears of it once, after
the commit. The fast path's exchange is such a reply, and so is what ``answered`` makes of a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from queuegate.storage.lanes import Reply as Reply

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class Started(Protocol[R_contra]):
    """Something that can be given up."""

    def cancel(self) -> None:
        """Whoever asked has gone."""

    def give_back(self, result: R_contra, /) -> None:
        """They have gone in the moment of the answer, and nobody got it."""


class _Answer(Generic[R]):
    """A future as a reply."""

    __slots__ = ("future", "holding", "started")

    def __init__(self, future: asyncio.Future[R], holding: Callable[[Any], None] | None) -> None:
        self.future = future
        self.holding = holding
        self.started: Started[R] | None = None

    def done(self, result: R) -> None:
        if not self.future.done():
            if self.holding is not None and self.started is not None:
                self.holding(self.started)
            self.future.set_result(result)
        elif self.started is not None:
            # Cancelled in the same moment.
            self.started.give_back(result)

    def failed(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def answered(
    call: Callable[..., Started[Any] | None],
    *arguments: Any,
    holding: Callable[[Any], None] | None = None,
) -> Any:
    """Await a replying operation: ``call(*arguments, reply)``. Cancelling it cancels a receive.

    ``holding`` is called with what was started when the result is there.
    """
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer = _Answer(future, holding)
    started = answer.started = call(*arguments, answer)
    try:
        result = await future
    except asyncio.CancelledError:
        if started is not None:
            started.cancel()
            if future.done() and not future.cancelled() and future.exception() is None:
                # It was answered in the same moment, but nobody got it.
                started.give_back(future.result())
        raise
    # A result may hold its reply: with the future in it, only the collector would find the three.
    del answer.future
    return result
