"""Names of what lies in a spool. A name says all that a listing needs: no file is opened for it."""

from __future__ import annotations

from typing import NamedTuple

SEGMENTS = "segments/"
DONE = "done/"
IDS = "ids/"
ACKNOWLEDGED = "acknowledged/"
TAKEN_OVER = "taken-over/"
ORDER = "order/"
DRIVERS = "drivers/"
DROPPED = "dropped/"
ASIDE = "damaged/"
IDENTITY = "spool.json"


class Place(NamedTuple):
    """Where a segment lies: batch ``seq``, and in executor mode the slot within it."""

    seq: int
    slot: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """To sort places of both modes by."""
        return self.seq, -1 if self.slot is None else self.slot

    def __str__(self) -> str:
        return f"{self.seq:012}" + ("" if self.slot is None else f"-{self.slot:04}")


class Kept(NamedTuple):
    """What a name in ``done/`` or ``ids/`` says of a segment whose messages were deleted.

    Its message ids are remembered until ``forget_at`` (epoch seconds).
    """

    place: Place
    forget_at: int
    rows: int

    def __str__(self) -> str:
        return f"{self.place}~{self.forget_at}~{self.rows}"


def segment_name(place: Place) -> str:
    """The segment's file."""
    return f"{SEGMENTS}{place}.arrow"


def place_of(name: str) -> Place | None:
    """The place whose segment has this name; None when no segment has."""
    return _place(name.removeprefix(SEGMENTS).removesuffix(".arrow"))


def kept_of(name: str) -> Kept | None:
    """What this name in ``done/`` or ``ids/`` says; None when it says nothing."""
    place_text, *numbers = name.rpartition("/")[2].split("~")
    place = _place(place_text)
    if place is None or len(numbers) != 2 or not all(one.isdigit() for one in numbers):
        return None
    return Kept(place, int(numbers[0]), int(numbers[1]))


def _place(text: str) -> Place | None:
    seq, dash, slot = text.partition("-")
    if not seq.isdigit() or (dash and not slot.isdigit()):
        return None
    return Place(int(seq), int(slot) if dash else None)
