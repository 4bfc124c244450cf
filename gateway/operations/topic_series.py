"""What this process counts for topics, by topic: plain numbers, as in ``series``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from queuegate.gateway.operations.bounded_series import BoundedSeries
from queuegate.protocol import arns

if TYPE_CHECKING:
    from queuegate.storage.model import Topic


@dataclass(slots=True, eq=False)
class TopicSeries:
    """The numbers of one topic."""

    account_id: str
    region: str
    name: str
    published: int = 0
    queue_copies: int = 0
    web_hook_copies: int = 0
    log_copies: int = 0
    outbox_copies: int = 0
    copies_kept: int = 0
    copies_dropped: int = 0
    copies_barred: int = 0
    attempts_succeeded: int = 0
    attempts_failed: int = 0
    deliveries_exhausted: int = 0

    def labels(self) -> tuple[str, str, str]:
        """What tells it apart: account, region and name."""
        return self.account_id, self.region, self.name

    def uses(self) -> int:
        """How much was counted, whatever it was."""
        return sum([getattr(self, counter.name) for counter in fields(self)[3:]])


class TopicNumbers(BoundedSeries[str, TopicSeries]):
    """The series of topics by their ARN, ``most`` of them; what comes after them is counted under
    the labels _other. Events whose keys are no topics are counted together, under _events: there
    may be any number of keys."""

    def __init__(self, most: int) -> None:
        super().__init__(most, TopicSeries("_other", "_other", "_other"))
        self._events = TopicSeries("_events", "_events", "_events")

    def of(self, topic: Topic) -> TopicSeries:
        """Those of a topic."""
        series = self._series.get(topic.arn)
        if series is not None:
            return series
        if not topic.topic_id:
            return self._events
        return self._begin(topic.account_id, topic.region, topic.name)

    def of_delivery(self, account_id: str, region: str, topic_name: str) -> TopicSeries:
        """Those of what a delivery came from: a topic, or a routing key, which may have dots."""
        series = self._series.get(arns.topic_arn(region, account_id, topic_name))
        if series is not None:
            return series
        if "." in topic_name.removesuffix(".fifo"):
            return self._events
        return self._begin(account_id, region, topic_name)

    def _begin(self, account_id: str, region: str, name: str) -> TopicSeries:
        if self.is_full:
            return self._other
        series = TopicSeries(account_id, region, name)
        self._series[arns.topic_arn(region, account_id, name)] = series
        return series

    def shown(self) -> list[TopicSeries]:
        """Every topic with series of its own, and what is counted together if there is any."""
        return [*super().shown(), *([self._events] if self._events.uses() else [])]
