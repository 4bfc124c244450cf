"""Facts about millions of numbered messages, in a few bytes each."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, MutableMapping, MutableSet
from typing import Generic, TypeVar

K = TypeVar("K", str, tuple[int, int])
_ABSENT = math.nan


class Numbers(MutableMapping[K, float], Generic[K]):
    """A number for each key, in 8 bytes. Keys are ``producer.count``, or (partition, offset).

    Counts and offsets are expected to start near 0 and to leave no large gaps.
    """

    def __init__(self, given: Iterable[tuple[K, float]] = ()) -> None:
        self._rows: defaultdict[str | int, array[float]] = defaultdict(lambda: array("d"))
        self._count = 0
        self.update(given)

    def __getitem__(self, key: K) -> float:
        row, place = _split(key)
        cells = self._rows.get(row)
        if cells is None or place >= len(cells) or cells[place] != cells[place]:
            raise KeyError(key)
        return cells[place]

    def __setitem__(self, key: K, number: float) -> None:
        row, place = _split(key)
        cells = self._rows[row]
        if place >= len(cells):
            cells.extend([_ABSENT] * (place + 1 - len(cells)))
        self._count += cells[place] != cells[place]
        cells[place] = number

    def __delitem__(self, key: K) -> None:
        _ = self[key]
        row, place = _split(key)
        self._rows[row][place] = _ABSENT
        self._count -= 1

    def __iter__(self) -> Iterator[K]:
        for row, cells in self._rows.items():
            for place, number in enumerate(cells):
                if number == number:
                    yield f"{row}.{place}" if isinstance(row, str) else (row, place)  # type: ignore[misc]

    def __len__(self) -> int:
        return self._count


class Bodies(MutableSet[str]):
    """A set of texts of the form ``producer.count``, in one byte each."""

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._rows: defaultdict[str, bytearray] = defaultdict(bytearray)
        self._count = 0
        self |= given  # type: ignore[arg-type]

    def __contains__(self, body: object) -> bool:
        row, place = _parts(str(body))
        flags = self._rows.get(row)
        return flags is not None and place < len(flags) and bool(flags[place])

    def __iter__(self) -> Iterator[str]:
        for row, flags in self._rows.items():
            for place, flag in enumerate(flags):
                if flag:
                    yield f"{row}.{place}"

    def __len__(self) -> int:
        return self._count

    def add(self, body: str) -> None:
        row, place = _parts(body)
        flags = self._rows[row]
        if place >= len(flags):
            flags.extend(bytes(place + 1 - len(flags)))
        self._count += not flags[place]
        flags[place] = 1

    def discard(self, body: str) -> None:
        if body in self:
            row, place = _parts(body)
            self._rows[row][place] = 0
            self._count -= 1


def _parts(body: str) -> tuple[str, int]:
    row, _, count = body.rpartition(".")
    return row, int(count)


def _split(key: str | tuple[int, int]) -> tuple[str | int, int]:
    if isinstance(key, str):
        return _parts(key)
    return key
