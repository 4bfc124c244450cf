"""Which messages the spool knows, so that a redelivery is not emitted a second time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from spark_connectors.spool.places import Kept, Place


class KnownMessages:
    """Keys of messages by segment. Safe to use from several threads."""

    def __init__(self) -> None:
        self._places: dict[bytes, Place] = {}
        self._keys: dict[Place, Sequence[bytes]] = {}
        self._kept: dict[Place, Kept] = {}
        self._lock = threading.Lock()

    def place_of(self, key: bytes) -> Place | None:
        """The segment that has this message; None: it is new."""
        return self._places.get(key)

    def add(self, place: Place, keys: Sequence[bytes]) -> None:
        """Know the messages of a segment."""
        with self._lock:
            self._keys[place] = keys
            for key in keys:
                self._places[key] = place

    def keys_of(self, place: Place) -> Sequence[bytes] | None:
        """The keys of a segment that is known."""
        return self._keys.get(place)

    def keep(self, kept: Kept) -> None:
        """Forget the segment's messages when their time has come; see ``forget_until``."""
        with self._lock:
            self._kept[kept.place] = kept

    def forget_until(self, now: float) -> list[Kept]:
        """Forget what is due, and say which segments that was."""
        with self._lock:
            due = [kept for kept in self._kept.values() if kept.forget_at <= now]
            for kept in due:
                del self._kept[kept.place]
                for key in self._keys.pop(kept.place, ()):
                    if self._places.get(key) == kept.place:
                        del self._places[key]
        return due

    def __len__(self) -> int:
        return len(self._places)
