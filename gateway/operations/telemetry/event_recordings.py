"""Events of accounts that record them: the last 10,000 of each, and their readers.

Every process hears the events of all recordings on its database in the order of their commits. A
reader holds only a place, however slowly it reads.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from secrets import randbits
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from queuegate.gateway.operations.runtime.background_tasks import StateReloader
from queuegate.storage import account_events
from queuegate.storage.storage_errors import MalformedInput, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.wakeups import Wakeups
    from queuegate.storage.database import Database

_log = logging.getLogger("queuegate.events")

MOST_EVENTS = 10_000
MOST_BYTES = 134_217_728
"""Limit of the kept events of all accounts of a process, exceeded by at most a few percent."""
_EVENT_BYTES = 600
"""Memory of an event beside twice its text: the text is kept, and the members for filters."""
KINDS = ("sent", "received", "deleted", "expired", "dead_lettered", "delivered", "failed", "fired")
_GAP = "gap"
"""The kind of an event in place of those that this process may have missed; all readers get it."""
_READ_SECONDS = 3_600.0
"""A recording that was started by a reader ends so long after the last reader."""
_RENEWED_SECONDS = 60.0
_START_SECONDS = 5.0
_CURSOR = re.compile(r"(\d{1,18})\.(-1|\d{1,18})\.(-?\d{1,18})", re.ASCII)

Event = dict[str, Any]


class _Kept(NamedTuple):
    """An event of a ring. ``shown``: as a Server-Sent Event, encoded once for all readers."""

    number: int
    event: Event
    shown: bytes

    @property
    def size_bytes(self) -> int:
        """Return about the memory of the event."""
        return _EVENT_BYTES + 2 * len(self.shown)


class EventRing:
    """The last events of one recording. Places count its events, from 0.

    A cursor is the recording, a place, and the number of the event before it. A process that may
    have missed events has places of its own: others read -1.
    """

    def __init__(self, recording_id: int) -> None:
        self.recording_id = recording_id
        self.is_ended = False
        self.renewed_at = 0.0
        self.end = 0
        """The place behind the last event."""
        self.size_bytes = 0
        self.changed = asyncio.Event()
        """Set for a moment by each event."""
        self._is_partial = False
        self._events: dict[int, _Kept] = {}
        """By place, in order."""
        self._places: dict[int, int] = {}

    @property
    def start(self) -> int:
        """Return the place of the first kept event."""
        return self.end - len(self._events)

    def add(self, number: int, event: Event) -> None:
        """Add an event, in place of the oldest one if there are too many."""
        cursor = self._cursor(self.end + 1, number).encode()
        kept = _Kept(number, event, b"id: %b\ndata: %b\n\n" % (cursor, orjson.dumps(event)))
        if len(self._events) == MOST_EVENTS:
            oldest = self._events.pop(self.start)
            del self._places[oldest.number]
            self.size_bytes -= oldest.size_bytes
        self._events[self.end] = kept
        self._places[number] = self.end
        self.size_bytes += kept.size_bytes
        self.end += 1
        self.wake()

    def drop_events(self) -> None:
        """Drop all kept events, and note that they are missing."""
        self._events.clear()
        self._places.clear()
        self.size_bytes = 0
        self.add_gap()

    def add_gap(self) -> None:
        """Note that events may be missing here."""
        self._is_partial = True
        self.add(-randbits(50), {"kind": _GAP})

    def finish(self) -> None:
        """End all readers."""
        self.is_ended = True
        self.wake()

    def wake(self) -> None:
        """Wake the readers that wait now."""
        self.changed.set()
        self.changed.clear()

    def at(self, place: int) -> _Kept:
        """Return a kept event."""
        return self._events[place]

    def cursor(self, place: int) -> str:
        """Return the cursor of a place behind a kept event, or of the beginning."""
        return self._cursor(place, self.at(place - 1).number if place else 0)

    def _cursor(self, place: int, number: int) -> str:
        return f"{self.recording_id}.{-1 if self._is_partial else place}.{number}"

    def place_of(self, cursor: str) -> int | None:
        """Return the place of a cursor; None: unknown. Its event may be no longer kept, or not
        heard here yet: notifications reach one process after another. Raises MalformedInput."""
        found = _CURSOR.fullmatch(cursor)
        if found is None:
            raise MalformedInput("after is the cursor `next` of an earlier answer, or now.")
        recording_id, place, number = map(int, found.groups())
        is_unheard = not self._is_partial and place > self.end + MOST_EVENTS
        if recording_id != self.recording_id or is_unheard:
            raise MalformedInput(
                "after is a cursor of another recording of this account: ask without it."
            )
        if number in self._places:
            return self._places[number] + 1
        return None if self._is_partial or place < 0 else place


class EventReader:
    """A place in a ring, from which events of these kinds and with these members are read. Empty:
    any.

    ``lost`` counts events that were dropped before they were read; None: an unknown number.
    """

    def __init__(
        self, ring: EventRing, kinds: Collection[str], members: Mapping[str, str], after: str = ""
    ) -> None:
        self.ring = ring
        self.lost: int | None = 0
        self._kinds = kinds
        self._members = members.items()
        place = ring.end if after == "now" else ring.place_of(after) if after else ring.start
        self._place = ring.start if place is None else place
        self._after = after
        if place is None:
            self.lost = None

    @property
    def cursor(self) -> str:
        """Return the cursor behind what was read."""
        return self._after if self._place > self.ring.end else self.ring.cursor(self._place)

    def read(self, most: int) -> list[_Kept]:
        """Return the next events."""
        ring = self.ring
        missing = ring.start - self._place
        if missing > 0:
            self._place = ring.start
            self.lost = None if self.lost is None else self.lost + missing
        found: list[_Kept] = []
        while self._place < ring.end and len(found) < most:
            kept = ring.at(self._place)
            self._place += 1
            if self._wants(kept.event):
                found.append(kept)
        return found

    def _wants(self, event: Event) -> bool:
        kind = event["kind"]
        if kind != _GAP:
            if self._kinds and kind not in self._kinds:
                return False
            for name, text in self._members:
                if event.get(name) != text:
                    return False
        return True

    async def wait(self, most: int, until: float) -> list[_Kept]:
        """Return the next events as ``read``; none at that time of the loop, or at the end of the
        recording."""
        try:
            async with asyncio.timeout_at(until):
                while not (found := self.read(most)) and not self.ring.is_ended:
                    await self.ring.changed.wait()
        except TimeoutError:
            return []
        return found


async def read_events(
    reader: EventReader, most: int, wait_seconds: float, quiet_seconds: float
) -> tuple[list[Event], bool]:
    """Return events as soon as there are any, or none after ``wait_seconds``.

    With ``quiet_seconds`` wait until nothing came for so long, and return True and what came
    before; False: that can no longer be within the longer of both times.
    """
    loop = asyncio.get_running_loop()
    since = loop.time()
    deadline = since + max(wait_seconds, quiet_seconds)
    found = [one.event for one in reader.read(most)]
    while not reader.ring.is_ended and len(found) < most:
        until = since + quiet_seconds if quiet_seconds else deadline
        if found and (not quiet_seconds or until >= deadline):
            break
        more = await reader.wait(most - len(found), until)
        if not more:
            return found, bool(quiet_seconds) and not reader.ring.is_ended
        found += [one.event for one in more]
        since = loop.time()
    return found, False


class EventRecordings(StateReloader):
    """The rings of this process, by account."""

    def __init__(self, database: Database, clock: Clock, wakeups: Wakeups) -> None:
        super().__init__(_log, "cannot read which accounts record events")
        self._database = database
        self._clock = clock
        self.rings: dict[str, EventRing] = {}
        """Always the same dictionary: workers check if an account records."""
        self._unchecked_bytes = 0
        self._started = asyncio.Event()
        wakeups.on["recording_changed"] = self._changed
        wakeups.on_event = self._heard

    async def ring_of(self, account_id: str, *, is_kept: bool = False) -> EventRing:
        """Return the ring of an account, and start its recording: until ``stop``, if ``is_kept``.
        Raises OverLimit and Unavailable."""
        now = asyncio.get_running_loop().time()
        ring = self.rings.get(account_id)
        if ring is None or is_kept or now > ring.renewed_at + _RENEWED_SECONDS:
            seconds = None if is_kept else _READ_SECONDS
            await account_events.start(self._database, account_id, seconds)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    while (ring := self.rings.get(account_id)) is None:
                        await self._started.wait()
            except TimeoutError:
                raise Unavailable("The database has not announced the recording.") from None
            ring.renewed_at = now
        return ring

    async def stop(self, account_id: str) -> None:
        """Stop the recording of an account. Its readers end."""
        async with self._database.transaction() as tx:
            await account_events.stop(tx, account_id)

    def end_reads(self) -> None:
        """End all readers, because the gateway stops."""
        for ring in self.rings.values():
            ring.finish()

    def _changed(self, number: int | None, recording_id: int) -> None:
        is_loaded = self._task is not None and self._task.done()
        if number is not None and is_loaded:
            self._use(f"{number:012d}", recording_id)
            return
        # A recording that is unknown before a reload may be old: the reload notes a gap.
        if number is None:
            for ring in self.rings.values():
                ring.add_gap()
        self._is_stale = True
        self._begin()

    def _use(self, account_id: str, recording_id: int) -> EventRing | None:
        """Return the new ring of a new recording; 0: there is none."""
        ring = self.rings.get(account_id)
        if ring is not None and ring.recording_id == recording_id:
            return None
        if ring is not None:
            self.rings.pop(account_id).finish()
        if not recording_id:
            return None
        ring = self.rings[account_id] = EventRing(recording_id)
        self._started.set()
        self._started.clear()
        return ring

    async def _read(self) -> None:
        self._is_stale = False
        try:
            async with self._database.transaction() as tx:
                found = await account_events.recordings(tx)
        except BaseException:
            self._is_stale = True
            raise
        for account_id in self.rings.keys() | found.keys():
            ring = self._use(account_id, found.get(account_id, 0))
            if ring is not None:
                ring.add_gap()

    def _heard(self, payload: str) -> None:
        noted = orjson.loads(payload)
        ring = self.rings.get(noted["account"])
        if ring is None:
            return
        event: Event = noted["event"]
        clock = self._clock.of(noted["account"])
        now = clock.timestamp() if clock.is_frozen else noted["at"] + clock.timestamp() - time()
        if event.pop("ends_at", now + 1) <= now:
            event["kind"] = "expired"
        event["at"] = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        ring.add(noted["id"], event)
        # Rings are in the order of their last events.
        self.rings[noted["account"]] = self.rings.pop(noted["account"])
        self._unchecked_bytes += len(payload)
        if self._unchecked_bytes > MOST_BYTES // 64:
            self._unchecked_bytes = 0
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Keep ``MOST_BYTES`` of events: drop those of accounts without events for the longest."""
        excess = sum(ring.size_bytes for ring in self.rings.values()) - MOST_BYTES
        for ring in self.rings.values():
            # A gap alone stays.
            if excess > 0 and ring.end - ring.start > 1:
                excess -= ring.size_bytes
                ring.drop_events()
