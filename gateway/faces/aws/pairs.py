"""What the ordinary path and the fast path run of a hot action, so that the two cannot come
apart."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from queuegate.gateway.faces.aws.face import Members
from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.gateway.operations.runtime.replies import Reply

C = TypeVar("C")
R = TypeVar("R")


class Pair(Generic[C, R]):
    """``start(context, members, reply)`` hands the work to a lane and may return a receive that can
    be cancelled; ``finish(context, members, result)`` makes the response members, or refuses.
    ``finish_in_steps`` is the same of a result that may be long."""

    __slots__ = ("finish", "finish_in_steps", "start")

    def __init__(
        self,
        start: Callable[[C, Members, Reply[R]], Receiving | None],
        finish: Callable[[C, Members, R], Members | None],
        finish_in_steps: Callable[[C, Members, R], Generator[None, None, Members]] | None = None,
    ) -> None:
        self.start = start
        self.finish = finish
        self.finish_in_steps = finish_in_steps
