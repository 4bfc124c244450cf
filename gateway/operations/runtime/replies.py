"""Replies of operations, and coroutines that wait for them.

Operations on messages submit an entry to a lane and return. Their ``reply`` is called once, after
the commit. The fast path's exchange is a reply; ``answered`` makes one of a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from queuegate.storage.lanes import Reply as Reply

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller, RequestOrigin

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class Started(Protocol[R_contra]):
    """An operation under way that can be cancelled."""

    def cancel(self) -> None:
        """Cancel: the client has disconnected."""

    def give_back(self, result: R_contra, /) -> None:
        """Undo the result, which came while the client disconnected."""


Client = tuple["Caller | None", "RequestOrigin | None"]
"""The caller of a request and its origin. None: unknown."""


class Then(Generic[R_contra]):
    """A reply of two functions: the effects of a result, and those of a failure."""

    __slots__ = ("done", "failed")

    def __init__(
        self, done: Callable[[R_contra], None], failed: Callable[[BaseException], None]
    ) -> None:
        self.done = done
        self.failed = failed


class _Answer(Generic[R]):
    """A future as a reply."""

    __slots__ = ("_client", "future", "holding", "started")

    def __init__(
        self, future: asyncio.Future[R], holding: Callable[[Any], None] | None, client: Client
    ) -> None:
        self.future = future
        self.holding = holding
        self._client = client
        self.started: Started[R] | None = None

    def client(self) -> Client:
        """Return the client, for the list of waiting receivers."""
        return self._client

    def done(self, result: R) -> None:
        if not self.future.done():
            if self.holding is not None and self.started is not None:
                self.holding(self.started)
            self.future.set_result(result)
        elif self.started is not None:
            # Cancelled at the same time.
            self.started.give_back(result)

    def failed(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def answered(
    call: Callable[..., Started[Any] | None],
    *arguments: Any,
    holding: Callable[[Any], None] | None = None,
    client: Client = (None, None),
) -> Any:
    """Await a replying operation: ``call(*arguments, reply)``. Cancelling it cancels a receive.
    ``holding`` is called with what was started when the result is there."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer = _Answer(future, holding, client)
    started = answer.started = call(*arguments, answer)
    try:
        result = await future
    except asyncio.CancelledError:
        if started is not None:
            started.cancel()
            if future.done() and not future.cancelled() and future.exception() is None:
                # Answered and cancelled at the same time.
                started.give_back(future.result())
        raise
    # A result may refer to its reply. Without the future, the three are no cycle for the garbage
    # collector.
    del answer.future
    return result
