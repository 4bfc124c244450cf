"""Options of the log's source, with the names of Kafka's source and its meanings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_connectors.log.positions import CREATED_AT
from spark_connectors.options.aws import CONNECTING, connection_of
from spark_connectors.options.declaring import (
    NAMES,
    TEXT,
    TRUTH,
    BadOption,
    Kind,
    Option,
    choice,
    duration,
    read_options,
    whole,
)
from spark_connectors.source.options import slots_of
from spark_connectors.transport.aws import Connection

LATEST, EARLIEST = -1, -2
_WORDS = {"latest": LATEST, "earliest": EARLIEST}
_MOST_TASKS = 10_000
_DAY = 86_400
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
# No partition is named: all of them.
ByPartition = dict[str, dict[int, int]]


class Where(NamedTuple):
    """Where to begin, or to end: one of ``offset`` for all partitions (LATEST, EARLIEST),
    ``offsets`` for those that are named (LATEST and EARLIEST among them), ``time`` for all,
    ``times`` for those that are named. Times in milliseconds since the epoch."""

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


def _offsets(given: str) -> Where:
    if given.lower() in _WORDS:
        return Where(_WORDS[given.lower()])
    shape = 'earliest, latest or JSON such as {"orders": {"0": 23, "1": -2}}'
    return Where(offsets=_by_partition(given, shape, EARLIEST))


def _times(given: str) -> Where:
    shape = 'JSON such as {"orders": {"0": 1700000000000}}, in milliseconds since 1970'
    return Where(times=_by_partition(given, shape, 0))


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


_OFFSETS = Kind("offsets", _offsets)
_TIMES = Kind("times", _times)

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
        Kind("pattern", _pattern),
        None,
        "Python's regular expression for the whole name: logs that match, also those that are made "
        "while the stream runs.",
    ),
    Option("assign", Kind("partitions", _assigned), None, 'Partitions: `{"orders": [0, 1]}`.'),
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
            Where(_WORDS[default]),
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
        Where(LATEST),
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
    """Which logs, and of these which partitions (empty: all)."""

    names: tuple[str, ...]
    pattern: re.Pattern[str] | None
    assigned: dict[str, frozenset[int]]

    def has(self, log: str, partition: int) -> bool:
        """Whether this partition is to be read, of a log that is."""
        return log not in self.assigned or partition in self.assigned[log]


class LogOptions(NamedTuple):
    """Options of a stream or a batch as they were understood. Picklable; sent to executors."""

    connection: Connection
    subscribed: Subscribed
    starting: Where
    ending: Where
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
    ending: Where = read["endingOffsets"]
    if EARLIEST in (ending.offset, *_values(ending.offsets)):
        raise BadOption("option 'endingOffsets': nothing lies before the earliest record")
    if read["endingTimestamp"] is not None:
        ending = Where(time=read["endingTimestamp"])
    return _common(read)._replace(
        ending=read["endingOffsetsByTimestamp"] or ending
        if read["endingTimestamp"] is None
        else ending,
        pushes_filters=read["pushFilters"],
    )


def _values(offsets: ByPartition | None) -> list[int]:
    return [one for by in (offsets or {}).values() for one in by.values()]


def _common(read: dict[str, Any]) -> LogOptions:
    starting: Where = read["startingOffsetsByTimestamp"] or read["startingOffsets"]
    if read["startingTimestamp"] is not None:
        starting = Where(time=read["startingTimestamp"])
    return LogOptions(
        connection=connection_of(with_bootstrap(read)),
        subscribed=_subscribed(read),
        starting=starting,
        ending=Where(LATEST),
        late_is_error=read["startingOffsetsByTimestampStrategy"] == "error",
        least_tasks=read["minPartitions"],
        tasks=slots_of(read),
        fails_on_loss=read["failOnDataLoss"],
        has_headers=read["includeHeaders"],
    )


def with_bootstrap(read: dict[str, Any]) -> dict[str, Any]:
    """The options with what ``bootstrap`` says as ``endpointUrl``. Raises BadOption."""
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
    """Raise BadOption for what no log or group can be called."""
    if not _NAME.fullmatch(name):
        raise BadOption(
            f"option '{option}': '{name}' is no name: letters, digits, - and _, at most 80"
        )
