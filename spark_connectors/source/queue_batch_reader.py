"""The queue as a batch: browse, peek or drain.

Browsing uses Queuegate's ``GET /v1/queues/{name}/browse``. A drain moves a queue into a spool once,
however often that spool is read.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

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

from spark_connectors.endpoints import Connection, TransientFailure, json_value, retried
from spark_connectors.errors import ConnectorError, Refused, hiding_traceback
from spark_connectors.message_rows import UUID, received_of, shaped, stored_batch
from spark_connectors.source.deleter import release_messages
from spark_connectors.source.queue_options import (
    BatchOptions,
    StreamOptions,
    batch_options,
    drain_options,
)
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from spark_connectors.source.slot_tasks import SlotTask, report_loss, rows_of, store_of
from spark_connectors.spool import Damaged, Spool, segment_name
from spark_connectors.stores import Store
from spark_connectors.transport import (
    MOST_PER_CALL,
    AttributeNames,
    Message,
    Transport,
    decode_attributes,
    open_service,
    open_transport,
)

if TYPE_CHECKING:
    from spark_connectors.endpoints import HttpAnswer

_PAGE_ROWS = 1_000
_PAGE_SECONDS = 60.0
_MOST_PARTS = 1_000


class NotOffered(ConnectorError):
    """The endpoint has no browsing: AWS, or another server."""


class BrowseRange(NamedTuple):
    """Messages after ``after`` up to ``until``, None: from the first, to the last; as of then."""

    after: str | None
    until: str | None
    as_of: str


class QueueBrowser:
    """Browses one queue. Opened where it is used; nothing of it is pickled."""

    def __init__(self, connection: Connection, queue: str) -> None:
        service = open_service(connection)
        if service is None:
            raise NotOffered("AWS has no browsing: mode=peek, or mode=drain")
        self._service = service
        self._path = f"/v1/queues/{quote(queue, safe='')}/browse"
        self._max_retries = connection.max_retries

    def split(self, parts: int) -> list[BrowseRange]:
        """Return at most that many ranges with about as many messages each. Raises NotOffered,
        Refused for a queue that does not exist, NotNow."""
        found = self._get("/ranges", {"parts": str(min(parts, _MOST_PARTS))})
        try:
            as_of = str(found["as_of"])
            return [BrowseRange(one["after"], one["until"], as_of) for one in found["ranges"]]
        except (KeyError, TypeError):
            raise self._not_offered() from None

    def pages(self, stretch: BrowseRange, filters: Mapping[str, str]) -> Iterator[list[Message]]:
        """Yield the messages of a range, in the form of ReceiveMessage but without receipts."""
        asked = {"limit": str(_PAGE_ROWS), "as_of": stretch.as_of, **filters}
        if stretch.until is not None:
            asked["until"] = stretch.until
        after = stretch.after
        while True:
            page = self._get("", asked if after is None else asked | {"after": after})
            yield [_message(one) for one in page["messages"]]
            after = page["next"]
            if after is None:
                return

    def _get(self, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
        query = urlencode(sorted(asked.items()), quote_via=quote)
        answer = self._answer("GET", f"{self._path}{path}?{query}")
        try:
            found = json_value(answer.body)
        except ValueError:
            raise self._not_offered() from None
        if answer.status == HTTPStatus.OK and isinstance(found, dict):
            return found
        raise self._refusal(answer.status, found)

    def _answer(self, method: str, target: str) -> HttpAnswer:
        """Raises NotNow."""

        def attempt() -> HttpAnswer:
            answer = self._service.ask(method, target, timeout_seconds=_PAGE_SECONDS)
            if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise TransientFailure(f"HTTP {answer.status}")
            return answer

        place = self._service.endpoint.url
        return retried(attempt, action="browse", place=place, max_retries=self._max_retries)

    def _refusal(self, status: int, found: object) -> ConnectorError:
        """Return the error of a refusal: by an endpoint that browses, or by one that lacks the
        path."""
        said = found.get("error") if isinstance(found, dict) else None
        offered = self._answer("OPTIONS", self._path)
        if offered.status != HTTPStatus.NO_CONTENT or not isinstance(said, str):
            return self._not_offered()
        return Refused(
            "QueueDoesNotExist" if status == HTTPStatus.NOT_FOUND else f"HTTP {status}", said
        )

    def _not_offered(self) -> NotOffered:
        return NotOffered(f"{self._service.endpoint.url} has no browsing: mode=peek, or mode=drain")


def _message(shown: Mapping[str, Any]) -> Message:
    decode_attributes(shown["message_attributes"])
    return {
        "MessageId": shown["message_id"],
        "Body": shown["body"],
        "MD5OfBody": shown["md5_of_body"],
        "Attributes": shown["attributes"],
        "MessageAttributes": shown["message_attributes"],
    }


_log = logging.getLogger(__name__)
# Written at the end: {"segments": {name: rows}}; earlier versions wrote an empty object.
_DRAINED = "drained.json"
_SEGMENTS = "segments"
_MOST_TOLD = 3
_TELL_SECONDS = 5.0


def drained(options: StreamOptions, limit: int | None) -> Sequence[InputPartition]:
    """Return tasks for all rows of the spool, which is filled first unless it has been. A crash
    leaves a message in the spool, in the queue, or in both until the next attempt, which recognizes
    it. Raises ConnectorError, and DataLost for a missing segment: a drain never drops one."""
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
    gone = [
        f"{segment_name(place)} ({kept.rows} messages) is gone"
        for place, kept in contents.done.items()
        if segment_name(place) not in rows
    ]
    _fail_or_warn(options, [*damaged, *gone, *([] if is_new else _differing(spool.store, rows))])
    if is_new:
        spool.store.put_if_absent(_DRAINED, json.dumps({_SEGMENTS: rows}).encode())
    return tasks


def _differing(store: Store, rows: Mapping[str, int]) -> Iterator[str]:
    """Yield segments that differ from the list at the end of the drain. Earlier versions wrote no
    list: then only the marks are known."""
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


def _fail_or_warn(options: StreamOptions, wrong: Sequence[str]) -> None:
    # Most of them are reported twice, by the mark and by the list.
    found = sorted(set(wrong))
    if not found:
        return
    more = f" and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
    told = (
        f"the queue {options.place.name} was drained into the spool at {options.spool_path}, but "
        f"{', '.join(found[:_MOST_TOLD])}{more}; the queue no longer has them"
    )
    report_loss(
        options, told, "Put the files back from a copy; with failOnDataLoss=false the rest is read"
    )


def _drain(options: StreamOptions, limit: int | None) -> None:
    # A later read of the spool may request other columns.
    reader = QueueStreamReader(options._replace(shape=options.shape._replace(columns=())))
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


_ROWS_PER_BATCH = 1_000
# AWS answers a short receive from a part of its servers: one empty answer proves little.
_EMPTY_POLLS = 2
_PEEK_WAIT_SECONDS = 1
# Of the 120,000 that may be in flight (docs/contract/sqs.md, limits), which AWS counts roughly.
_MOST_IN_FLIGHT = 114_000
_MOST_IDS = 100


def batch_reader(given: Mapping[str, str]) -> DataSourceReader:
    """Return the reader for these options. Raises BadOption."""
    options = batch_options(given)
    if options.mode == "drain":
        return DrainReader(drain_options(given), options.limit)
    return FilteredBrowseReader(options) if options.pushes_filters else LookReader(options)


@dataclass
class BrowseTask(InputPartition):
    """One range of the queue."""

    stretch: BrowseRange
    filters: dict[str, str]


class LookReader(DataSourceReader):
    """Reads without deleting: browses where the endpoint can, peeks elsewhere."""

    def __init__(self, options: BatchOptions) -> None:
        self.options = options
        self._filters: dict[str, str] = {}

    def partitions(self) -> Sequence[InputPartition]:
        """Plan ranges to browse, or the one task that peeks. Raises NotOffered for mode=browse."""
        with hiding_traceback():
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
        # One task peeks: of two, one would see the messages that the other released.
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        if isinstance(partition, BrowseTask):
            browser = QueueBrowser(self.options.connection, self.options.place.name)
            return self._shaped(browser.pages(partition.stretch, partition.filters))
        transport = open_transport(self.options.connection)
        return self._shaped(_peeked(self.options, transport, self.options.place.url(transport)))

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


class FilteredBrowseReader(LookReader):
    """Browses with filters. A separate class, because Spark refuses ``pushFilters`` unless its
    setting ``spark.sql.python.filterPushdown.enabled`` is on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Pass filters to the endpoint. Spark filters again, because the endpoint omits only a
        part."""
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
        """Plan a task for each slot of each segment of the spool."""
        with hiding_traceback():
            return drained(self.options, self.limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, SlotTask)
        return rows_of(partition, store_of(self.options), self.options)


def _peeked(options: BatchOptions, transport: Transport, url: str) -> Iterator[list[Message]]:
    """Receive until the queue is empty, and release everything at the end. Raises ConnectorError
    when that takes so long that the first messages are delivered again, and when the queue has more
    messages than may be in flight."""
    held: dict[str, str] = {}
    page: list[Message] = []
    began = time.monotonic()
    empty = 0
    try:
        while empty < _EMPTY_POLLS and len(held) < (options.limit or 1 << 62):
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
            # At the limit a long poll is not refused: it finds nothing.
            figures = transport.figures(url)
            if figures.visible and max(figures.in_flight, len(held)) >= _MOST_IN_FLIGHT:
                raise _held_too_many(options, len(held))
        yield page
    finally:
        release_messages(transport, url, list(held.values()))
        transport.close()


def _held(options: BatchOptions, transport: Transport, url: str, before: int) -> list[Message]:
    try:
        return transport.receive(
            url,
            most=min(MOST_PER_CALL, (options.limit or 1 << 62) - before),
            visibility_seconds=options.peek_seconds,
            wait_seconds=_PEEK_WAIT_SECONDS,
            wanted=AttributeNames(options.attribute_names),
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
    """Yield parameters of the endpoint that keep every message which passes this filter."""
    column = ".".join(getattr(one, "attribute", ()))
    value: Any = getattr(one, "value", None)
    is_equal = isinstance(one, EqualTo)
    if column == "message_group_id" and is_equal:
        yield "group_id", value
    elif column == "message_id" and (is_equal or isinstance(one, In)):
        ids = [value] if is_equal else list(value)
        if 0 < len(ids) <= _MOST_IDS and all(UUID.fullmatch(str(each)) for each in ids):
            yield "message_id", ",".join(ids)
    elif column == "sent_timestamp" and isinstance(value, datetime):
        # To the millisecond, as the service counts; Spark filters the rest.
        if is_equal or isinstance(one, GreaterThan | GreaterThanOrEqual):
            yield "sent_since", _instant(value, floor=True)
        if is_equal or isinstance(one, LessThan | LessThanOrEqual):
            yield "sent_until", _instant(value, floor=False)
    elif column == "approximate_receive_count" and isinstance(value, int):
        if is_equal or isinstance(one, GreaterThan | GreaterThanOrEqual):
            yield "min_receives", str(max(0, value))
        if is_equal or isinstance(one, LessThan | LessThanOrEqual):
            yield "max_receives", str(max(0, value))


def _instant(value: datetime, *, floor: bool) -> str:
    moment = value.astimezone(UTC)
    thousands = moment.microsecond // 1_000 * 1_000
    if not floor and moment.microsecond % 1_000:
        thousands = min(thousands + 1_000, 999_999)
    return moment.replace(microsecond=thousands).isoformat()
