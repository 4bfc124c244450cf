"""Options of the queue source, streams and batches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError
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
    seconds,
    size,
    whole,
)
from spark_connectors.options.queues import QUEUE, QueuePlace
from spark_connectors.rows.schema import Shape, arrow_schema, kept_columns, system_names
from spark_connectors.spool.opening import checked_path
from spark_connectors.transport.aws import Connection
from spark_connectors.transport.aws.wire import MOST_PER_CALL, Wanted

_MOST_SLOTS = 1_000
# Fewer messages than these are not worth a task of their own, when nobody says how many tasks.
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
        Kind("seconds|auto", _window),
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
    """Options of a stream as they were understood. Picklable; sent to executors with tasks."""

    connection: Connection
    place: QueuePlace
    shape: Shape
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
        """Whether rows of a message group must stay in order."""
        return self.place.is_fifo

    @property
    def longest_wait_seconds(self) -> int:
        """How long a receive waits: who waits long knows little of when a visibility timeout
        began."""
        return min(self.wait_seconds, max(1, self.visibility_seconds // 4))

    @property
    def wanted(self) -> Wanted:
        """What to ask for with each message."""
        has_attributes = "message_attributes" in kept_columns(self.shape)
        return Wanted(self.attribute_names if has_attributes else (), system_names(self.shape))

    @property
    def is_in_memory(self) -> bool:
        """Whether the spool dies with the process: at least once."""
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
    """What does not go together."""
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
    """Raises BadOption for a spoolPath that can be none, before anything is asked of the queue."""
    if read["spoolPath"]:
        try:
            checked_path(read["spoolPath"])
        except ConnectorError as wrong:
            raise BadOption(str(wrong)) from None


def shape_of(read: dict[str, Any]) -> Shape:
    """How the rows look. Raises BadOption."""
    shape = Shape(read["valueFormat"], read["includeReceiptHandle"], read["unwrapSns"])
    known, columns = arrow_schema(shape).names, read["columns"]
    for name in columns:
        if name not in known:
            raise BadOption(f"option 'columns': there is no '{name}' but {', '.join(known)}")
    if len(set(columns)) < len(columns):
        raise BadOption("option 'columns': a name is there twice")
    return shape._replace(columns=columns)


def slots_of(read: dict[str, Any], otherwise: int | None = None) -> int:
    """How many partitions."""
    wanted: int | None = read["minPartitions"]
    return wanted or otherwise or min(os.cpu_count() or 1, 8)
