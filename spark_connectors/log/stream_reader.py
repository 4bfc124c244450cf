"""Logs as a stream: Spark's checkpoint has the offsets, and that is all there is to keep.

A new query stands at the offset {}, and its first batch is one of nothing, from there to where it
begins. So that is in Spark's own log: a query that dies before its first rows are committed, or
before anything is published, begins there again, whatever was published or collected meanwhile.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_connectors.errors import ConnectorError, NotNow
from spark_connectors.log.calls import LogCalls, shared_calls
from spark_connectors.log.kept import Kept, Losses, Watcher, lifted, resolved
from spark_connectors.log.options import EARLIEST, LogOptions, Where
from spark_connectors.log.positions import Positions, Span, between, created_of, of_json, to_json
from spark_connectors.log.reading import LogTask, rows_of, tasks_of
from spark_connectors.log.shares import limited
from spark_connectors.plainly import end_plainly

_log = logging.getLogger(__name__)
# How long an idle stream's question waits, and at most where it is a dear one.
_IDLE_SECONDS = 0.1
_LONGEST_IDLE_SECONDS = 2.0
# An idle stream spends a tenth of its time with questions.
_IDLE_FACTOR = 10


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One of these is asked for offsets in the driver's process; the others only read tasks, and
    must cost nothing to make or pickle."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self._losses = Losses(fails=options.fails_on_loss)
        self._watcher: Watcher | None = None
        self._kept: Kept | None = None
        # How far a run that ends is to read: what there is when it is first asked.
        self._is_to_end = False
        self._target: Kept | None = None
        self._has_begun = False
        self._turn = 0
        self._batch_at = -math.inf
        self._rests_until = 0.0
        self._told: Positions = {}
        self._cannot_tell = ""

    # What Spark asks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before everything, whatever ``startingOffsets`` says: see above."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As many as ``maxOffsetsPerTrigger``."""
        most = self.options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix how far this run is to read."""
        self._is_to_end = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes; ``start`` itself when there is nothing new."""
        begun = of_json(start)
        self._tell(begun)
        kept = self._look()
        if kept is None:
            return start
        if not begun:
            return to_json(self._beginning(kept), self._created)
        begun = self._losses.of_same_logs(start, self._created)
        self._losses.check(begun, kept)
        end = self._end(begun, self._target or kept, limit)
        if end is None:
            # A checkpoint of an earlier version learns when its logs were made, by an empty batch.
            known = to_json(begun, self._created)
            return start if known == start else known
        self._batch_at = time.monotonic()
        self._rests_until = 0.0
        return to_json(end, self._created)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks between two offsets. Raises DataLost, Refused and NotNow."""
        begun = of_json(start)
        if not begun:
            return []
        if self._kept is None:
            self._kept = self._ask()
            self._losses.check(begun, self._kept)
        ends = self._losses.of_same_logs(end, self._created)
        for log, created in created_of(start).items():
            if created_of(end).get(log, created) != created:
                # Planned with failOnDataLoss=false: the new log is read from its first record.
                del begun[log]
        return tasks_of(self._spans(begun, ends, self._kept), self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        assert isinstance(partition, LogTask)
        return rows_of(partition, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed everything up to here."""
        self._tell(of_json(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the logs are, for StreamingQueryProgress: ``sources[0].latestOffset``, of the
        same shape as ``endOffset`` beside it."""
        return None if self._kept is None else to_json(_ends(self._kept), self._created)

    def stop(self) -> None:
        """Close what can be closed; a process that Spark kills does without."""
        end_plainly()
        if self._watcher is not None:
            self._calls.close()

    # What there is

    @property
    def _calls(self) -> LogCalls:
        return shared_calls(self.options.connection)

    @property
    def _created(self) -> dict[str, str]:
        return {} if self._watcher is None else self._watcher.created

    def _ask(self) -> Kept:
        """What is kept now; once it was known of a log, it may be gone."""
        if self._watcher is None:
            self._watcher = Watcher(self.options.subscribed, self._calls)
        return self._watcher.kept(may_lack=self._has_begun)

    def _look(self) -> Kept | None:
        """The same, when it is time; None: the endpoint does not answer, and a stream that runs
        waits for it."""
        if self._target is not None:
            return self._kept
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        began = time.monotonic()
        try:
            self._kept = self._ask()
        except NotNow as away:
            if not self._has_begun or self._is_to_end:
                raise
            _log.warning("waiting: %s", away)
            return None
        now = time.monotonic()
        rest = min(_LONGEST_IDLE_SECONDS, max(_IDLE_SECONDS, _IDLE_FACTOR * (now - began)))
        self._rests_until = now + rest
        if self._is_to_end:
            self._target = self._kept
        return self._kept

    def _beginning(self, kept: Kept) -> Positions:
        """Where a new query begins. One that found no log begins all that are made later at their
        first record."""
        where = Where(EARLIEST) if self._has_begun else self.options.starting
        found = resolved(where, kept, self.options, self._calls)
        self._has_begun = True
        return found

    # What a batch takes of it

    def _spans(self, begun: Positions, ends: Positions, kept: Kept) -> list[Span]:
        return lifted(between(begun, ends), kept, fails=self.options.fails_on_loss)

    def _end(self, begun: Positions, kept: Kept, limit: ReadLimit) -> Positions | None:
        """The end of a batch; None: there is nothing, or not enough."""
        self._has_begun = True
        ends = _ends(kept)
        spans = self._spans(begun, ends, kept)
        total = sum(span.size for span in spans)
        if not self._is_enough(total):
            return None
        if not isinstance(limit, ReadMaxRows) or total <= limit.max_rows:
            return ends if ends != begun else None
        shares = limited([span.size for span in spans], limit.max_rows, self._turn)
        self._turn += sum(share > 0 for share in shares)
        for span, share in zip(spans, shares, strict=True):
            # Of an old log that was made anew nothing is left to go on from.
            at = begun.get(span.log, {}).get(span.partition, 0)
            is_anew = at > span.stop
            ends[span.log][span.partition] = at if is_anew and not share else span.start + share
        return ends

    def _is_enough(self, rows: int) -> bool:
        """Whether so many records are worth a batch (minOffsetsPerTrigger), or it is time for one.
        As in Kafka's source the first batch is not delayed, nor a run that has an end."""
        if rows >= self.options.least_rows or self._is_to_end:
            return True
        return time.monotonic() - self._batch_at >= self.options.trigger_delay_seconds

    # For lag alone

    def _tell(self, begun: Positions) -> None:
        """Let the group know how far Spark is. That it cannot be told stops nobody."""
        group = self.options.group
        if group is None:
            return
        try:
            for log, offsets in begun.items():
                told = self._told.get(log, {})
                news = {one: at for one, at in offsets.items() if told.get(one) != at}
                if news:
                    self._calls.commit(log, group, news)
                    self._told[log] = offsets
        except ConnectorError as no:
            if str(no) != self._cannot_tell:
                self._cannot_tell = str(no)
                _log.warning("group %s is not told of what Spark has committed: %s", group, no)


def _ends(kept: Kept) -> Positions:
    return {log: {one: bounds.end for one, bounds in by.items()} for log, by in kept.items()}
