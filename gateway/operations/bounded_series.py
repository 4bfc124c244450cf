"""Series by a key: so many at most, and what comes after them is counted together."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from typing import Generic, Protocol, Self, TypeVar


class _Counted(Protocol):
    def uses(self) -> int:
        """How much was counted, whatever it was."""


Key = TypeVar("Key", bound=Hashable)
Counted = TypeVar("Counted", bound=_Counted)


class BoundedSeries(Generic[Key, Counted]):
    """``most`` of them; ``other`` counts for all that come after."""

    def __init__(self, most: int, other: Counted) -> None:
        self._most = most
        self._series: dict[Key, Counted] = {}
        self._other = other
        self._used_before: dict[Key, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether what is not here yet is counted with others."""
        return len(self._series) >= self._most

    def shown(self) -> list[Counted]:
        """All of them, and what is counted together if there is any."""
        return [*self._series.values(), *([self._other] if self._other.uses() else [])]

    def copy(self) -> Self:
        """The same numbers, for a thread to walk through while more are added here."""
        same = copy(self)
        same._series = self._series.copy()
        return same

    def unused(self) -> dict[Key, Counted]:
        """Those for which nothing was counted since the last call of this: what they stand for may
        be gone."""
        uses = {key: series.uses() for key, series in self._series.items()}
        before, self._used_before = self._used_before, uses
        return {key: self._series[key] for key, used in uses.items() if before.get(key) == used}

    def forget(self, key: Key) -> None:
        """What they stand for is gone: they disappear."""
        self._series.pop(key, None)
