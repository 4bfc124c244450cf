"""Rates of channels, from totals of the database at two times.

Rates are those of all gateways, and cost nothing unless requested.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from queuegate.storage.queue_model import Queue

_SPAN_SECONDS = 60.0
_APART_SECONDS = 5.0
_MOST_CHANNELS = 10_000


class ChannelTotals(NamedTuple):
    """Totals of a channel at an instant."""

    at: datetime
    published: int
    finished: int
    """Messages that were deleted."""
    dead: int
    """Messages that were dead-lettered."""


class ChannelRates(NamedTuple):
    """Messages per second, over ``seconds``."""

    over_seconds: float
    published: float
    finished: float
    dead: float


class Throughput:
    """A memory of the totals of the last minute."""

    def __init__(self) -> None:
        self._looks: dict[int, deque[ChannelTotals]] = {}

    def rates(self, channel: Queue, totals: ChannelTotals) -> ChannelRates:
        """Return rates since the first totals of the last minute, or else since the last totals; at
        the first request, since the channel was created."""
        looks = self._looks.get(channel.queue_id)
        if looks is None:
            if len(self._looks) >= _MOST_CHANNELS:
                del self._looks[next(iter(self._looks))]
            looks = self._looks[channel.queue_id] = deque(
                [ChannelTotals(channel.created_at, 0, 0, 0)]
            )
        while len(looks) > 1 and (totals.at - looks[0].at).total_seconds() > _SPAN_SECONDS:
            looks.popleft()
        first = looks[0]
        if (totals.at - looks[-1].at).total_seconds() >= _APART_SECONDS:
            looks.append(totals)
        seconds = max((totals.at - first.at).total_seconds(), 1.0)
        return ChannelRates(
            seconds,
            (totals.published - first.published) / seconds,
            (totals.finished - first.finished) / seconds,
            (totals.dead - first.dead) / seconds,
        )
