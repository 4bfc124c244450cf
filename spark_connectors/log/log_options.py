"""Options of the log's source and sink. The source's have the names and meanings of Kafka's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_connectors.log.progress import CREATED_AT
from spark_connectors.options import (
    CONNECTING,
    NAMES,
    TEXT,
    TRUTH,
    BadOption,
    Option,
    OptionKind,
    choice,
    connection_of,
    duration,
    read_options,
    whole,
)
from spark_connectors.sink.sink_options import SINK_OPTIONS as OF_QUEUES
from spark_connectors.source.queue_options import slots_of
from spark_connectors.transport.aws import Connection

LATEST, EARLIEST = -1, -2
_WORDS = {"latest": LATEST, "earliest": EARLIEST}
_MOST_TASKS = 10_000
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

BOOTSTRAP = Option("bootstrap", TEXT, None, "The same as `endpointUrl`, or `host:port`.")
_SUBSCRIBING = (
    BOOTSTRAP,
    Option(
        "subscribe",
        NAMES,
        (),
        "Logs to read, with commas between; this, `subscribePattern` or `assign`.",
        (),
        "required",
    ),
    Option(
        "subscribePattern",
        OptionKind("pattern", _pattern),
        None,
        "Python's regular expression for the whole name: logs that match, also those that are made "
        "while the stream runs.",
    ),
    Option(
        "assign", OptionKind("partitions", _assigned), None, 'Partitions: `{"orders": [0, 1]}`.'
    ),
)
_READING = (
    Option(
        "minPartitions",
        whole(1, _MOST_TASKS),
        None,
        "Tasks of a batch, at least: partitions of the log are cut where there are fewer, and read "
        "by so many tasks together where there are more.",
        (),
        "cores of the driver, at most 8, and one for each 100,000 records; no partition is cut",
    ),
    Option(
        "failOnDataLoss",
        TRUTH,
        True,
        "Fail when records were collected, purged or deleted with their log before they were read; "
        "`false`: say so in the log and go on.",
    ),
    Option("includeHeaders", TRUTH, False, "Add the column `headers`: the records' metadata."),
)


def _starting(default: str) -> tuple[Option, ...]:
    return (
        Option(
            "startingOffsets",
            _OFFSETS,
            PositionOption(_WORDS[default]),
            "`earliest`, `latest` or JSON by log and partition, where -2 is earliest and -1 "
            "latest; partitions that it does not name, and those that are made later, begin at "
            "their first record.",
            (),
            "`latest`; of a batch `earliest`",
        ),
        Option(
            "startingTimestamp",
            whole(0, 1 << 53),
            None,
            "Milliseconds since 1970: begin with what was published then or later. Goes before the "
            "two others.",
        ),
        Option(
            "startingOffsetsByTimestamp",
            _TIMES,
            None,
            "The same for each partition, as JSON. Goes before `startingOffsets`.",
        ),
        Option(
            "startingOffsetsByTimestampStrategy",
            choice("error", "latest"),
            "error",
            "Where a partition has nothing that was published so late: fail, or begin behind it.",
        ),
    )


STREAM_OPTIONS = (
    *_SUBSCRIBING,
    *CONNECTING,
    *_starting("latest"),
    *_READING,
    Option(
        "maxOffsetsPerTrigger",
        whole(1, 1 << 40),
        None,
        "Records in a batch, at most: of each partition in proportion to what it has.",
        (),
        "all that there are",
    ),
    Option(
        "minOffsetsPerTrigger",
        whole(1, 1 << 40),
        None,
        "Records in a batch, at least, unless `maxTriggerDelay` is over.",
    ),
    Option(
        "maxTriggerDelay",
        duration(0.1, 30 * _DAY),
        900.0,
        "How long after a batch `minOffsetsPerTrigger` delays the next one.",
        (),
        "`15m`",
    ),
    Option(
        "groupId",
        TEXT,
        None,
        "Group that is told what Spark has committed, for its lag, and so that nothing is "
        "collected before; the query itself goes by its checkpoint alone.",
    ),
)
BATCH_OPTIONS = (
    *_SUBSCRIBING,
    *CONNECTING,
    *_starting("earliest"),
    Option(
        "endingOffsets",
        _OFFSETS,
        PositionOption(LATEST),
        "Where to end, this record not included: `latest`, or JSON where -1 is latest.",
        (),
        "`latest`",
    ),
    Option("endingTimestamp", whole(0, 1 << 53), None, "End before what was published then."),
    Option("endingOffsetsByTimestamp", _TIMES, None, "The same for each partition, as JSON."),
    *_READING,
    Option(
        "pushFilters",
        TRUTH,
        False,
        "Read only what filters by `topic`, `partition` and `offset` leave; needs "
        "`spark.sql.python.filterPushdown.enabled`.",
    ),
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
    return _common(read)._replace(
        most_rows=most,
        least_rows=least,
        trigger_delay_seconds=read["maxTriggerDelay"],
        group=read["groupId"],
    )


def batch_options(given: Mapping[str, str]) -> LogOptions:
    """Raises BadOption."""
    read = read_options(BATCH_OPTIONS, given)
    if read["startingOffsets"].offset == LATEST:
        raise BadOption("option 'startingOffsets': a batch that begins at latest has nothing")
    ending: PositionOption = read["endingOffsets"]
    if EARLIEST in (ending.offset, *_values(ending.offsets)):
        raise BadOption("option 'endingOffsets': nothing lies before the earliest record")
    if read["endingTimestamp"] is not None:
        ending = PositionOption(time=read["endingTimestamp"])
    return _common(read)._replace(
        ending=read["endingOffsetsByTimestamp"] or ending
        if read["endingTimestamp"] is None
        else ending,
        pushes_filters=read["pushFilters"],
    )


def _values(offsets: ByPartition | None) -> list[int]:
    return [one for by in (offsets or {}).values() for one in by.values()]


def _common(read: dict[str, Any]) -> LogOptions:
    starting: PositionOption = read["startingOffsetsByTimestamp"] or read["startingOffsets"]
    if read["startingTimestamp"] is not None:
        starting = PositionOption(time=read["startingTimestamp"])
    return LogOptions(
        connection=connection_of(with_bootstrap(read)),
        subscribed=_subscribed(read),
        starting=starting,
        ending=PositionOption(LATEST),
        late_is_error=read["startingOffsetsByTimestampStrategy"] == "error",
        least_tasks=read["minPartitions"],
        tasks=slots_of(read),
        fails_on_loss=read["failOnDataLoss"],
        has_headers=read["includeHeaders"],
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


MOST_RECORDS = 1_000
_SAME = {option.name: option for option in OF_QUEUES}

LOG_SINK_OPTIONS = (
    BOOTSTRAP,
    *CONNECTING,
    Option(
        "topic",
        TEXT,
        None,
        "The log; it is made by its first record.",
        (),
        "required, unless rows have a column `topic`",
    ),
    Option(
        "batchSize",
        whole(1, MOST_RECORDS),
        MOST_RECORDS,
        "Records in a request, at most; all or none.",
    ),
    Option(
        "deduplication",
        choice("column", "rows", "none"),
        None,
        "Where the records' ids come from: the column `id`; `rows`, a digest of query, batch, "
        "partition and what the row says, so that a row which is sent again by the same task is "
        "known, in whatever order; `none`.",
        (),
        "`column` where there is one, else `rows`",
    ),
    _SAME["deduplicationColumns"]._replace(
        meaning="Columns that say what a row is; their SHA-256 becomes the record's id."
    ),
    _SAME["orderBy"],
    _SAME["maxSendPerSecond"],
    _SAME["concurrency"]._replace(
        meaning="Requests of a task under way at once. A key has one of them."
    ),
    _SAME["summaryPath"],
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
    return LogSinkSettings(
        connection=connection_of(with_bootstrap(read)),
        log=read["topic"],
        most_records=read["batchSize"],
        deduplication="columns" if read["deduplicationColumns"] else read["deduplication"],
        deduplication_columns=read["deduplicationColumns"],
        order_by=read["orderBy"],
        most_per_second=read["maxSendPerSecond"],
        concurrency=read["concurrency"],
        summary_path=read["summaryPath"],
    )
