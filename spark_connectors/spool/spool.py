"""One spool: segments, what was deleted from the queue since, and the ids to remember."""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError
from spark_connectors.rows.keys import message_key
from spark_connectors.spool.places import (
    ACKNOWLEDGED,
    ASIDE,
    DONE,
    DRIVERS,
    DROPPED,
    IDENTITY,
    IDS,
    ORDER,
    SEGMENTS,
    TAKEN_OVER,
    Kept,
    Place,
    kept_of,
    place_of,
    segment_name,
)
from spark_connectors.spool.segments import Damaged, Misplaced, Segment
from spark_connectors.spool.stores import Missing, Store

_VERSION = 1
_KEY_BYTES = 16
_SPOOL, _PLACE = "spool", "place"


# The mode of a spool that is kept and read again; those of streams may follow each other.
DRAIN = "drain"


class SpoolMismatch(ConnectorError):
    """The spool is another query's, another queue's, or not the one that the checkpoint knows."""


class SpoolTaken(ConnectorError):
    """Another process writes to this spool: two queries share it, or one was not yet dead."""


class Contents(NamedTuple):
    """What lies in a spool at one moment. ``done`` and ``ids``: messages deleted from the queue;
    ``acknowledged``: Spark committed everything up to that batch, and maybe more; ``taken_over``:
    what was acknowledged when a query with another checkpoint began to use it. ``ghosts``: segments
    that somebody wrote who was held up until their batch had been dropped; they are nobody's.
    ``dropped``: segments up to that batch were removed, or are being removed. ``sizes``: bytes of
    the segments."""

    segments: list[Place]
    done: dict[Place, Kept]
    ids: dict[Place, Kept]
    acknowledged: int
    taken_over: int | None = None
    ghosts: Sequence[Place] = ()
    dropped: int = 0
    sizes: Mapping[Place, int] = MappingProxyType({})

    @property
    def is_just_taken_over(self) -> bool:
        """Whether it was taken over and nothing has been committed since: what lies behind
        ``acknowledged`` is that query's own, and maybe nowhere else."""
        return self.taken_over == self.acknowledged

    @property
    def highest(self) -> int:
        """The highest batch of which there is a trace."""
        places = (*self.segments, *self.done, *self.ids)
        return max((self.acknowledged, *(place.seq for place in places)))

    def gone(self, after: int) -> list[Kept]:
        """Segments behind that batch which are not there, though they are marked done and nobody
        dropped them. A segment is there before its mark, and ``dropped`` is told before it goes."""
        present, least = {*self.segments}, max(after, self.dropped)
        return [
            kept
            for place, kept in sorted(self.done.items(), key=lambda item: item[0].order)
            if place.seq > least and place not in present
        ]


class Spool:
    """A spool in a store. Everything it does may be repeated after a crash in the middle of it."""

    def __init__(self, store: Store, identity: str) -> None:
        self.store = store
        self.identity = identity

    @classmethod
    def open(cls, store: Store, *, queue: str, mode: str) -> Spool:
        """The spool of this queue there, created when there is none.

        Raises SpoolMismatch when it is of another queue, or a drain's and not a stream's.
        """
        fresh = {"version": _VERSION, "spool": str(uuid.uuid4()), "queue": queue, "mode": mode}
        store.put_if_absent(IDENTITY, json.dumps(fresh).encode())
        try:
            found = _described(store)
        except SpoolMismatch as broken:
            lost = "the spool that the newest file in the checkpoint's offsets names"
            raise SpoolMismatch(
                f"{broken}: put it back from a copy, or write it anew as "
                f"{json.dumps({**fresh, 'spool': f'<{lost}>'})}"
            ) from None
        identity, version = found["spool"], found["version"]
        if version != _VERSION:
            raise SpoolMismatch(
                f"the spool has version {version}, and this is a reader of {_VERSION}: use the "
                "connectors that wrote it, or a spoolPath and a checkpoint of its own"
            )
        there = found.get("mode")
        if found.get("queue") != queue:
            raise SpoolMismatch(_of_another("queue", str(found.get("queue")), queue))
        if there != mode and DRAIN in (there, mode):
            raise SpoolMismatch(_of_another("mode", str(there), mode))
        return cls(store, identity)

    @staticmethod
    def identity_at(store: Store) -> str | None:
        """Which spool is there; None: there is none. Raises SpoolMismatch for a broken one."""
        try:
            return str(_described(store)["spool"])
        except Missing:
            return None

    def put(self, place: Place, data: bytes) -> bool:
        """Write a segment; when this returns True it survives a crash. False: there was one.

        Raises SpoolTaken when there was one, and it was committed and dropped since.
        """
        if not self.store.put_if_absent(segment_name(place), data):
            return False
        try:
            self._refuse_dropped(place)
        except SpoolTaken:
            self.store.remove(segment_name(place))
            raise
        return True

    def was_written(self, place: Place) -> bool:
        """Whether a slot's segment has been there, though it may not be any more: its rows were
        handed out, for which it took a number, or its messages were deleted.

        Raises SpoolTaken when it was committed and dropped since.
        """
        batch = f"{Place(place.seq)}-"
        slots = {kept.slot for kept in self._kept(f"{DONE}{batch}")}
        for name in self.store.names(f"{ORDER}{batch}"):
            with contextlib.suppress(Missing):
                slots.add(int(self.store.get(name)))
        if place.slot not in slots:
            return False
        self._refuse_dropped(place)
        return True

    def _refuse_dropped(self, place: Place) -> None:
        if place.seq <= self._dropped():
            raise SpoolTaken(
                f"batch {place.seq} was committed long ago and is no longer in the spool: this "
                "process was held up, and another one went on"
            )

    def read(self, place: Place) -> Segment:
        """The segment. Raises Missing, Damaged."""
        name = segment_name(place)
        return self._checked(Segment(self.store.get(name), name), place)

    def read_slot(self, place: Place, number: int) -> Segment:
        """The segment as far as it takes to read that slot. Raises Missing, Damaged."""
        name = segment_name(place)
        return self._checked(Segment.with_slot(self.store, name, number), place)

    def note_of(self, place: Place) -> dict[str, str]:
        """Metadata that names a segment's spool and place."""
        return {_SPOOL: self.identity, _PLACE: str(place)}

    def _checked(self, segment: Segment, place: Place) -> Segment:
        """The segment, if it was written for this place; earlier versions do not note that."""
        ours = self.note_of(place)
        noted = {name: segment.metadata.get(name, ours[name]) for name in ours}
        if noted != ours:
            raise Misplaced(segment_name(place), noted[_SPOOL], noted[_PLACE])
        return segment

    def contents(self) -> Contents:
        """List everything."""
        files = self.store.sizes(SEGMENTS).items()
        sizes = {place: size for name, size in files if (place := place_of(name)) is not None}
        places = sorted(sizes, key=lambda place: place.order)
        dropped = self._dropped()
        done = self._kept(DONE)
        ghosts = [place for place in places if place.seq <= dropped and place not in done]
        segments = [place for place in places if place not in ghosts] if ghosts else places
        # What was dropped was acknowledged, though a crash may have come before that mark.
        acknowledged = max([dropped, *self._marks(ACKNOWLEDGED)])
        taken_over = max(self._marks(TAKEN_OVER), default=None)
        ids = self._kept(IDS)
        return Contents(segments, done, ids, acknowledged, taken_over, ghosts, dropped, sizes)

    def damaged(self, contents: Contents, after: int, now: float) -> list[tuple[Place, Damaged]]:
        """Segments that cannot be read, and why: of those behind that batch, and of those whose
        messages may still be deleted or come again."""
        found = []
        for place in contents.segments:
            kept = contents.done.get(place)
            if place.seq > after or kept is None or kept.forget_at > now:
                try:
                    self.read(place)
                except Damaged as bad:
                    found.append((place, bad))
                except Missing:
                    # Somebody dropped it meanwhile, or `lost` tells of it.
                    continue
        return found

    def replace(self, place: Place, data: bytes) -> None:
        """Put this in the place of a damaged segment, of which a copy stays: a number that is
        missing between others would tell of a loss at every start."""
        name = segment_name(place)
        self.store.put_if_absent(f"{ASIDE}{name}", self.store.get(name))
        self.store.remove(name)
        self.store.put_if_absent(name, data)

    def lost(self, contents: Contents, after: int) -> list[Kept]:
        """Segments behind that batch whose messages are nowhere any more: neither in the spool nor,
        as they were deleted, in the queue."""
        if not contents.gone(after):
            return []
        # Somebody may have written a segment and its mark while we listed one after the other.
        return self.contents()._replace(done=contents.done).gone(after)

    def _dropped(self) -> int:
        return max(self._marks(DROPPED), default=0)

    def _marks(self, prefix: str) -> list[int]:
        names = (name.removeprefix(prefix) for name in self.store.names(prefix))
        return [int(name) for name in names if name.isdigit()]

    def _mark(self, prefix: str, seq: int) -> None:
        before = self._marks(prefix)
        self.store.put_if_absent(f"{prefix}{seq:012}", b"")
        for older in before:
            if older < seq:
                self.store.remove(f"{prefix}{older:012}")

    def enter(self) -> int:
        """Be the driver of this spool from now on. Returns its number, the highest so far."""
        number = 0
        # A listing may be older than what it lists, where the storage keeps listings.
        while (highest := max(self._marks(DRIVERS), default=0)) > number or not number:
            number = max(highest, number) + 1
            while not self.store.put_if_absent(f"{DRIVERS}{number:012}", b""):
                number += 1
        for older in self._marks(DRIVERS):
            if older < number:
                self.store.remove(f"{DRIVERS}{older:012}")
        return number

    def is_entered_after(self, number: int) -> bool:
        """Whether another driver came after this one."""
        return max(self._marks(DRIVERS), default=0) > number

    def acknowledge(self, seq: int) -> None:
        """Remember that Spark has committed up to this batch."""
        self._mark(ACKNOWLEDGED, seq)

    def take_over(self, seq: int) -> None:
        """Remember that a query with another checkpoint goes on behind this batch."""
        self._mark(ACKNOWLEDGED, seq)
        self._mark(TAKEN_OVER, seq)

    def clear(self, contents: Contents) -> None:
        """Remove everything but the spool's identity and how far it was acknowledged."""
        # Marks first: one without its segment tells of a loss.
        for kept in (*contents.done.values(), *contents.ids.values()):
            self.unmark(kept)
            self.forget(kept)
        for place in contents.segments:
            self.discard(place)
        self.lay(contents.ghosts)

    def discard(self, place: Place) -> None:
        """Remove a segment, and what says that it was written."""
        if place.slot is not None:
            self.store.remove(f"{ORDER}{place}")
        self.store.remove(segment_name(place))

    def lay(self, ghosts: Sequence[Place]) -> None:
        """Remove segments that are nobody's."""
        for place in ghosts:
            self.store.remove(segment_name(place))

    def _kept(self, prefix: str) -> dict[Place, Kept]:
        found = (kept_of(name) for name in self.store.names(prefix))
        return {kept.place: kept for kept in found if kept is not None}

    def slots_before(self, place: Place) -> list[Place]:
        """Slots of the same batch whose segments were written before this one's, which is written.

        Always the same answer: each slot takes the next free number of its batch, once.
        """
        before: list[Place] = []
        for number in itertools.count():
            name = f"{ORDER}{Place(place.seq, number)}"
            self.store.put_if_absent(name, str(place.slot).encode())
            slot = int(self.store.get(name))
            if slot == place.slot:
                break
            before.append(Place(place.seq, slot))
        return before

    def mark_done(self, kept: Kept) -> None:
        """Remember that the segment's messages were deleted from the queue."""
        self.store.put_if_absent(f"{DONE}{kept}", b"")

    def unmark(self, kept: Kept) -> None:
        """Take back ``mark_done``."""
        self.store.remove(f"{DONE}{kept}")

    def mark_dropped(self, seq: int) -> None:
        """Remember, before segments are dropped, that everything up to that batch is done: what is
        written there from now on is nobody's."""
        self._mark(DROPPED, seq)

    def drop(self, kept: Kept, keys: Sequence[bytes] | None, now: float) -> None:
        """Remove a segment that is done, but keep its ids for as long as they are needed.

        ``keys``: its message keys; None: read them from the segment.
        """
        if kept.forget_at > now:
            try:
                data = b"".join(keys if keys is not None else self.keys(kept.place))
            except Missing:
                data = None
            if data is not None:
                self.store.put_if_absent(f"{IDS}{kept}", data)
        self.store.remove(segment_name(kept.place))
        if kept.place.slot is not None:
            self.store.remove(f"{ORDER}{kept.place}")
        self.unmark(kept)

    def forget(self, kept: Kept) -> None:
        """Remove ids that outlived their use."""
        self.store.remove(f"{IDS}{kept}")

    def keys(self, place: Place) -> list[bytes]:
        """Keys of a segment's messages. Raises Missing, Damaged."""
        return [message_key(one) for one in self.read(place).message_ids()]

    def kept_keys(self, kept: Kept) -> list[bytes]:
        """Keys in a file of ids."""
        data = self.store.get(f"{IDS}{kept}")
        return [data[at : at + _KEY_BYTES] for at in range(0, len(data), _KEY_BYTES)]

    def _keys_of_dropped(self, place: Place) -> list[bytes]:
        found: list[bytes] = []
        for kept in self._kept(f"{IDS}{place}~").values():
            with contextlib.suppress(Missing):
                found += self.kept_keys(kept)
        return found

    def remembered(self, contents: Contents, now: float) -> Iterable[tuple[Place, list[bytes]]]:
        """Keys that a redelivery must be held against, by segment; reads each file it needs.

        Somebody may drop segments meanwhile: their ids were written before they went.
        """
        for place in contents.segments:
            kept = contents.done.get(place)
            if kept is None or kept.forget_at > now:
                try:
                    keys = self.keys(place)
                except Missing:
                    keys = self._keys_of_dropped(place)
                yield place, keys
        for kept in contents.ids.values():
            if kept.forget_at > now and kept.place not in contents.segments:
                try:
                    keys = self.kept_keys(kept)
                except Missing:
                    continue
                yield kept.place, keys


def _of_another(name: str, found: str, wanted: str) -> str:
    return (
        f"the spool is of {name} '{found}', not '{wanted}': give each query a spoolPath and a "
        "checkpoint of its own"
    )


def _described(store: Store) -> dict[str, Any]:
    """What the spool there says of itself. Raises Missing, and SpoolMismatch."""
    try:
        found: dict[str, Any] = json.loads(store.get(IDENTITY))
        return {**found, "spool": str(found["spool"]), "version": found["version"]}
    except (ValueError, KeyError, TypeError):
        raise SpoolMismatch(f"{IDENTITY} in the spool cannot be read") from None
