"""Logs as a stream: Spark's checkpoint has the offsets, and nothing else is kept.

A new query is at the offset {}, and its first batch is empty: from there to the start of the query.
So Spark's own log records the start: a query that dies before its first rows are committed, or
before anything is published, starts there again, whatever was published or collected meanwhile.
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

from spark_connectors.errors import ConnectorError, NotNow, hide_traceback
from spark_connectors.log.log_api import LogCalls, shared_calls
from spark_connectors.log.log_bounds import DataLossPolicy, LogBounds, LogWatcher, lifted, resolved
from spark_connectors.log.log_options import EARLIEST, LogOptions, PositionOption
from spark_connectors.log.log_tasks import LogTask, limited, rows_of, tasks_of
from spark_connectors.log.progress import (
    OffsetSpan,
    Positions,
    between,
    created_of,
    of_json,
    to_json,
)

_log = logging.getLogger(__name__)
# Pauses between polls of an idle stream: the least, and the longest where polls are slow.
_IDLE_SECONDS = 0.1
_LONGEST_IDLE_SECONDS = 2.0
# An idle stream polls for a tenth of its time.
_IDLE_FACTOR = 10


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark asks one instance for offsets, in the driver's process. The others only read tasks, and
    must cost nothing to make or pickle."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self._losses = DataLossPolicy(fails=options.fails_on_loss)
        self._watcher: LogWatcher | None = None
        self._kept: LogBounds | None = None
        # The end of a run with AvailableNow: the bounds at its first poll.
        self._is_to_end = False
        self._target: LogBounds | None = None
        self._has_begun = False
        self._turn = 0
        self._batch_at = -math.inf
        self._rests_until = 0.0
        self._committed: Positions = {}
        self._last_refusal = ""

    # Methods that Spark calls

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset before everything, whatever ``startingOffsets`` says."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of ``maxOffsetsPerTrigger``."""
        most = self.options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run."""
        self._is_to_end = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; ``start`` itself when there is nothing new."""
        begun = of_json(start)
        self._commit_group(begun)
        kept = self._look()
        if kept is None:
            return start
        if not begun:
            return to_json(self._beginning(kept), self._created)
        begun = self._losses.of_same_logs(start, self._created)
        self._losses.check(begun, kept)
        end = self._end(begun, self._target or kept, limit)
        if end is None:
            # An empty batch adds the creation times to a checkpoint of an earlier version.
            known = to_json(begun, self._created)
            return start if known == start else known
        self._batch_at = time.monotonic()
        self._rests_until = 0.0
        return to_json(end, self._created)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks between two offsets. Raises DataLost, Refused and
        NotNow."""
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
        """Commit everything up to here for the group: Spark has committed it."""
        self._commit_group(of_json(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the logs, for StreamingQueryProgress: ``sources[0].latestOffset``, of
        the same shape as ``endOffset`` beside it."""
        return None if self._kept is None else to_json(_ends(self._kept), self._created)

    def stop(self) -> None:
        """Close connections; a process that Spark kills does without."""
        hide_traceback()
        if self._watcher is not None:
            self._calls.close()

    # Bounds

    @property
    def _calls(self) -> LogCalls:
        return shared_calls(self.options.connection)

    @property
    def _created(self) -> dict[str, str]:
        return {} if self._watcher is None else self._watcher.created

    def _ask(self) -> LogBounds:
        """Read the bounds of all logs. A log that was known may be deleted."""
        if self._watcher is None:
            self._watcher = LogWatcher(self.options.subscribed, self._calls)
        return self._watcher.kept(may_lack=self._has_begun)

    def _look(self) -> LogBounds | None:
        """Read the bounds when it is time; None: the endpoint does not answer, and a running stream
        waits."""
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

    def _beginning(self, kept: LogBounds) -> Positions:
        """Return the start of a new query. If the query found no log, it reads all that are created
        later from their first record."""
        where = PositionOption(EARLIEST) if self._has_begun else self.options.starting
        found = resolved(where, kept, self.options, self._calls)
        self._has_begun = True
        return found

    # Batches

    def _spans(self, begun: Positions, ends: Positions, kept: LogBounds) -> list[OffsetSpan]:
        return lifted(between(begun, ends), kept, fails=self.options.fails_on_loss)

    def _end(self, begun: Positions, kept: LogBounds, limit: ReadLimit) -> Positions | None:
        """Return the end of a batch; None: there is nothing, or not enough."""
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
            # A log that was created anew has nothing left at the old position.
            at = begun.get(span.log, {}).get(span.partition, 0)
            is_anew = at > span.stop
            ends[span.log][span.partition] = at if is_anew and not share else span.start + share
        return ends

    def _is_enough(self, rows: int) -> bool:
        """Return True if that many records make a batch (minOffsetsPerTrigger), or the delay is
        over. As in Kafka's source the first batch is not delayed, nor a run that has an end."""
        if rows >= self.options.least_rows or self._is_to_end:
            return True
        return time.monotonic() - self._batch_at >= self.options.trigger_delay_seconds

    # The group, for lag alone

    def _commit_group(self, begun: Positions) -> None:
        """Commit Spark's position for the group. A failure does not end the query."""
        group = self.options.group
        if group is None:
            return
        try:
            for log, offsets in begun.items():
                committed = self._committed.get(log, {})
                news = {one: at for one, at in offsets.items() if committed.get(one) != at}
                if news:
                    self._calls.commit(log, group, news)
                    self._committed[log] = offsets
        except ConnectorError as no:
            if str(no) != self._last_refusal:
                self._last_refusal = str(no)
                _log.warning("group %s is not told of what Spark has committed: %s", group, no)


def _ends(kept: LogBounds) -> Positions:
    return {log: {one: bounds.end for one, bounds in by.items()} for log, by in kept.items()}
