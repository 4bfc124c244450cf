"""What a new driver finds in a spool that is not as it should be: put right, or told with the way
out of it."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from spark_connectors.errors import DataLost
from spark_connectors.rows.received import stored_batch
from spark_connectors.source.offsets import Offset
from spark_connectors.source.options import StreamOptions
from spark_connectors.spool.places import Kept, Place
from spark_connectors.spool.segments import Misplaced, encode
from spark_connectors.spool.spool import Contents, Spool, SpoolMismatch, SpoolTaken

_log = logging.getLogger(__name__)


def let_the_other_mode_end(
    spool: Spool, contents: Contents, base: int, planned: Offset | None, options: StreamOptions
) -> None:
    """Where the spool was filled in the other receive mode, go on only when all of that is
    committed, and let no driver of then write any more.

    Raises SpoolMismatch, and SpoolTaken when such a driver is still at it.
    """
    mode = options.receive_mode
    other = "driver" if mode == "executor" else "executor"

    def is_others(place: Place) -> bool:
        return (place.slot is not None) == (other == "executor")

    batches = {
        place.seq
        for place in contents.segments
        if place.seq > base and is_others(place) and not _is_fence(contents.done.get(place))
    }
    if planned is not None and (planned.slots is not None) == (other == "executor"):
        batches.add(planned.seq)
    if batches:
        raise SpoolMismatch(
            f"receiveMode={mode}, but the spool at {options.spool_path} has {len(batches)} batches "
            f"that receiveMode={other} has received and Spark has not committed: run the query once"
            f" more with receiveMode={other} and trigger(availableNow=True), then with this one"
        )
    places = (*contents.segments, *contents.done, *contents.ids)
    newest = max(places, default=None, key=lambda place: place.order)
    if newest is not None and is_others(newest):
        _shut_out(spool, contents, mode, options)


def _is_fence(kept: Kept | None) -> bool:
    return kept is not None and kept.rows == 0


def _shut_out(spool: Spool, contents: Contents, mode: str, options: StreamOptions) -> None:
    if mode != "executor":
        spool.enter()
        return
    # A driver that receives by itself writes this one next, and ends when there is one.
    fence = Place(contents.highest + 1)
    if not spool.put(fence, encode([], "none", spool.note_of(fence))):
        raise SpoolTaken(
            f"segment {fence} of the spool at {options.spool_path} was written by another "
            "query: only one at a time may use a checkpoint and its spool"
        )
    spool.mark_done(Kept(fence, 0, 0))


def put_aside(
    spool: Spool, contents: Contents, base: int, planned: Offset | None, options: StreamOptions
) -> Contents:
    """The contents without segments that are damaged. Those whose messages the queue still has, and
    that are in no batch, are received again; others are left out with ``failOnDataLoss=false``.

    Raises DataLost.
    """
    damaged = spool.damaged(contents, base, time.time())
    for place, bad in damaged:
        is_safe, told, then = _told(place, contents, base, planned, options)
        # The right file lies elsewhere: to receive again would hide that.
        is_safe = is_safe and not isinstance(bad, Misplaced)
        told = f"{bad} at {options.spool_path}; {told}"
        if options.fail_on_data_loss and not is_safe:
            raise DataLost(
                f"{told}. Put the file back from a copy; with failOnDataLoss=false the query goes "
                f"on without it, and {then}"
            )
        _log.warning("%s. It is put aside, and %s", told, then)
        empty = [stored_batch(options.place.name, [])]
        spool.replace(place, encode(empty, "none", spool.note_of(place)))
    return spool.contents() if damaged else contents


def _told(
    place: Place, contents: Contents, base: int, planned: Offset | None, options: StreamOptions
) -> tuple[bool, str, str]:
    """Whether to go on without that segment loses and repeats nothing; what its messages are; what
    becomes of them then."""
    kept = contents.done.get(place)
    if kept is not None and place.seq > base:
        return False, f"its {kept.rows} messages are deleted from the queue", "they are lost"
    if kept is not None:
        until = datetime.fromtimestamp(kept.forget_at, UTC).isoformat()
        return (
            False,
            f"its {kept.rows} messages are committed, but one that the queue gives once more would "
            f"be taken for new until {until}",
            "such a one is there twice; or start it after that time",
        )
    if place.seq <= base:
        return (
            False,
            "its messages are committed and not yet deleted from the queue",
            "they come again and are there twice",
        )
    if (
        options.delete_mode == "spool"
        or place.slot is not None
        or place.seq <= contents.acknowledged
    ):
        return (
            False,
            "how many of its messages were deleted from the queue nobody knows",
            "those that the queue has come again",
        )
    if planned is not None and place.seq <= planned.seq:
        return (
            False,
            "its messages are still in the queue, but Spark has planned a batch with them, which "
            "the sink may have",
            "they come again, and are there twice if it has",
        )
    return True, "its messages are still in the queue", "they are received again"
