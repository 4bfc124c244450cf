"""Options of the queue source, for streams and batches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_connectors.endpoints import Connection
from spark_connectors.errors import ConnectorError
from spark_connectors.message_rows import RowShape, arrow_schema, kept_columns, system_names
from spark_connectors.options import (
    CONNECTING,
    QUEUE,
    BadOption,
    OptionKind,
    QueuePlace,
    check_either,
    connection_of,
    declared,
    fields_of,
    read_options,
)
from spark_connectors.stores import checked_path
from spark_connectors.transport import AttributeNames

_INLINE_BYTES = 8 << 20
_DAY = 86_400


def _window(given: str) -> float | None:
    if given.lower() == "auto":
        return None
    try:
        found = float(given)
    except ValueError:
        found = 0
    if not 0 < found <= 30 * _DAY:
        raise ValueError("auto, or seconds above 0 (without a window a redelivery is a duplicate)")
    return found


def _receive_mode(given: str) -> str:
    if given.lower() == "driver":
        return "driver"
    raise ValueError(
        "driver, which continues the spool of a query whose tasks received (executor, which is no "
        "more). For higher rates fill the batches (minOffsetsPerTrigger), or let a topic feed a "
        "log and read that with format queuegate-log"
    )


SHAPING = declared("""
valueFormat | sqs|kafka | sqs
  `kafka`: columns of Spark's Kafka source.
unwrapSns | bool | false
  Replace an SNS envelope by the message in it. Adds the columns `topic_arn` and `subject`.
includeReceiptHandle | bool | false
  Add the column `receipt_handle`.
columns | names | - | all
  Columns to return, in this order. Others are not received, spooled or sent to the JVM.
messageAttributeNames =attribute_names | names | All
  Message attributes to request.
""")
RECEIVING = declared("""
receiveThreads | int 1 64 | 8
  Concurrent receives, and concurrent deletes.
visibilityTimeout =visibility_seconds | int 1 43200 | 120
  Visibility timeout of each receive, in seconds.
waitTimeSeconds =wait_seconds | int 0 20 | 20
  Long poll on an idle queue, in seconds. At most a quarter of `visibilityTimeout`.
minPartitions numPartitions | int 1 1000 | - | cores of the driver, at most 8
  Partitions of a batch.
""")
SPOOLING = declared("""
spoolPath | text | - | required for `exactly_once`
  Directory that driver and executors see, or `s3://bucket/prefix`. One for each query.
spoolEndpointUrl | text | - | AWS
  S3 endpoint of an `s3://` spool.
spoolCompression | zstd|lz4|none | zstd
  Compression of segments.
failOnDataLoss | bool | true
  Fail if a segment of the spool is missing or damaged.
""")
STREAM_OPTIONS = (
    *QUEUE,
    *CONNECTING,
    *SPOOLING,
    *declared(
        """
spoolPayload | shared|inline | shared
  `inline`: tasks carry their rows, for executors that cannot read `spoolPath`.
spoolRetentionBatches | int 0 100000 | 100
  Committed segments to retain.
spoolRetentionBytes | bytes 0 1048576g | 1g
  Maximum total size of retained segments. The oldest are dropped first.
deliveryGuarantee =guarantee | exactly_once|at_least_once | exactly_once
  `at_least_once` needs no spool.
receiveMode | mode | driver
  Accepted for older jobs. The driver receives.
deleteMode deleteOn | commit|spool | - | `commit`; `spool` for FIFO queues
  Delete a message when Spark has committed it, or when it is in the spool.
maxOffsetsPerTrigger maxMessagesPerTrigger =most_rows | int 1 10000000 | 10000
  Maximum messages in a batch.
minOffsetsPerTrigger minMessagesPerTrigger =least_rows | int 1 10000000
  Minimum messages in a batch, until `maxTriggerDelay` has passed.
maxTriggerDelay =trigger_delay_seconds | time 0.1 2592000 | 15m
  Maximum delay of a batch by `minOffsetsPerTrigger`.
maxBytesPerTrigger =most_bytes | bytes 1 1024g | - | `64m`; `8m` with inline rows
  Maximum bytes of bodies in a batch. A larger message is a batch of its own.
maxPrefetchBatches =prefetch_batches | int 0 100 | 1
  Batches to receive ahead.
maxReceiveSeconds =receive_seconds | seconds 0.05 300 | 1
  Maximum time that messages collect in memory.
maxInFlight =most_in_flight | int 10 10000000 | 50000
  Maximum messages that are received and not deleted.
""",
        mode=OptionKind("driver", _receive_mode),
    ),
    *RECEIVING,
    *declared(
        """
dedupe | bool | true
  Drop redeliveries.
dedupeWindow | window | auto
  Time that ids are remembered after the delete. `auto`: only if a redelivery is possible.
onSpoolMismatch =on_mismatch | fail|adopt|discard | fail
  For a used spool with a new checkpoint, or a new spool with a used checkpoint: `adopt` continues
  with the content of the spool, `discard` drops it.
""",
        window=OptionKind("seconds|auto", _window),
    ),
    *SHAPING,
)


class StreamOptions(NamedTuple):
    """The parsed options of a stream. Picklable; sent to executors with tasks."""

    connection: Connection
    place: QueuePlace
    shape: RowShape
    slots: int
    receive_mode: str
    delete_mode: str
    guarantee: str
    spool_path: str
    spool_payload: str
    spool_endpoint_url: str | None
    spool_compression: str
    spool_retention_batches: int
    spool_retention_bytes: int
    most_rows: int
    least_rows: int
    trigger_delay_seconds: float
    most_bytes: int
    prefetch_batches: int
    receive_seconds: float
    receive_threads: int
    visibility_seconds: int
    wait_seconds: int
    most_in_flight: int
    dedupe: bool
    dedupe_window: float | None
    fail_on_data_loss: bool
    on_mismatch: str
    attribute_names: tuple[str, ...]

    @property
    def keeps_order(self) -> bool:
        """True if rows of a message group must stay in order."""
        return self.place.is_fifo

    @property
    def longest_wait_seconds(self) -> int:
        """The wait of a receive. A long wait would leave the start of a visibility timeout
        uncertain."""
        return min(self.wait_seconds, max(1, self.visibility_seconds // 4))

    @property
    def wanted(self) -> AttributeNames:
        """The attributes to request with each message."""
        has_attributes = "message_attributes" in kept_columns(self.shape)
        return AttributeNames(
            self.attribute_names if has_attributes else (), system_names(self.shape)
        )

    @property
    def is_in_memory(self) -> bool:
        """True if the spool dies with the process: at least once."""
        return self.guarantee == "at_least_once"


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Raises BadOption."""
    read = read_options(STREAM_OPTIONS, given)
    place = QueuePlace(read)
    _check(read)
    in_memory = read["deliveryGuarantee"] == "at_least_once"
    payload = "inline" if in_memory else read["spoolPayload"]
    most_bytes = read["maxBytesPerTrigger"] or (_INLINE_BYTES if payload == "inline" else 64 << 20)
    delete_mode = read["deleteMode"]
    if delete_mode is None:
        delete_mode = "spool" if place.is_fifo and not in_memory else "commit"
    fields = fields_of(STREAM_OPTIONS, read, StreamOptions._fields)
    fields |= {
        "connection": connection_of(read),
        "place": place,
        "shape": shape_of(read),
        "slots": slots_of(read),
        "delete_mode": delete_mode,
        "spool_path": read["spoolPath"] or "",
        "spool_payload": payload,
        "least_rows": read["minOffsetsPerTrigger"] or 0,
        "most_bytes": most_bytes,
    }
    return StreamOptions(**fields)


def _check(read: dict[str, Any]) -> None:
    """Raise BadOption for options that contradict each other."""
    check_spool(read)
    if read["deliveryGuarantee"] == "exactly_once":
        if not read["spoolPath"]:
            raise BadOption(
                "deliveryGuarantee=exactly_once needs spoolPath: a directory that the driver and "
                "all executors see, or s3://bucket/prefix, used by this query alone. "
                "spark_connectors.read_queue() puts it into the checkpoint. Without one: "
                "deliveryGuarantee=at_least_once"
            )
        if str(read["spoolPath"]).startswith("memory:"):
            raise BadOption("a spool in memory is not exactly once: it dies with the driver")
        if not read["dedupe"]:
            raise BadOption(
                "deliveryGuarantee=exactly_once needs dedupe=true: a message comes again when its "
                "visibility timeout ends before the delete. Or say deliveryGuarantee=at_least_once"
            )
    elif read["deleteMode"] == "spool":
        raise BadOption(
            "deleteMode=spool deletes what only the spool still has, and at_least_once has none"
        )
    most = min(read["maxOffsetsPerTrigger"], read["maxInFlight"])
    if (read["minOffsetsPerTrigger"] or 0) > most:
        raise BadOption(
            f"minOffsetsPerTrigger={read['minOffsetsPerTrigger']} must not be above "
            "maxOffsetsPerTrigger and maxInFlight"
        )
    if read["visibilityTimeout"] < 2 * read["maxReceiveSeconds"]:
        raise BadOption(
            f"visibilityTimeout={read['visibilityTimeout']} must be at least twice "
            f"maxReceiveSeconds={read['maxReceiveSeconds']:g}"
        )


def check_spool(read: dict[str, Any]) -> None:
    """Raise BadOption for an invalid spoolPath, before any call to the queue."""
    if read["spoolPath"]:
        try:
            checked_path(read["spoolPath"])
        except ConnectorError as wrong:
            raise BadOption(str(wrong)) from None


def shape_of(read: dict[str, Any]) -> RowShape:
    """Return the shape of the rows. Raises BadOption."""
    shape = RowShape(read["valueFormat"], read["includeReceiptHandle"], read["unwrapSns"])
    known, columns = arrow_schema(shape).names, read["columns"]
    for name in columns:
        if name not in known:
            raise BadOption(f"option 'columns': there is no '{name}' but {', '.join(known)}")
    if len(set(columns)) < len(columns):
        raise BadOption("option 'columns': a name is there twice")
    return shape._replace(columns=columns)


def slots_of(read: dict[str, Any]) -> int:
    """Return the number of partitions."""
    return read["minPartitions"] or min(os.cpu_count() or 1, 8)


BATCH_OPTIONS = (
    *QUEUE,
    *CONNECTING,
    *declared("""
mode | auto|browse|peek|drain | auto
  `browse`: read without receiving (Queuegate only). `peek`: receive, hold, release. `drain`: move
  all messages into `spoolPath` and read them there. `auto`: browse, otherwise peek.
limit | int 1 1024g | - | all
  Maximum messages.
pushFilters =pushes_filters | bool | false
  Browse: the endpoint filters by `message_id`, `message_group_id`, `sent_timestamp` and
  `approximate_receive_count`. Needs `spark.sql.python.filterPushdown.enabled`.
peekVisibilitySeconds =peek_seconds | int 1 43200 | 60
  Peek: time that messages are hidden. The scan must be faster.
"""),
    *RECEIVING,
    *SPOOLING,
    *SHAPING,
)
_OF_DRAIN = {
    option.name.lower() for option in (*QUEUE, *CONNECTING, *RECEIVING, *SPOOLING, *SHAPING)
} | {alias.lower() for option in (*QUEUE, *CONNECTING, *RECEIVING) for alias in option.aliases}


class BatchOptions(NamedTuple):
    """The parsed options of a batch. Picklable."""

    connection: Connection
    place: QueuePlace
    shape: RowShape
    slots: int
    mode: str
    limit: int | None
    pushes_filters: bool
    peek_seconds: int
    attribute_names: tuple[str, ...]


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Raises BadOption."""
    read: dict[str, Any] = read_options(BATCH_OPTIONS, given)
    check_spool(read)
    if read["mode"] == "drain" and not read["spoolPath"]:
        raise BadOption(
            "mode=drain deletes what it reads from the queue, so it needs spoolPath: a directory "
            "of its own, where the messages are afterwards, as often as they are read"
        )
    if read["pushFilters"] and read["mode"] in ("peek", "drain"):
        raise BadOption(f"pushFilters goes with mode=browse, not with mode={read['mode']}")
    fields = fields_of(BATCH_OPTIONS, read, BatchOptions._fields)
    place, shape = QueuePlace(read), shape_of(read)
    return BatchOptions(connection_of(read), place, shape, slots_of(read), **fields)


def drain_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a drain: a stream that ends, deletes spooled messages, and keeps the
    spool. Raises BadOption."""
    ours = {name: text for name, text in given.items() if name.lower() in _OF_DRAIN}
    return stream_options(ours)._replace(
        receive_mode="drain",
        delete_mode="spool",
        on_mismatch="adopt",
        spool_retention_batches=1 << 40,
        spool_retention_bytes=1 << 60,
    )


def check_stream(given: Mapping[str, str]) -> None:
    """Check a stream before it starts. Raises BadOption, and as QueuePlace.check."""
    options = stream_options(given)
    options.place.check(options.connection)


def check_options(given: Mapping[str, str]) -> None:
    """Check that the options fit a stream or a batch. Raises BadOption."""
    check_either(stream_options, batch_options, STREAM_OPTIONS, given)
