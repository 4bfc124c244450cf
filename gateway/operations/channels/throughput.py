"""How fast channels go: from what the database has counted, between two looks at it.

So the figures are of all gateways, whichever is asked, and cost nothing while nobody asks.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from queuegate.storage.model import Queue

_SPAN_SECONDS = 60.0
_APART_SECONDS = 5.0
_MOST_CHANNELS = 10_000


class Totals(NamedTuple):
    """What a channel has seen up to an instant."""

    at: datetime
    published: int
    finished: int
    """Messages that it does not hold any more."""
    dead: int
    """Messages that became dead letters."""


class Rates(NamedTuple):
    """How many a second, over so many seconds before the look."""

    over_seconds: float
    published: float
    finished: float
    dead: float


class Throughput:
    """Remembers looks of the last minute."""

    def __init__(self) -> None:
        self._looks: dict[int, deque[Totals]] = {}

    def rates(self, channel: Queue, totals: Totals) -> Rates:
        """Since the first look within the last minute, else since the last one; at the very first
        since the channel was made."""
        looks = self._looks.get(channel.queue_id)
        if looks is None:
            if len(self._looks) >= _MOST_CHANNELS:
                del self._looks[next(iter(self._looks))]
            looks = self._looks[channel.queue_id] = deque([Totals(channel.created_at, 0, 0, 0)])
        while len(looks) > 1 and (totals.at - looks[0].at).total_seconds() > _SPAN_SECONDS:
            looks.popleft()
        first = looks[0]
        if (totals.at - looks[-1].at).total_seconds() >= _APART_SECONDS:
            looks.append(totals)
        seconds = max((totals.at - first.at).total_seconds(), 1.0)
        return Rates(
            seconds,
            (totals.published - first.published) / seconds,
            (totals.finished - first.finished) / seconds,
            (totals.dead - first.dead) / seconds,
        )
