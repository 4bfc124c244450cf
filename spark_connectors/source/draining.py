"""Drain: move a queue into a spool once, however often that spool is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from spark_connectors.source.driver_reader import DriverStreamReader
from spark_connectors.source.options import StreamOptions
from spark_connectors.source.tasks import SlotTask, store_of
from spark_connectors.spool.places import segment_name
from spark_connectors.spool.segments import Segment
from spark_connectors.spool.spool import Spool

_log = logging.getLogger(__name__)
_DRAINED = "drained.json"
_TELL_SECONDS = 5.0


def drained(options: StreamOptions, limit: int | None) -> Sequence[InputPartition]:
    """Tasks for all rows of the spool, which is filled first unless it has been.

    Whatever dies meanwhile: a message is in the spool, in the queue, or in both until the next
    attempt, which knows it. Raises ConnectorError.
    """
    spool = Spool.open(store_of(options), queue=options.place.name, mode=options.receive_mode)
    if _DRAINED not in spool.store.names(_DRAINED):
        _drain(options, limit)
        spool.store.put_if_absent(_DRAINED, b"{}")
    tasks: list[InputPartition] = []
    for place in spool.contents().segments:
        name = segment_name(place)
        segment = Segment(spool.store.get(name), name)
        tasks += [SlotTask(slot, (place,)) for slot in range(segment.slot_count)]
    return tasks


def _drain(options: StreamOptions, limit: int | None) -> None:
    reader = DriverStreamReader(options)
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
