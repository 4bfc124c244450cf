"""Options of the sinks for queues and topics, and their parsed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_connectors.options import (
    CONNECTING,
    NAMES,
    QUEUE,
    TEXT,
    TRUTH,
    BadOption,
    Option,
    QueuePlace,
    choice,
    connection_of,
    read_options,
    size,
    whole,
)
from spark_connectors.sink.packing import Batching, Destination
from spark_connectors.transport.aws import Connection
from spark_connectors.transport.aws.message_calls import MOST_PER_CALL

MOST_QUEUE_BYTES = 1 << 20
DEFAULT_TOPIC_BYTES = 256 << 10
NO_ATTRIBUTE = "none"

_SENDING = (
    Option("batchSize", whole(1, MOST_PER_CALL), MOST_PER_CALL, "Messages in a request, at most."),
    Option(
        "maxBatchBytes",
        size(1024, MOST_QUEUE_BYTES),
        None,
        "Bytes in a request, at most: bodies and attributes. For topics more than the default only "
        "where the topic's `MaximumMessageSize` allows it.",
        (),
        "`1m` for queues, `256k` for topics",
    ),
    Option(
        "fifoOrdering",
        choice("strict", "relaxed"),
        "strict",
        "`strict`: no group twice in a request, so that a row which fails is not overtaken. "
        "`relaxed`: full requests; keeps the order where the service closes a group within a "
        "request once one of it failed, which Queuegate does and AWS does not promise.",
    ),
    Option(
        "orderBy",
        NAMES,
        (),
        "Columns to sort each partition by, ascending, before it is sent: a streaming DataFrame "
        "cannot be sorted. The whole partition is then held in memory.",
    ),
    Option(
        "packWindow",
        whole(MOST_PER_CALL, 1_000_000),
        2000,
        "Rows among which full requests are looked for; the more, the better strict order packs.",
    ),
    Option(
        "deduplication",
        choice("column", "content", "position", "none"),
        None,
        "Where deduplication ids come from: the column `message_deduplication_id`; `content`, a "
        "digest of body, group and attributes, so two rows that are equal become one; `position`, "
        "query, batch, partition and row, which loses rows when the order is not the same again; "
        "`none`, for queues that take ids from contents themselves.",
        (),
        "required for FIFO, unless that column or another option for it is there",
    ),
    Option(
        "deduplicationColumns",
        NAMES,
        (),
        "Columns that say what a row is; their SHA-256 becomes its deduplication id.",
    ),
    Option(
        "deduplicationAttribute",
        TEXT,
        "spark_dedup_id",
        "Message attribute that carries the id to destinations which are not FIFO, when one of "
        "`deduplication`, `deduplicationColumns` and `replayId` is given; `none`: no attribute.",
    ),
    Option(
        "replayId",
        TEXT,
        None,
        "Name of a replay. Deduplication ids are then made of it and the rows' `queue` and "
        "`message_id`, so that the same replay adds nothing when it is run again.",
    ),
    Option(
        "onError",
        choice("fail", "deadletter"),
        None,
        "What a row that is refused for good does: fail the task, or go to `deadLetterQueueUrl`.",
        (),
        "`deadletter` if `deadLetterQueueUrl` is given, else `fail`",
    ),
    Option("deadLetterQueueUrl", TEXT, None, "Queue for rows that were refused, with the reason."),
    Option(
        "maxSendPerSecond",
        whole(1, 10_000_000),
        None,
        "Messages per second of each task, at most. Tasks do not know of each other: for an exact "
        "rate `coalesce(1)`, else divide by the tasks that run at once.",
    ),
    Option(
        "concurrency",
        whole(1, 64),
        1,
        "Requests of a task under way at once. A FIFO group has one of them; not with "
        "`fifoOrdering=relaxed`.",
    ),
    Option(
        "checkGroups",
        TRUTH,
        False,
        "Fail after sending when a FIFO group came from two partitions, whose order nobody knows; "
        "`repartition` by the group before.",
    ),
    Option(
        "summaryPath",
        TEXT,
        None,
        "File on the driver that gets a line of JSON for each write or micro-batch that is done.",
    ),
)
SINK_OPTIONS = (
    *CONNECTING,
    *(
        option._replace(shown="required, unless rows have a column `queue_url`")
        if option.name == "queueUrl"
        else option
        for option in QUEUE
    ),
    *_SENDING,
)
TOPIC_SINK_OPTIONS = (
    *CONNECTING,
    Option(
        "topicArn",
        TEXT,
        None,
        "The topic.",
        (),
        "required, unless rows have a column `topic_arn`",
    ),
    *_SENDING,
)


@dataclass(frozen=True)
class MessageSinkSettings:
    """The parsed options of one sink. Without ``place`` and ``topic_arn`` each row names its
    destination."""

    connection: Connection
    is_topic: bool
    place: QueuePlace | None
    topic_arn: str | None
    batching: Batching
    most_bytes: int
    order_by: tuple[str, ...]
    window: int
    deduplication: str | None
    deduplication_columns: tuple[str, ...]
    deduplication_attribute: str | None
    replay_id: str | None
    dead_letter_url: str | None
    most_per_second: int | None
    concurrency: int
    checks_groups: bool
    summary_path: str | None

    def destination(self, address: str) -> Destination:
        """Return the queue or topic at this address."""
        return Destination.of(address, self.most_bytes, is_topic=self.is_topic)

    @property
    def letters(self) -> Destination | None:
        """The queue for refused rows."""
        most = MOST_QUEUE_BYTES if self.is_topic else self.most_bytes
        return (self.dead_letter_url and Destination.of(self.dead_letter_url, most)) or None

    @property
    def chooses_ids(self) -> bool:
        """True if an option chooses the source of deduplication ids."""
        return bool(self.deduplication or self.deduplication_columns or self.replay_id)

    @property
    def is_fifo(self) -> bool:
        """True if all rows go to one FIFO destination."""
        if self.place is not None:
            return self.place.is_fifo
        return self.topic_arn is not None and self.topic_arn.endswith(".fifo")


def queue_settings(given: Mapping[str, str]) -> MessageSinkSettings:
    """Return the settings of a sink for queues. Raises BadOption."""
    options = read_options(SINK_OPTIONS, given)
    named = (options["queueUrl"], options["queueName"])
    place = QueuePlace(options) if any(named) else None
    return _settings(options, connection_of(options), place=place)


def topic_settings(given: Mapping[str, str]) -> MessageSinkSettings:
    """Return the settings of a sink for topics. Raises BadOption."""
    options = read_options(TOPIC_SINK_OPTIONS, given)
    arn: str | None = options["topicArn"]
    connection = connection_of(options)
    if arn is not None:
        parts = arn.split(":")
        if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sns":
            raise BadOption(f"option 'topicArn': '{arn}' is not the ARN of a topic")
        # A topic accepts messages only in its own region.
        connection = connection._replace(region=connection.region or parts[3])
    return _settings(options, connection, topic_arn=arn, is_topic=True)


def _settings(
    options: dict[str, Any],
    connection: Connection,
    *,
    place: QueuePlace | None = None,
    topic_arn: str | None = None,
    is_topic: bool = False,
) -> MessageSinkSettings:
    strict = options["fifoOrdering"] == "strict"
    if not strict and options["concurrency"] > 1:
        raise BadOption("concurrency above 1 would break the order of fifoOrdering=relaxed")
    attribute = options["deduplicationAttribute"]
    _check_ids(options)
    return MessageSinkSettings(
        connection=connection,
        is_topic=is_topic,
        place=place,
        topic_arn=topic_arn,
        batching=Batching(options["batchSize"], strict),
        most_bytes=options["maxBatchBytes"]
        or (DEFAULT_TOPIC_BYTES if is_topic else MOST_QUEUE_BYTES),
        order_by=options["orderBy"],
        window=options["packWindow"],
        deduplication=options["deduplication"],
        deduplication_columns=options["deduplicationColumns"],
        deduplication_attribute=None if attribute.lower() == NO_ATTRIBUTE else attribute,
        replay_id=options["replayId"],
        dead_letter_url=_dead_letter_url(options),
        most_per_second=options["maxSendPerSecond"],
        concurrency=options["concurrency"],
        checks_groups=options["checkGroups"],
        summary_path=options["summaryPath"],
    )


def _check_ids(options: dict[str, Any]) -> None:
    names = ("deduplication", "deduplicationColumns", "replayId")
    given = [name for name in names if options[name]]
    if len(given) > 1:
        raise BadOption(f"{' and '.join(given)}: a message has one deduplication id, choose one")


def _dead_letter_url(options: dict[str, Any]) -> str | None:
    url: str | None = options["deadLetterQueueUrl"]
    if options["onError"] == "deadletter" and url is None:
        raise BadOption("onError=deadletter needs deadLetterQueueUrl")
    if url is not None and "://" not in url:
        raise BadOption(f"option 'deadLetterQueueUrl': '{url}' is no URL")
    return None if options["onError"] == "fail" else url
