"""Options of the sinks for queues and topics, and their parsed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_connectors.endpoints import Connection
from spark_connectors.options import (
    CONNECTING,
    QUEUE,
    BadOption,
    QueuePlace,
    connection_of,
    declared,
    fields_of,
    read_options,
)
from spark_connectors.sink.packing import Batching, Destination

MOST_QUEUE_BYTES = 1 << 20
DEFAULT_TOPIC_BYTES = 256 << 10
NO_ATTRIBUTE = "none"

SENDING = declared("""
batchSize | int 1 10 | 10
  Maximum messages in a request.
maxBatchBytes =most_bytes | bytes 1024 1m | - | `1m` for queues, `256k` for topics
  Maximum bytes in a request: bodies and attributes. Topics accept more than the default only up to
  their attribute `MaximumMessageSize`.
fifoOrdering | strict|relaxed | strict
  `strict`: one message of a group in a request, so that no message overtakes a failed one.
  `relaxed`: full requests. The order is kept if the service fails the rest of a group after a
  failed entry. Queuegate does, AWS does not promise it.
orderBy | names
  Columns that sort each partition, ascending, because a streaming DataFrame cannot be sorted. The
  sink holds the whole partition in memory.
packWindow =window | int 10 1000000 | 2000
  Rows to choose from for a request. A larger window makes fuller requests in strict order.
deduplication | column|content|position|none | - | required for FIFO, unless that column or \
another option for it is there
  Source of deduplication ids. `column`: the column `message_deduplication_id`. `content`: a digest
  of body, group and attributes, so equal rows become one message. `position`: query, batch,
  partition and row number, which loses rows if their order changes. `none`: for queues with
  content-based deduplication.
deduplicationColumns | names
  Columns that identify a row. Their SHA-256 is the deduplication id.
deduplicationAttribute | text | spark_dedup_id
  Message attribute for the id if the destination is not FIFO and `deduplication`,
  `deduplicationColumns` or `replayId` is set. `none`: no attribute.
replayId | text
  Name of a replay. Deduplication ids are made of the name and the columns `queue` and `message_id`,
  so a repeated replay adds no messages.
onError | fail|deadletter | - | `deadletter` if `deadLetterQueueUrl` is set, otherwise `fail`
  Fail the task for a refused row, or send the row to `deadLetterQueueUrl`.
deadLetterQueueUrl | text
  Queue for refused rows, with the reason.
maxSendPerSecond =most_per_second | int 1 10000000
  Maximum messages per second of each task. For an exact rate use `coalesce(1)`, or divide by the
  number of concurrent tasks.
concurrency | int 1 64 | 1
  Concurrent requests of a task. A FIFO group has one of them. Not with `fifoOrdering=relaxed`.
checkGroups =checks_groups | bool | false
  Fail after the write if two partitions have messages of one FIFO group, because their order is
  undefined. Use `repartition` by the group before the write.
summaryPath | text
  File on the driver. Each write or micro-batch appends a line of JSON.
""")
_TO_A_QUEUE = QUEUE[0]._replace(shown="required, unless rows have a column `queue_url`")
SINK_OPTIONS = (*CONNECTING, _TO_A_QUEUE, *QUEUE[1:], *SENDING)
TOPIC_SINK_OPTIONS = (
    *CONNECTING,
    *declared("""
topicArn | text | - | required, unless rows have a column `topic_arn`
  ARN of the topic.
"""),
    *SENDING,
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
    names = ("deduplication", "deduplicationColumns", "replayId")
    given = [name for name in names if options[name]]
    if len(given) > 1:
        raise BadOption(f"{' and '.join(given)}: a message has one deduplication id, choose one")
    fields = fields_of(SENDING, options, MessageSinkSettings.__annotations__)
    fields["most_bytes"] = options["maxBatchBytes"] or (
        DEFAULT_TOPIC_BYTES if is_topic else MOST_QUEUE_BYTES
    )
    if attribute.lower() == NO_ATTRIBUTE:
        fields["deduplication_attribute"] = None
    return MessageSinkSettings(
        connection=connection,
        is_topic=is_topic,
        place=place,
        topic_arn=topic_arn,
        batching=Batching(options["batchSize"], strict),
        dead_letter_url=_dead_letter_url(options),
        **fields,
    )


def _dead_letter_url(options: dict[str, Any]) -> str | None:
    url: str | None = options["deadLetterQueueUrl"]
    if options["onError"] == "deadletter" and url is None:
        raise BadOption("onError=deadletter needs deadLetterQueueUrl")
    if url is not None and "://" not in url:
        raise BadOption(f"option 'deadLetterQueueUrl': '{url}' is no URL")
    return None if options["onError"] == "fail" else url
