"""Queues that are called what their owners like: any number of them the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.queues.queues import CreateQueue, create_queue
from queuegate.protocol import names
from queuegate.storage.errors import Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Queue

KEPT_SECONDS = 10 * 365 * 24 * 3600
"""How long such a queue keeps its messages: until somebody acknowledges them. SQS's queues forget
what is two weeks old."""

_SUFFIXED = 4
_SUFFIX_BYTES = 4
_NAME_LENGTH = 80
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_-]+")


class QueueTitleInvalid(Rejected):
    """Not how an owner can call a queue."""

    def __init__(self, most: int) -> None:
        super().__init__(f"The name of a queue is 1 to {most} printable characters.")


class TitledQueue(NamedTuple):
    """A queue to create. None: any number."""

    title: str
    visibility_timeout_seconds: int
    most_messages: int | None
    max_deliveries: int | None


async def create_titled(engine: Engine, caller: Caller, request: TitledQueue) -> Queue:
    """A new queue, whatever others are called. Its name is its title where that is free and can be
    a name, else something like it.

    Raises QueueTitleInvalid, and QuotaReached.
    """
    title = request.title
    if not title.isprintable() or not title.strip() or len(title) > engine.limits.title_length:
        raise QueueTitleInvalid(engine.limits.title_length)
    attributes = {
        "VisibilityTimeout": str(request.visibility_timeout_seconds),
        "MessageRetentionPeriod": str(KEPT_SECONDS),
    }
    for name in _names(title):
        created = await create_queue(
            engine,
            caller,
            CreateQueue(
                name,
                attributes,
                title=title,
                most_messages=request.most_messages,
                max_deliveries=request.max_deliveries,
            ),
        )
        if created.is_new:
            return created.queue
    raise Unavailable("Every name like this one is being taken by others.")


def _names(title: str) -> Iterator[str]:
    """The title if it can be a name, then names like it that hardly anybody has."""
    if names.is_standard_queue_name(title):
        yield title
    for _ in range(_SUFFIXED):
        yield _suffixed(_NOT_IN_A_NAME.sub("-", title).strip("-"))


def _suffixed(name: str) -> str:
    suffix = token_hex(_SUFFIX_BYTES)
    beginning = name[: _NAME_LENGTH - len(suffix) - 1]
    return f"{beginning}-{suffix}" if beginning else suffix
