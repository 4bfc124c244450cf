"""IANA time zones by name, and the instants of local times."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from queuegate.protocol.expressions.refusal import Unparsable, shown

_SECOND = timedelta(seconds=1)
# An entry of the list that is no place: it exists for computers that were never set up.
_NO_ZONES = frozenset({"Factory"})


def zone_named(name: str) -> ZoneInfo:
    """The zone; Unparsable for a name that the IANA list does not have, with names that are near.

    Names are compared with the list and not with files, so that every machine takes the same ones.
    """
    if name not in _names():
        raise Unparsable(
            f"Unknown timezone {shown(name)}: use an IANA name such as 'UTC' or 'Europe/Berlin'."
            + _suggestion(name)
        )
    return ZoneInfo(name)


def wall_time(day: date, hour: int, minute: int) -> datetime:
    """A local time; it has no zone until it becomes an instant."""
    return datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - see above


def local_to_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant (UTC) of a local time without zone: the first of two, and for a local time that
    was skipped the first instant after the change."""
    first, last = offsets(wall, zone)
    return end_of_gap(wall, zone) if first < last else (wall - first).replace(tzinfo=UTC)


def offsets(wall: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """Offsets from UTC before and after a change that touches this local time: equal when none
    does, falling when the local time comes twice, rising when it is skipped."""
    local = wall.replace(tzinfo=zone)
    return local.utcoffset() or timedelta(), local.replace(fold=1).utcoffset() or timedelta()


def end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant of the clock change that skipped this local time."""
    before, after = offsets(wall, zone)
    low = (wall - after).replace(tzinfo=UTC)  # Before the change,
    high = (wall - before).replace(tzinfo=UTC)  # and not before it.
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    # Halves leave fractions; changes fall on whole seconds.
    return high if high.microsecond == 0 else high.replace(microsecond=0)


@cache
def _names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("ascii").split()) - _NO_ZONES


@lru_cache(maxsize=64)
def _suggestion(name: str) -> str:
    by_lower = {known.lower(): known for known in _names()}
    cities = {known.rpartition("/")[2]: known for known in by_lower}
    wanted = name.lower().strip().replace(" ", "_")[:64]
    near = get_close_matches(wanted, by_lower, n=3, cutoff=0.75)
    near += [cities[city] for city in get_close_matches(wanted.rpartition("/")[2], cities, n=2)]
    found = [by_lower[one] for one in dict.fromkeys(near)][:3]
    return f" Did you mean {' or '.join(found)}?" if found else ""
