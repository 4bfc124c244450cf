"""Options of the log's source and sink. The source's have the names and meanings of Kafka's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spark_connectors.endpoints import Connection
from spark_connectors.log.log_api import CREATED_AT
from spark_connectors.options import (
    CONNECTING,
    BadOption,
    Option,
    OptionKind,
    check_either,
    connection_of,
    declared,
    fields_of,
    read_options,
)
from spark_connectors.sink.sink_options import SENDING
from spark_connectors.source.queue_options import slots_of

LATEST, EARLIEST = -1, -2
_WORDS = {"latest": LATEST, "earliest": EARLIEST}
_DAY = 86_400
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
# No partition is named: all of them.
ByPartition = dict[str, dict[int, int]]


class PositionOption(NamedTuple):
    """A start or an end: one of ``offset`` for all partitions (LATEST, EARLIEST), ``offsets`` for
    named ones (LATEST and EARLIEST allowed), ``time`` for all, ``times`` for named ones. Times are
    in milliseconds since the epoch."""

    offset: int | None = None
    offsets: ByPartition | None = None
    time: int | None = None
    times: ByPartition | None = None


def _by_partition(given: str, expected: str, least: int) -> ByPartition:
    try:
        found = json.loads(given)
        read = {
            log: {int(one): offset for one, offset in offsets.items() if one != CREATED_AT}
            for log, offsets in found.items()
        }
    except (ValueError, AttributeError):
        raise ValueError(expected) from None
    offsets = [offset for one in read.values() for offset in one.values()]
    if any(type(one) is not int or one < least for one in offsets):
        raise ValueError(expected)
    return read


def _offsets(given: str) -> PositionOption:
    if given.lower() in _WORDS:
        return PositionOption(_WORDS[given.lower()])
    shape = 'earliest, latest or JSON such as {"orders": {"0": 23, "1": -2}}'
    return PositionOption(offsets=_by_partition(given, shape, EARLIEST))


def _times(given: str) -> PositionOption:
    shape = 'JSON such as {"orders": {"0": 1700000000000}}, in milliseconds since 1970'
    return PositionOption(times=_by_partition(given, shape, 0))


def _assigned(given: str) -> dict[str, frozenset[int]]:
    try:
        found = json.loads(given)
        read = {log: frozenset(map(int, numbers)) for log, numbers in found.items()}
    except (ValueError, TypeError, AttributeError):
        read = {}
    if not read or not all(read.values()):
        raise ValueError('JSON such as {"orders": [0, 1]}')
    return read


def _pattern(given: str) -> re.Pattern[str]:
    try:
        return re.compile(given)
    except re.error as bad:
        raise ValueError(f"a regular expression ({bad})") from None


_OFFSETS = OptionKind("offsets", _offsets)
_TIMES = OptionKind("times", _times)

BOOTSTRAP = declared("""
bootstrap | text
  The same as `endpointUrl`, or `host:port`.
""")
_SUBSCRIBING = BOOTSTRAP + declared(
    """
subscribe | names | - | required
  Logs to read, separated by commas. Give this, `subscribePattern` or `assign`.
subscribePattern | pattern
  Python regular expression for the whole name. Includes logs that are created later.
assign | partitions
  Partitions to read: `{"orders": [0, 1]}`.
""",
    pattern=OptionKind("pattern", _pattern),
    partitions=OptionKind("partitions", _assigned),
)
_READING = declared("""
minPartitions =least_tasks | int 1 10000 | - | cores of the driver, at most 8, and one for each \
100,000 records; no partition is cut
  Minimum tasks of a batch. Partitions of the log are cut if there are fewer, and combined if there
  are more.
failOnDataLoss =fails_on_loss | bool | true
  Fail if records were collected, purged or deleted before they were read. `false`: log a warning
  and continue.
includeHeaders =has_headers | bool | false
  Add the column `headers` with the metadata of the records.
""")


def _starting(default: str) -> tuple[Option, ...]:
    return declared(
        f"""
startingOffsets | offsets | {default} | `latest`; of a batch `earliest`
  `earliest`, `latest` or JSON by log and partition (-2: earliest, -1: latest). Partitions that the
  JSON does not name, and later ones, start at their first record.
startingTimestamp | int 0 8388608g
  Milliseconds since 1970. Start with records published then or later. Overrides the two others.
startingOffsetsByTimestamp | times
  The same for each partition, as JSON. Overrides `startingOffsets`.
startingOffsetsByTimestampStrategy | error|latest | error
  For a partition without such records: fail, or start after its last record.
""",
        offsets=_OFFSETS,
        times=_TIMES,
    )


STREAM_OPTIONS = (
    *_SUBSCRIBING,
    *CONNECTING,
    *_starting("latest"),
    *_READING,
    *declared("""
maxOffsetsPerTrigger =most_rows | int 1 1024g | - | all available records
  Maximum records in a batch, shared among partitions in proportion to what they have.
minOffsetsPerTrigger | int 1 1024g
  Minimum records in a batch, until `maxTriggerDelay` has passed.
maxTriggerDelay =trigger_delay_seconds | time 0.1 2592000 | 15m
  Maximum delay of a batch by `minOffsetsPerTrigger`.
groupId =group | text
  Group to which the source commits what Spark has committed. The gateway shows its lag, and retains
  records that it has not committed. The query itself uses its checkpoint alone.
"""),
)
BATCH_OPTIONS = (
    *_SUBSCRIBING,
    *CONNECTING,
    *_starting("earliest"),
    *declared(
        """
endingOffsets | offsets | latest
  End, exclusive: `latest`, or JSON (-1: latest).
endingTimestamp | int 0 8388608g
  End before records published at this time, in milliseconds since 1970.
endingOffsetsByTimestamp | times
  The same for each partition, as JSON.
""",
        offsets=_OFFSETS,
        times=_TIMES,
    ),
    *_READING,
    *declared("""
pushFilters =pushes_filters | bool | false
  Read only what filters by `topic`, `partition` and `offset` leave. Needs
  `spark.sql.python.filterPushdown.enabled`.
"""),
)


class Subscribed(NamedTuple):
    """The logs to read, and their partitions (none named: all)."""

    names: tuple[str, ...]
    pattern: re.Pattern[str] | None
    assigned: dict[str, frozenset[int]]

    def has(self, log: str, partition: int) -> bool:
        """Return True if this partition of a subscribed log is to be read."""
        return log not in self.assigned or partition in self.assigned[log]


class LogOptions(NamedTuple):
    """The parsed options of a stream or a batch. Picklable; sent to executors."""

    connection: Connection
    subscribed: Subscribed
    starting: PositionOption
    ending: PositionOption
    late_is_error: bool
    least_tasks: int | None
    tasks: int
    fails_on_loss: bool
    has_headers: bool
    most_rows: int | None = None
    least_rows: int = 0
    trigger_delay_seconds: float = 0.0
    group: str | None = None
    pushes_filters: bool = False


def stream_options(given: Mapping[str, str]) -> LogOptions:
    """Raises BadOption."""
    read = read_options(STREAM_OPTIONS, given)
    most, least = read["maxOffsetsPerTrigger"], read["minOffsetsPerTrigger"] or 0
    if most is not None and least > most:
        raise BadOption(
            f"minOffsetsPerTrigger={least} must not be above maxOffsetsPerTrigger={most}"
        )
    if read["groupId"] is not None:
        check_name("groupId", read["groupId"])
    return _common(STREAM_OPTIONS, read, PositionOption(LATEST))._replace(least_rows=least)


def batch_options(given: Mapping[str, str]) -> LogOptions:
    """Raises BadOption."""
    read = read_options(BATCH_OPTIONS, given)
    if read["startingOffsets"].offset == LATEST:
        raise BadOption("option 'startingOffsets': a batch that begins at latest has nothing")
    ending: PositionOption = read["endingOffsets"]
    if EARLIEST in (ending.offset, *_values(ending.offsets)):
        raise BadOption("option 'endingOffsets': nothing lies before the earliest record")
    return _common(BATCH_OPTIONS, read, _timed(read, "ending"))


def check_options(given: Mapping[str, str]) -> None:
    """Check that the options fit a stream or a batch. Raises BadOption."""
    check_either(stream_options, batch_options, STREAM_OPTIONS, given)


def _values(offsets: ByPartition | None) -> list[int]:
    return [one for by in (offsets or {}).values() for one in by.values()]


def _timed(read: dict[str, Any], which: str) -> PositionOption:
    """Return the start or the end: a time for all, times by partition, or offsets."""
    if read[f"{which}Timestamp"] is not None:
        return PositionOption(time=read[f"{which}Timestamp"])
    found: PositionOption = read[f"{which}OffsetsByTimestamp"] or read[f"{which}Offsets"]
    return found


def _common(declared: Sequence[Option], read: dict[str, Any], ending: PositionOption) -> LogOptions:
    return LogOptions(
        connection=connection_of(with_bootstrap(read)),
        subscribed=_subscribed(read),
        starting=_timed(read, "starting"),
        ending=ending,
        late_is_error=read["startingOffsetsByTimestampStrategy"] == "error",
        tasks=slots_of(read),
        **fields_of(declared, read, LogOptions._fields),
    )


def with_bootstrap(read: dict[str, Any]) -> dict[str, Any]:
    """Return the options with ``bootstrap`` as ``endpointUrl``. Raises BadOption."""
    bootstrap = read["bootstrap"]
    if bootstrap is None:
        return read
    if read["endpointUrl"] is not None:
        raise BadOption("bootstrap and endpointUrl say the same: give one of them")
    return {**read, "endpointUrl": bootstrap if "://" in bootstrap else f"http://{bootstrap}"}


def _subscribed(read: dict[str, Any]) -> Subscribed:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if read[name]]
    if len(given) != 1:
        raise BadOption("one of subscribe, subscribePattern and assign is required, and not more")
    assigned = read["assign"] or {}
    names = tuple(sorted({*read["subscribe"], *assigned}))
    for name in names:
        check_name(given[0], name)
    return Subscribed(names, read["subscribePattern"], assigned)


def check_name(option: str, name: str) -> None:
    """Raise BadOption for an invalid name of a log or group."""
    if not _NAME.fullmatch(name):
        raise BadOption(
            f"option '{option}': '{name}' is no name: letters, digits, - and _, at most 80"
        )


_OF_QUEUES = {option.name: option for option in SENDING}
LOG_SINK_OPTIONS = (
    *BOOTSTRAP,
    *CONNECTING,
    *declared("""
topic =log | text | - | required, unless rows have a column `topic`
  The log. Its first record creates it.
batchSize =most_records | int 1 1000 | 1000
  Maximum records in a request. A request adds all records or none.
deduplication | column|rows|none | - | `column` if there is one, otherwise `rows`
  Source of record ids. `column`: the column `id`. `rows`: a digest of query, batch, partition and
  content, so a repeated row of the same task is known, in any order. `none`: no ids.
deduplicationColumns | names
  Columns that identify a row. Their SHA-256 is the record's id.
"""),
    _OF_QUEUES["orderBy"],
    _OF_QUEUES["maxSendPerSecond"],
    _OF_QUEUES["concurrency"]._replace(
        meaning="Concurrent requests of a task. A key has one of them."
    ),
    _OF_QUEUES["summaryPath"],
)


class LogSinkSettings(NamedTuple):
    """The parsed options of a sink. ``log`` None: each row names its log."""

    connection: Connection
    log: str | None
    most_records: int
    deduplication: str | None
    deduplication_columns: tuple[str, ...]
    order_by: tuple[str, ...]
    most_per_second: int | None
    concurrency: int
    summary_path: str | None


def log_sink_settings(given: Mapping[str, str]) -> LogSinkSettings:
    """Raises BadOption."""
    read = read_options(LOG_SINK_OPTIONS, given)
    if read["topic"] is not None:
        check_name("topic", read["topic"])
    if read["deduplication"] and read["deduplicationColumns"]:
        raise BadOption("deduplication and deduplicationColumns: a record has one id, choose one")
    fields = fields_of(LOG_SINK_OPTIONS, read, LogSinkSettings._fields)
    if read["deduplicationColumns"]:
        fields["deduplication"] = "columns"
    return LogSinkSettings(connection_of(with_bootstrap(read)), **fields)
