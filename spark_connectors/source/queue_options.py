"""Options of the queue source, for streams and batches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError
from spark_connectors.options import (
    CONNECTING,
    NAMES,
    QUEUE,
    TEXT,
    TRUTH,
    BadOption,
    Option,
    OptionKind,
    QueuePlace,
    choice,
    connection_of,
    duration,
    read_options,
    seconds,
    size,
    unknown_names,
    whole,
)
from spark_connectors.rows.row_columns import RowShape, arrow_schema, kept_columns, system_names
from spark_connectors.spool.stores import checked_path
from spark_connectors.transport.aws import Connection
from spark_connectors.transport.aws.message_calls import MOST_PER_CALL, AttributeNames

_MOST_SLOTS = 1_000
# Fewer messages are not worth a separate task, when no option sets the number of tasks.
_ROWS_PER_SLOT = 1_000
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


SHAPING = (
    Option("valueFormat", choice("sqs", "kafka"), "sqs", "`kafka`: columns as in Kafka's source."),
    Option("unwrapSns", TRUTH, False, "Take what SNS wrapped out of its envelope; adds columns."),
    Option("includeReceiptHandle", TRUTH, False, "Add the column `receipt_handle`."),
    Option(
        "columns",
        NAMES,
        (),
        "Only these, in this order: what is not asked for is not received, spooled or sent to the "
        "JVM.",
        (),
        "all",
    ),
    Option("messageAttributeNames", NAMES, ("All",), "Message attributes to ask for.", (), "`All`"),
)
RECEIVING = (
    Option(
        "receiveThreads",
        whole(1, 64),
        8,
        "Receives at once, deletes at once: of the driver, or of each task.",
    ),
    Option("visibilityTimeout", whole(1, 43_200), 120, "Seconds; sent with each receive."),
    Option(
        "waitTimeSeconds",
        whole(0, 20),
        20,
        "How long a receive waits on an idle queue; at most a quarter of `visibilityTimeout`.",
    ),
    Option(
        "minPartitions",
        whole(1, _MOST_SLOTS),
        None,
        "Partitions of a batch; in executor mode at most one for ten messages that wait.",
        ("numPartitions",),
        "cores of the driver, at most 8; in executor mode one for 1,000 messages that wait, of a "
        "FIFO queue one",
    ),
)
SPOOLING = (
    Option(
        "spoolPath",
        TEXT,
        None,
        "Directory that driver and executors see, or `s3://bucket/prefix`; one for each query.",
        (),
        "required for `exactly_once`",
    ),
    Option("spoolEndpointUrl", TEXT, None, "Where the S3 of an `s3://` spool is.", (), "AWS"),
    Option("spoolCompression", choice("zstd", "lz4", "none"), "zstd", "Of the spool's segments."),
    Option(
        "failOnDataLoss", TRUTH, True, "Fail when a segment of the spool is missing or damaged."
    ),
)
STREAM_OPTIONS = (
    *QUEUE,
    *CONNECTING,
    *SPOOLING,
    Option(
        "spoolPayload",
        choice("shared", "inline"),
        "shared",
        "`inline`: executors that cannot read `spoolPath` get the rows with their tasks.",
    ),
    Option("spoolRetentionBatches", whole(0, 100_000), 100, "Committed segments that stay."),
    Option(
        "spoolRetentionBytes",
        size(0, 1 << 50),
        1 << 30,
        "How large these are together, at most: the oldest go first.",
        (),
        "`1g`",
    ),
    Option(
        "deliveryGuarantee",
        choice("exactly_once", "at_least_once"),
        "exactly_once",
        "`at_least_once` needs no spool.",
    ),
    Option(
        "receiveMode",
        choice("driver", "executor"),
        "driver",
        "`executor`: tasks receive; for more than 10,000 messages a second.",
    ),
    Option(
        "deleteMode",
        choice("commit", "spool"),
        None,
        "Delete when Spark has committed, or when the spool has the message.",
        ("deleteOn",),
        "`commit`; `spool` for FIFO queues and in executor mode",
    ),
    Option(
        "maxOffsetsPerTrigger",
        whole(1, 10_000_000),
        10_000,
        "Messages in a batch, at most.",
        ("maxMessagesPerTrigger",),
    ),
    Option(
        "minOffsetsPerTrigger",
        whole(1, 10_000_000),
        None,
        "Messages in a batch, at least, unless `maxTriggerDelay` is over.",
        ("minMessagesPerTrigger",),
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
        "maxBytesPerTrigger",
        size(1, 1 << 40),
        None,
        "Bytes of bodies in a batch, at most (a larger message comes alone).",
        (),
        "`64m`; `8m` with rows inline",
    ),
    Option(
        "maxPrefetchBatches", whole(0, 100), 1, "Batches received ahead while one is worked on."
    ),
    Option("maxReceiveSeconds", seconds(0.05, 300), 1.0, "How long messages gather in memory."),
    Option("maxInFlight", whole(10, 10_000_000), 50_000, "Messages received and not yet deleted."),
    *RECEIVING,
    Option("dedupe", TRUTH, True, "Emit a message that was delivered again only once."),
    Option(
        "dedupeWindow",
        OptionKind("seconds|auto", _window),
        None,
        "How long ids are known after the delete. `auto`: only where a redelivery is possible.",
        (),
        "`auto`",
    ),
    Option(
        "onSpoolMismatch",
        choice("fail", "adopt", "discard"),
        "fail",
        "A spool in use and a new checkpoint, or the other way round: go on with what the spool "
        "has, or drop it.",
    ),
    *SHAPING,
)


class StreamOptions(NamedTuple):
    """The parsed options of a stream. Picklable; sent to executors with tasks."""

    connection: Connection
    place: QueuePlace
    shape: RowShape
    slots: int
    rows_per_slot: int
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
    is_executors = read["receiveMode"] == "executor"
    _check(read, is_executors)
    in_memory = read["deliveryGuarantee"] == "at_least_once"
    payload = "inline" if in_memory else read["spoolPayload"]
    most_bytes = read["maxBytesPerTrigger"] or (_INLINE_BYTES if payload == "inline" else 64 << 20)
    delete_mode = read["deleteMode"]
    most_slots = None
    if is_executors:
        most_slots = 1 if place.is_fifo else _MOST_SLOTS
    if delete_mode is None:
        early = (place.is_fifo or is_executors) and not in_memory
        delete_mode = "spool" if early else "commit"
    return StreamOptions(
        connection=connection_of(read),
        place=place,
        shape=shape_of(read),
        slots=slots_of(read, most_slots),
        rows_per_slot=MOST_PER_CALL if read["minPartitions"] else _ROWS_PER_SLOT,
        receive_mode=read["receiveMode"],
        delete_mode=delete_mode,
        guarantee=read["deliveryGuarantee"],
        spool_path=read["spoolPath"] or "",
        spool_payload=payload,
        spool_endpoint_url=read["spoolEndpointUrl"],
        spool_compression=read["spoolCompression"],
        spool_retention_batches=read["spoolRetentionBatches"],
        spool_retention_bytes=read["spoolRetentionBytes"],
        most_rows=read["maxOffsetsPerTrigger"],
        least_rows=read["minOffsetsPerTrigger"] or 0,
        trigger_delay_seconds=read["maxTriggerDelay"],
        most_bytes=most_bytes,
        prefetch_batches=read["maxPrefetchBatches"],
        receive_seconds=read["maxReceiveSeconds"],
        receive_threads=read["receiveThreads"],
        visibility_seconds=read["visibilityTimeout"],
        wait_seconds=read["waitTimeSeconds"],
        most_in_flight=read["maxInFlight"],
        dedupe=read["dedupe"],
        dedupe_window=read["dedupeWindow"],
        fail_on_data_loss=read["failOnDataLoss"],
        on_mismatch=read["onSpoolMismatch"],
        attribute_names=read["messageAttributeNames"],
    )


def _check(read: dict[str, Any], is_executors: bool) -> None:
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
    elif is_executors:
        raise BadOption("receiveMode=executor needs a spool: deliveryGuarantee=exactly_once")
    elif read["deleteMode"] == "spool":
        raise BadOption(
            "deleteMode=spool deletes what only the spool still has, and at_least_once has none"
        )
    if is_executors and read["spoolPayload"] == "inline":
        raise BadOption("receiveMode=executor writes the spool from executors: spoolPayload=shared")
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


def slots_of(read: dict[str, Any], otherwise: int | None = None) -> int:
    """Return the number of partitions."""
    wanted: int | None = read["minPartitions"]
    return wanted or otherwise or min(os.cpu_count() or 1, 8)


_MODES = ("auto", "browse", "peek", "drain")

BATCH_OPTIONS = (
    *QUEUE,
    *CONNECTING,
    Option(
        "mode",
        choice(*_MODES),
        "auto",
        "`browse`: look, receive nothing (an endpoint of Queuegate). `peek`: receive, hold, give "
        "back. `drain`: move everything into `spoolPath` and read that. `auto`: browse, else peek.",
    ),
    Option("limit", whole(1, 1 << 40), None, "Messages, at most.", (), "all"),
    Option(
        "pushFilters",
        TRUTH,
        False,
        "Browse: let the endpoint filter by `message_id`, `message_group_id`, `sent_timestamp` and "
        "`approximate_receive_count`; needs `spark.sql.python.filterPushdown.enabled`.",
    ),
    Option(
        "peekVisibilitySeconds",
        whole(1, 43_200),
        60,
        "Peek: how long messages are held; the scan must be faster.",
    ),
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
    return BatchOptions(
        connection=connection_of(read),
        place=QueuePlace(read),
        shape=shape_of(read),
        slots=slots_of(read),
        mode=read["mode"],
        limit=read["limit"],
        pushes_filters=read["pushFilters"],
        peek_seconds=read["peekVisibilitySeconds"],
        attribute_names=read["messageAttributeNames"],
    )


def drain_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a drain: a stream that ends, deletes spooled messages, and keeps the
    spool.

    Raises BadOption.
    """
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
    """Check that the options fit a stream or a batch, before Spark says which. Raises BadOption.
    The queue is not called: many plans are never run."""
    try:
        stream_options(given)
    except BadOption as of_stream:
        try:
            batch_options(given)
        except BadOption as of_batch:
            # The intended one is the one that knows the names.
            raise (of_batch if unknown_names(STREAM_OPTIONS, given) else of_stream) from None
