"""The queue as a batch: browse, peek or drain."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.options.queues import QueuePlace
from spark_connectors.plainly import plainly
from spark_connectors.rows.received import received_of, stored_batch
from spark_connectors.rows.shapes import shaped
from spark_connectors.source.batch_options import BatchOptions, batch_options, drain_options
from spark_connectors.source.browsing import NotOffered, QueueBrowser, Range
from spark_connectors.source.draining import drained
from spark_connectors.source.giving_back import give_back
from spark_connectors.source.options import StreamOptions
from spark_connectors.source.tasks import SlotTask, rows_of, store_of
from spark_connectors.transport.aws import Transport, open_transport
from spark_connectors.transport.aws.wire import MOST_PER_CALL, Message, Wanted

_log = logging.getLogger(__name__)
_ROWS_PER_BATCH = 1_000
# AWS answers a short receive from a part of its servers: an empty answer proves little alone.
_EMPTY_LOOKS = 2
_PEEK_WAIT_SECONDS = 1
# Of the 120,000 that may be in flight (docs/contract/sqs.md, limits), which are counted roughly.
_MOST_IN_FLIGHT = 114_000
_MOST_IDS = 100


def batch_reader(given: Mapping[str, str]) -> DataSourceReader:
    """The reader for these options. Raises BadOption."""
    options = batch_options(given)
    if options.mode == "drain":
        return DrainReader(drain_options(given), options.limit)
    return FilteringReader(options) if options.pushes_filters else LookReader(options)


class BrowseTask(InputPartition):
    """One range of the queue."""

    def __init__(self, stretch: Range, filters: dict[str, str]) -> None:
        self.stretch = stretch
        self.filters = filters


class PeekTask(InputPartition):
    """The whole queue: with two, one would see what the other gave back."""

    def __init__(self, place: QueuePlace) -> None:
        self.place = place


class LookReader(DataSourceReader):
    """Reads without deleting: browses where the endpoint can, peeks elsewhere."""

    def __init__(self, options: BatchOptions) -> None:
        self.options = options
        self._filters: dict[str, str] = {}

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges to browse, or the one task that peeks. Raises NotOffered for mode=browse."""
        with plainly():
            return self._planned()

    def _planned(self) -> Sequence[InputPartition]:
        options = self.options
        if options.mode != "peek":
            try:
                browser = QueueBrowser(options.connection, options.place.name)
                slots = 1 if options.limit else options.slots
                return [BrowseTask(one, self._filters) for one in browser.split(slots)]
            except NotOffered:
                if options.mode == "browse" or options.pushes_filters:
                    raise
        options.place.check(options.connection)
        if options.place.is_fifo:
            _log.warning(
                "peeking at %s: of each message group only what a receive gives is seen, because "
                "what is held locks the rest",
                options.place.name,
            )
        return [PeekTask(options.place)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        if isinstance(partition, BrowseTask):
            browser = QueueBrowser(self.options.connection, self.options.place.name)
            return self._shaped(browser.pages(partition.stretch, partition.filters))
        assert isinstance(partition, PeekTask)
        transport = open_transport(self.options.connection)
        return self._shaped(_peeked(self.options, transport, partition.place.url(transport)))

    def _shaped(self, pages: Iterator[list[Message]]) -> Iterator[pa.RecordBatch]:
        left = self.options.limit
        for page in pages:
            messages = page if left is None else page[:left]
            now = time.time()
            rows = [received_of(message, now) for message in messages]
            if rows:
                yield shaped(stored_batch(self.options.place.name, rows), self.options.shape)
            if left is not None:
                left -= len(messages)
                if left <= 0:
                    return


class FilteringReader(LookReader):
    """Browses with filters. A class of its own: Spark refuses ``pushFilters`` unless its setting
    ``spark.sql.python.filterPushdown.enabled`` is on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Let the endpoint leave out what it can. Spark filters again: what is left out is never
        more than that."""
        for one in filters:
            for name, text in _pushed(one):
                self._filters.setdefault(name, text)
        return filters


class DrainReader(DataSourceReader):
    """Moves the queue into the spool when the first action is planned; reads the spool."""

    def __init__(self, options: StreamOptions, limit: int | None) -> None:
        self.options = options
        self.limit = limit

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each slot of each segment of the spool."""
        with plainly():
            return drained(self.options, self.limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, SlotTask)
        return rows_of(partition, store_of(self.options), self.options)


def _peeked(options: BatchOptions, transport: Transport, url: str) -> Iterator[list[Message]]:
    """Receive until there is nothing more, and give everything back at the end.

    Raises ConnectorError when that takes so long that the first messages come again, and when the
    queue has more and lets nobody hold them.
    """
    held: dict[str, str] = {}
    page: list[Message] = []
    began = time.monotonic()
    empty = 0
    try:
        while empty < _EMPTY_LOOKS and len(held) < (options.limit or 1 << 62):
            messages = _held(options, transport, url, len(held))
            if time.monotonic() - began > options.peek_seconds:
                raise ConnectorError(
                    f"peeking at {options.place.name} takes longer than peekVisibilitySeconds="
                    f"{options.peek_seconds}: raise it, or set limit"
                )
            empty = 0 if messages else empty + 1
            page += [one for one in messages if one["MessageId"] not in held]
            held |= {one["MessageId"]: one["ReceiptHandle"] for one in messages}
            if len(page) >= _ROWS_PER_BATCH:
                yield page
                page = []
        if empty:
            # A receive that waits is not refused at the limit: it finds nothing.
            figures = transport.figures(url)
            if figures.visible and max(figures.in_flight, len(held)) >= _MOST_IN_FLIGHT:
                raise _held_too_many(options, len(held))
        yield page
    finally:
        give_back(transport, url, list(held.values()))
        transport.close()


def _held(options: BatchOptions, transport: Transport, url: str, before: int) -> list[Message]:
    try:
        return transport.receive(
            url,
            most=min(MOST_PER_CALL, (options.limit or 1 << 62) - before),
            visibility_seconds=options.peek_seconds,
            wait_seconds=_PEEK_WAIT_SECONDS,
            wanted=Wanted(options.attribute_names),
        )
    except Refused as refused:
        if refused.code == "OverLimit":
            raise _held_too_many(options, before) from refused
        raise


def _held_too_many(options: BatchOptions, held: int) -> ConnectorError:
    return ConnectorError(
        f"peeking at {options.place.name}: {held} messages are held and it has more, but a queue "
        "lets only about 120,000 be in flight: what was read is not all of it. Set limit below "
        "that for a part of the queue; mode=browse, where the endpoint is Queuegate, holds nothing "
        "and reads all"
    )


def _pushed(one: Filter) -> Iterator[tuple[str, str]]:
    """The endpoint's parameters that leave out nothing that passes this filter."""
    column = ".".join(getattr(one, "attribute", ()))
    value: Any = getattr(one, "value", None)
    is_equal = isinstance(one, EqualTo)
    if column == "message_group_id" and is_equal:
        yield "group_id", value
    elif column == "message_id" and (is_equal or isinstance(one, In)):
        ids = [value] if is_equal else list(value)
        if 0 < len(ids) <= _MOST_IDS and all(_is_uuid(each) for each in ids):
            yield "message_id", ",".join(ids)
    elif column == "sent_timestamp" and isinstance(value, datetime):
        # To the millisecond, as the service counts; Spark looks at the rest.
        if is_equal or isinstance(one, GreaterThan | GreaterThanOrEqual):
            yield "sent_since", _instant(value, floor=True)
        if is_equal or isinstance(one, LessThan | LessThanOrEqual):
            yield "sent_until", _instant(value, floor=False)
    elif column == "approximate_receive_count" and isinstance(value, int):
        if is_equal or isinstance(one, GreaterThan | GreaterThanOrEqual):
            yield "min_receives", str(max(0, value))
        if is_equal or isinstance(one, LessThan | LessThanOrEqual):
            yield "max_receives", str(max(0, value))


def _is_uuid(text: object) -> bool:
    import uuid

    try:
        return str(uuid.UUID(str(text))) == text
    except ValueError:
        return False


def _instant(value: datetime, *, floor: bool) -> str:
    moment = value if value.tzinfo else value.astimezone()
    moment = moment.astimezone(UTC)
    thousands = moment.microsecond // 1_000 * 1_000
    if not floor and moment.microsecond % 1_000:
        thousands = min(thousands + 1_000, 999_999)
    return moment.replace(microsecond=thousands).isoformat()
