"""Drain: move a queue into a spool once, however often that spool is read."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from spark_connectors.errors import ConnectorError, DataLost
from spark_connectors.source.driver_reader import DriverStreamReader
from spark_connectors.source.options import StreamOptions
from spark_connectors.source.tasks import SlotTask, store_of
from spark_connectors.spool.places import segment_name
from spark_connectors.spool.segments import Damaged
from spark_connectors.spool.spool import Contents, Spool
from spark_connectors.spool.stores import Store

_log = logging.getLogger(__name__)
# Written at the end: {"segments": {name: rows}}; an empty object by versions of before.
_DRAINED = "drained.json"
_SEGMENTS = "segments"
_MOST_TOLD = 3
_TELL_SECONDS = 5.0


def drained(options: StreamOptions, limit: int | None) -> Sequence[InputPartition]:
    """Tasks for all rows of the spool, which is filled first unless it has been.

    Whatever dies meanwhile: a message is in the spool, in the queue, or in both until the next
    attempt, which knows it. Raises ConnectorError, and DataLost when a segment is not there that
    was: nothing is ever dropped from a drain.
    """
    spool = Spool.open(store_of(options), queue=options.place.name, mode=options.receive_mode)
    is_new = _DRAINED not in spool.store.names(_DRAINED)
    if is_new:
        _drain(options, limit)
    rows: dict[str, int] = {}
    tasks: list[InputPartition] = []
    damaged: list[str] = []
    contents = spool.contents()
    for place in contents.segments:
        try:
            segment = spool.read(place)
        except Damaged as bad:
            damaged.append(str(bad))
            continue
        rows[segment_name(place)] = segment.row_count
        slots = range(segment.slot_count)
        tasks += [SlotTask(spool.identity, slot, (place,)) for slot in slots]
    missed = [*_gone(contents, rows), *([] if is_new else _differing(spool.store, rows))]
    _bear(options, [*damaged, *missed])
    if is_new:
        spool.store.put_if_absent(_DRAINED, json.dumps({_SEGMENTS: rows}).encode())
    return tasks


def _gone(contents: Contents, rows: Mapping[str, int]) -> Iterator[str]:
    """Segments of which a mark is left that their messages were deleted."""
    for place in sorted(contents.done):
        if segment_name(place) not in rows:
            yield f"{segment_name(place)} ({contents.done[place].rows} messages) is gone"


def _differing(store: Store, rows: Mapping[str, int]) -> Iterator[str]:
    """Segments that are not what the end of the drain has noted. A drain of before they were noted
    says nothing; the marks are what is known of it."""
    try:
        noted: dict[str, int] = dict(json.loads(store.get(_DRAINED)).get(_SEGMENTS, {}))
    except (ValueError, AttributeError, TypeError):
        raise ConnectorError(f"{_DRAINED} in the spool cannot be read") from None
    for name, count in sorted(noted.items()):
        found = rows.get(name)
        if found is None:
            yield f"{name} ({count} messages) is gone"
        elif found != count:
            yield f"{name} has {found} messages instead of {count}"


def _bear(options: StreamOptions, wrong: Sequence[str]) -> None:
    # Most of them are told twice, by the mark and by the list.
    found = sorted(set(wrong))
    if not found:
        return
    more = f" and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
    told = (
        f"the queue {options.place.name} was drained into the spool at {options.spool_path}, but "
        f"{', '.join(found[:_MOST_TOLD])}{more}; the queue no longer has them"
    )
    if options.fail_on_data_loss:
        raise DataLost(
            f"{told}. Put the files back from a copy; with failOnDataLoss=false the rest is read"
        )
    _log.warning("%s; with failOnDataLoss=false the rest is read", told)


def _drain(options: StreamOptions, limit: int | None) -> None:
    # Who reads the spool again may ask for other columns.
    reader = DriverStreamReader(options._replace(shape=options.shape._replace(columns=())))
    reader.most_target = limit
    reader.prepareForTriggerAvailableNow()
    told = began = time.monotonic()
    try:
        offset = reader.initialOffset()
        while True:
            end = reader.latestOffset(offset, reader.getDefaultReadLimit())
            if end == offset:
                break
            offset = end
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                rows = (reader.reportLatestOffset() or {}).get("received")
                _log.warning("draining %s: %s messages", options.place.name, rows)
    finally:
        reader.stop()
    _log.info("drained %s in %.1f s", options.place.name, time.monotonic() - began)
