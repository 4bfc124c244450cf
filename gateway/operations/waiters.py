"""Who is parked until something may have become visible (wakeups.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from queuegate.storage.queues.message_entries import Receive


def place_of_pause(queue_id: int) -> int:
    """Return the place where receives of a paused queue park: no send, no look and no hint concerns
    it, only a change of the queue. It is negative and no place of a log
    (``gateway.operations.logs.places``)."""
    return -(1 << 52) - queue_id


class Waiter(Protocol):
    """A parked receive."""

    def wake(self) -> None:
        """Something may be there; the waiter is no longer parked."""


class Taker(Waiter, Protocol):
    """A receive that is parked on a queue."""

    def take(self) -> Receive | None:
        """What it asks for, to be answered with what is being sent; it is no longer parked then.
        None: it has to look for itself."""


class Listener:
    """A waiter that is parked whether or not a caller waits."""

    __slots__ = ()
