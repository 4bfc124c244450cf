"""What both stream readers share: the spool opened once, offsets checked, figures, the end."""

from __future__ import annotations

import logging
import math
import time
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_connectors.errors import DataLost
from spark_connectors.plainly import end_plainly
from spark_connectors.source.deleting import Deleter, ForgetRule
from spark_connectors.source.gauge import Gauge
from spark_connectors.source.mending import let_the_other_mode_end, put_aside
from spark_connectors.source.offsets import Offset
from spark_connectors.source.options import StreamOptions
from spark_connectors.source.tasks import store_of
from spark_connectors.spool.known import KnownMessages
from spark_connectors.spool.places import Kept, segment_name
from spark_connectors.spool.spool import Contents, Spool, SpoolMismatch
from spark_connectors.spool.stores import Store
from spark_connectors.transport.aws import Transport, is_aws, shared_transport

_log = logging.getLogger(__name__)
_MOST_NAMED = 3
_FLUSH_SECONDS = 120.0
_LONGEST_RETENTION_SECONDS = 14 * 86_400


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A queue as a stream. Spark makes several of these: one is asked for offsets in the driver's
    process and works; the others only read tasks, and must cost nothing to make or pickle."""

    def __init__(self, options: StreamOptions) -> None:
        if options.is_in_memory:
            options = options._replace(spool_path=f"memory:{uuid.uuid4()}")
        self.options = options
        self._opened = False
        # Messages that an AvailableNow run is to read; -1: not counted yet. Spark sets it before
        # it asks anything that opens the spool.
        self._target: int | None = None

    def open_store(self) -> Store:
        """Where the spool lies."""
        return store_of(self.options)

    def open_transport(self) -> Transport:
        """The way to the queue."""
        return shared_transport(self.options.connection)

    def _open(self, start: Offset | None, planned: Offset | None = None) -> None:
        """Open everything, once. Raises ConnectorError.

        ``start``: where the checkpoint is; ``planned``: the end of a batch that it has behind it.
        """
        if self._opened:
            return
        options = self.options
        self._transport = self.open_transport()
        self._url = options.place.url(self._transport)
        # Asks the queue before anything else: a wrong endpoint or queue ends the query here.
        attributes = self._transport.attributes(self._url)
        # Once, and not while threads wait for it.
        _log.debug("%s messages a call", self._transport.most_per_call)
        retention = attributes.get("MessageRetentionPeriod", "")
        self._rule = ForgetRule(
            int(retention) if retention.isdigit() else _LONGEST_RETENTION_SECONDS,
            options.dedupe_window,
            is_aws(options.connection),
        )
        self._spool = Spool.open(
            self.open_store(), queue=options.place.name, mode=options.receive_mode
        )
        self._enter()
        self._known = KnownMessages()
        self._deleter = Deleter(
            options, self._transport, self._url, self._spool, self._known, self._rule
        )
        contents = self._spool.contents()
        self._refuse_older(start, contents)
        if planned is not None and planned.spool != self._spool.identity:
            planned = None
        if start is not None and planned is not None:
            # Whatever was to be agreed on was agreed on when that batch was planned.
            base: int | None = self._behind(start, contents)
        else:
            base = self._agreed(start, contents)
        if base is None:
            self._spool.clear(contents)
            self._spool.take_over(contents.highest)
            contents = self._spool.contents()
            base = contents.acknowledged if start is None else self._behind(start, contents)
        self._base = base
        let_the_other_mode_end(self._spool, contents, base, planned, options)
        contents = put_aside(self._spool, contents, base, planned, options)
        self._bear(self._spool.lost(contents, base))
        if start is None:
            self._tell_of_repeats(contents)
        self._deleter.start(contents)
        self._gauge = Gauge(self._transport, self._url, options.connection, options.place.name)
        self._reported: tuple[int, dict[str, Any]] = -1, {}
        self._batch_at = -math.inf
        self._start_work(contents)
        self._opened = True

    def _enter(self) -> None:
        """Tell other drivers that this one uses the spool now, before it is looked at."""

    # How far the batch goes that was planned last.
    _seq: int

    @abstractmethod
    def _start_work(self, contents: Contents) -> None:
        """Begin what this reader does beside answering."""

    def _agreed(self, start: Offset | None, contents: Contents) -> int | None:
        """Where to go on; None when the spool is to be emptied first.

        ``start`` None is a new checkpoint. It finds an unused spool, or one that a query filled
        which died before its first batch was committed: all of that is still to come.
        """
        options = self.options
        if start is None:
            if not contents.acknowledged:
                return 0
            if options.on_mismatch == "fail":
                raise SpoolMismatch(
                    f"the spool at {options.spool_path} was used by a query with another checkpoint"
                    ". onSpoolMismatch=adopt goes on behind what that query committed, discard "
                    "empties the spool; or give this query a spoolPath of its own"
                )
            is_to_stay = options.on_mismatch == "adopt" or contents.is_just_taken_over
            return contents.acknowledged if is_to_stay else None
        if start.spool == self._spool.identity or options.is_in_memory:
            return self._behind(start, contents)
        if options.on_mismatch == "fail":
            raise SpoolMismatch(
                f"the checkpoint belongs to spool {start.spool}, but at {options.spool_path} is "
                f"{self._spool.identity}: it was deleted, or spoolPath changed. With "
                "onSpoolMismatch=adopt the query goes on with the queue as it is now"
            )
        if contents.is_just_taken_over:
            # By this very query, which died before its first commit.
            return self._behind(start, contents)
        if options.on_mismatch == "discard":
            return None
        unread = sum(place.seq > contents.acknowledged for place in contents.segments)
        if unread:
            raise SpoolMismatch(
                f"the spool at {options.spool_path} has {unread} segments of another query that "
                "were not committed: onSpoolMismatch=discard drops them"
            )
        self._spool.take_over(contents.acknowledged)
        return self._behind(start, contents)

    def _refuse_older(self, start: Offset | None, contents: Contents) -> None:
        """Raise DataLost when the checkpoint has committed batches of which the spool has no trace,
        unless that is to be borne."""
        if start is None or start.spool != self._spool.identity:
            return
        # Spark may commit a batch of executor mode without running one of its tasks.
        untraced = 1 if start.slots and not start.taken else 0
        if start.seq <= contents.highest + untraced:
            return
        told = (
            f"the checkpoint has committed batch {start.seq}, but the spool at "
            f"{self.options.spool_path} ends at batch {contents.highest}: it was restored from an "
            "older copy. Messages that the newer spool had received and no batch has committed may "
            "be deleted from the queue"
        )
        if self.options.fail_on_data_loss:
            raise DataLost(
                f"{told}. Put the newer spool back, or set the checkpoint back to the same moment; "
                "with failOnDataLoss=false the query goes on without these messages"
            )
        _log.warning("%s; with failOnDataLoss=false the query goes on", told)

    def _tell_of_repeats(self, contents: Contents) -> None:
        """A query whose checkpoint is lost may have committed one batch that the spool was not told
        of: Spark tells of a commit when it asks for the next batch."""
        behind = [place for place in contents.segments if place.seq > self._base]
        if not behind or not self._base:
            return
        rows = sum(self._spool.read(place).row_count for place in behind)
        _log.warning(
            "going on with the %s messages behind batch %s of the spool at %s: the last batch of "
            "the query before may be among them, and be in its sink already, for nobody told the "
            "spool whether Spark had committed it; the sink can know them by message_id",
            rows,
            self._base,
            self.options.spool_path,
        )

    def _behind(self, start: Offset, contents: Contents) -> int:
        """The last segment that is behind us at this offset, which may be of another spool."""
        is_ours = start.spool == self._spool.identity
        return start.seq if is_ours else max(start.seq, contents.acknowledged)

    def _reached(self, offset: Offset) -> int:
        """Likewise, for every later offset."""
        is_ours = offset.spool == self._spool.identity
        return offset.seq if is_ours else max(offset.seq, self._base)

    def _bear(self, lost: Sequence[Kept]) -> None:
        """Raise DataLost for segments that are gone, unless that is to be borne."""
        if not lost or self.options.is_in_memory:
            return
        names = [f"{segment_name(one.place)} ({one.rows} messages)" for one in lost[:_MOST_NAMED]]
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        told = (
            f"{', '.join(names)}{more} not in the spool at {self.options.spool_path}: what was in "
            "there is deleted from the queue, and no batch that was committed has it"
        )
        if self.options.fail_on_data_loss:
            raise DataLost(
                f"{told}. Put the files back from a copy; with failOnDataLoss=false the query goes "
                "on without these messages"
            )
        _log.warning("%s; with failOnDataLoss=false the query goes on", told)

    def _of_another_spool(self, last: Offset) -> list[InputPartition]:
        """The tasks of a batch that was planned with another spool: none. Raises DataLost."""
        if self.options.fail_on_data_loss and not self.options.is_in_memory:
            raise DataLost(
                f"Spark planned a batch of spool {last.spool}, but at {self.options.spool_path} is "
                f"{self._spool.identity}. With failOnDataLoss=false the query goes on without the "
                "messages of that batch"
            )
        return []

    # What Spark asks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset before the first batch. Raises SpoolMismatch for a spool that is in use."""
        self._open(None)
        return Offset(self._spool.identity, self._base).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As many as ``maxOffsetsPerTrigger``."""
        return ReadMaxRows(self.options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix how many messages this run is to read: those that the queue has now."""
        self._target = -1

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed everything up to here."""
        committed = Offset.of(end)
        self._open(committed)
        self._acknowledge(committed)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Figures for StreamingQueryProgress: ``sources[0].latestOffset``. Spark asks when it has
        planned a batch, and shows them when that is done."""
        if not self._opened:
            return None
        planned, found = self._reported
        if planned != self._seq:
            # The counts that the batch was planned by, where it was. An idle stream asks nothing:
            # Spark shows batches.
            found = self._gauge.shown()
            self._reported = self._seq, found
        return {
            "queue": self.options.place.name,
            "mode": self.options.receive_mode,
            **found,
            **self._progress(found.get("visible")),
            "pendingDeletes": self._deleter.pending_rows,
        }

    def stop(self) -> None:
        """Close what can be closed; a process that Spark kills does without."""
        end_plainly()
        if self._opened:
            self._deleter.stop()
            self._transport.close()

    # For both readers

    @abstractmethod
    def _progress(self, visible: int | None) -> dict[str, Any]:
        """What this reader tells beside the queue's counts: the same names in both modes, None for
        what only tasks know."""

    def _acknowledge(self, offset: Offset) -> None:
        if offset.spool == self._spool.identity:
            self._deleter.acknowledge(offset.seq)
        self._deleter.raise_failure()

    def _limit_rows(self, limit: ReadLimit) -> int:
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.most_rows

    def _is_enough(self, rows: int) -> bool:
        """Whether so many messages are worth a batch (minOffsetsPerTrigger), or it is time for one.
        As in Kafka's source the first batch is not delayed, nor a run that has an end."""
        if rows >= self.options.least_rows or self._target is not None:
            return True
        return time.monotonic() - self._batch_at >= self.options.trigger_delay_seconds

    def _is_for_all(self, limit: ReadLimit) -> bool:
        """Whether Spark wants all that there is in one batch: a run with Trigger.Once."""
        if isinstance(limit, ReadAllAvailable):
            self._target = -1
        return isinstance(limit, ReadAllAvailable)

    def _finished(self, start: Offset) -> dict[str, Any]:
        """The end of an AvailableNow run: the process is gone after it, so deletes come first."""
        self._deleter.flush(_FLUSH_SECONDS)
        self._deleter.raise_failure()
        return start.to_json()
