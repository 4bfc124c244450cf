"""Tags of queues, topics and groups of schedules: names with values that mean nothing to us.

The rules are the same everywhere; what is said of a tag that breaks one is the service's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from queuegate.protocol import names
from queuegate.storage.errors import Rejected

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From the tags that are there to those that are to be."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How many tags something has at most, and the refusals of a service."""

    most: int
    too_many: Callable[[], Rejected]
    bad_key: Callable[[], Rejected]
    bad_value: Callable[[], Rejected]
    twice: Callable[[str], Rejected] | None = None
    """Of the key; None where a request cannot have one twice."""

    def check_count(self, count: int) -> None:
        """Refuse too many."""
        if count > self.most:
            raise self.too_many()

    def check_key(self, key: str) -> None:
        """Refuse a key that none can have."""
        if not names.is_tag_key(key):
            raise self.bad_key()

    def checked(self, given: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Tags as they are stored, in the order in which they were given."""
        tags: dict[str, str] = {}
        for key, value in given:
            self.check_key(key)
            if not names.is_tag_value(value):
                raise self.bad_value()
            if self.twice is not None and key in tags:
                raise self.twice(key)
            tags[key] = value
        return tags

    def adding(self, added: Mapping[str, str]) -> Change:
        """One whose key is there already gets the new value. Keys are case-sensitive."""

        def change(tags: Mapping[str, str]) -> Mapping[str, str]:
            merged = {**tags, **added}
            self.check_count(len(merged))
            return merged

        return change


def removing(keys: Iterable[str]) -> Change:
    """Keys that are not there are ignored."""
    removed = frozenset(keys)
    return lambda tags: {key: value for key, value in tags.items() if key not in removed}
