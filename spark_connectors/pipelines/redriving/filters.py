"""Which dead letters a redrive takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from spark_connectors.pipelines.reports.error_classes import Classifier
from spark_connectors.rows.received import Received
from spark_connectors.transport.aws.wire import Message

# Which of some messages match: what --where needs Spark for.
Condition = Callable[[Sequence[Received]], set[str]]


class Filters(NamedTuple):
    """All that are given must hold. ``error_class`` may end with ``*``; ``source`` is a queue's
    name or ARN; ``older_than_seconds`` counts from when a message was first sent."""

    error_class: str | None = None
    classifier: Classifier = Classifier()
    groups: tuple[str, ...] = ()
    source: str | None = None
    older_than_seconds: float | None = None
    condition: Condition | None = None

    @property
    def are_none(self) -> bool:
        """Whether every message matches."""
        return self == Filters(classifier=self.classifier)

    def matching(self, received: Sequence[Received]) -> set[str]:
        """The message ids of those that match."""
        found = {str(one.message["MessageId"]) for one in received if self._matches(one.message)}
        if self.condition is None or not found:
            return found
        return found & self.condition(received)

    def _matches(self, message: Message) -> bool:
        system: Mapping[str, str] = message.get("Attributes") or {}
        if self.groups and system.get("MessageGroupId") not in self.groups:
            return False
        if self.source is not None and self.source not in (
            system.get("DeadLetterQueueSourceArn"),
            source_name(message),
        ):
            return False
        if self.older_than_seconds is not None:
            sent = int(system.get("SentTimestamp", "0")) / 1000
            if time.time() - sent < self.older_than_seconds:
                return False
        return self.error_class is None or self._is_of_class(message)

    def _is_of_class(self, message: Message) -> bool:
        assert self.error_class is not None
        given: Mapping[str, Mapping[str, str]] = message.get("MessageAttributes") or {}
        texts = {name: value.get("StringValue") for name, value in given.items()}
        found = self.classifier.error_class(str(message.get("Body", "")), texts)
        if self.error_class.endswith("*"):
            return found.startswith(self.error_class[:-1])
        return found == self.error_class


def source_name(message: Message) -> str | None:
    """The queue that gave the message up; None when it was sent to the dead-letter queue itself."""
    arn = (message.get("Attributes") or {}).get("DeadLetterQueueSourceArn")
    return None if arn is None else str(arn).rpartition(":")[2]


def duration(text: str) -> float:
    """Seconds of ``90s``, ``15m``, ``6h``, ``2d`` or a plain number. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise ValueError(f"'{text}' is no duration such as 90s, 15m, 6h or 2d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]
