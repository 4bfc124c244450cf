"""Series of topics and consumer groups: a maximum number with labels of their own, all others
counted together."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from queuegate.protocol import arns

if TYPE_CHECKING:
    from queuegate.storage.model import ConsumerGroup, StoredLog, Topic


class _Counted(Protocol):
    def uses(self) -> int:
        """Return the sum of all counts."""


Key = TypeVar("Key", bound=Hashable)
Counted = TypeVar("Counted", bound=_Counted)


class BoundedSeries(Generic[Key, Counted]):
    """At most ``most`` series by key; ``other`` counts for all later keys."""

    def __init__(self, most: int, other: Counted) -> None:
        self._most = most
        self._series: dict[Key, Counted] = {}
        self._other = other
        self._used_before: dict[Key, int] = {}

    @property
    def is_full(self) -> bool:
        """Return True if new keys are counted with others."""
        return len(self._series) >= self._most

    def shown(self) -> list[Counted]:
        """Return all series, and the common one if it has counts."""
        return [*self._series.values(), *([self._other] if self._other.uses() else [])]

    def copy(self) -> Self:
        """Return a copy, for a thread to iterate over while series are added here."""
        same = copy(self)
        same._series = self._series.copy()
        return same

    def unused(self) -> dict[Key, Counted]:
        """Return the series without new counts since the last call; their resources may have been
        deleted."""
        uses = {key: series.uses() for key, series in self._series.items()}
        before, self._used_before = self._used_before, uses
        return {key: self._series[key] for key, used in uses.items() if before.get(key) == used}

    def forget(self, key: Key) -> None:
        """Remove the series of a deleted resource."""
        self._series.pop(key, None)


@dataclass(slots=True, eq=False)
class GroupSeries:
    """The counts of one group."""

    account_id: str
    region: str
    log: str
    name: str
    delivered: int = 0
    redelivered: int = 0
    buried: int = 0
    fed: int = 0

    def labels(self) -> tuple[str, str, str, str]:
        """Return the labels: account, region, log and name."""
        return self.account_id, self.region, self.log, self.name

    def uses(self) -> int:
        """Return the sum of all counts."""
        return self.delivered + self.buried + self.fed


class GroupNumbers(BoundedSeries[int, GroupSeries]):
    """The series of at most ``most`` groups by number; all later groups have the labels _other."""

    def __init__(self, most: int) -> None:
        super().__init__(most, GroupSeries("_other", "_other", "_other", "_other"))

    def of(self, log: StoredLog, group: ConsumerGroup) -> GroupSeries:
        """Return the series of a group."""
        series = self._series.get(group.group_id)
        if series is None:
            if self.is_full:
                return self._other
            series = GroupSeries(log.account_id, log.region, log.name, group.name)
            self._series[group.group_id] = series
        return series


@dataclass(slots=True, eq=False)
class TopicSeries:
    """The counts of one topic."""

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
        """Return the labels: account, region and name."""
        return self.account_id, self.region, self.name

    def uses(self) -> int:
        """Return the sum of all counts."""
        return sum([getattr(self, counter.name) for counter in fields(self)[3:]])


class TopicNumbers(BoundedSeries[str, TopicSeries]):
    """The series of at most ``most`` topics by ARN; all later topics have the labels _other. Events
    whose routing keys are not topics have the labels _events, because the number of keys is not
    limited."""

    def __init__(self, most: int) -> None:
        super().__init__(most, TopicSeries("_other", "_other", "_other"))
        self._events = TopicSeries("_events", "_events", "_events")

    def of(self, topic: Topic) -> TopicSeries:
        """Return the series of a topic."""
        series = self._series.get(topic.arn)
        if series is not None:
            return series
        if not topic.topic_id:
            return self._events
        return self._begin(topic.account_id, topic.region, topic.name)

    def of_delivery(self, account_id: str, region: str, topic_name: str) -> TopicSeries:
        """Return the series of a delivery's source: a topic, or a routing key, which may have
        dots."""
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
        """Return all series, and the common ones if they have counts."""
        return [*super().shown(), *([self._events] if self._events.uses() else [])]
