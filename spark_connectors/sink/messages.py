"""The sinks of the formats ``sqs`` and ``sns``: rows become messages of queues and topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from spark_connectors.errors import ConnectorError, Fault, Refused
from spark_connectors.options.queues import QueuePlace
from spark_connectors.sink.columns import Columns
from spark_connectors.sink.dead_letters import dead_letter
from spark_connectors.sink.deduplication import Identity
from spark_connectors.sink.entries import EntryBuilder, Row, Unsendable
from spark_connectors.sink.options import Settings
from spark_connectors.sink.packing import Destination
from spark_connectors.sink.sending import Answers, Pace
from spark_connectors.sink.writing import Manner
from spark_connectors.transport.aws import Transport, shared_transport
from spark_connectors.transport.aws.wire import Entry

if TYPE_CHECKING:
    import pyarrow as pa

# A task remembers at most this many groups for checkGroups: what it sends to the driver is bounded.
MOST_GROUPS = 100_000


class RowRefused(ConnectorError):
    """A row that can never be sent, and no dead-letter queue for it."""


class Plan(NamedTuple):
    """What every task of a write needs to know; it can be pickled."""

    name: str
    settings: Settings
    columns: Columns

    @property
    def manner(self) -> Manner:
        """How they go about it."""
        settings = self.settings
        pace = Pace(
            window=settings.window,
            max_retries=settings.connection.max_retries,
            most_per_second=settings.most_per_second,
            concurrency=settings.concurrency,
            most_groups=MOST_GROUPS if settings.checks_groups else 0,
            is_routed=self.columns.destination is not None and bool(settings.letters),
        )
        return Manner(settings.batching, pace, self.columns.order_by, settings.summary_path)

    def open(self, identity: Identity) -> Messages:
        """What the rows of one partition are sent to."""
        return Messages(self, identity, shared_transport(self.settings.connection))


class Messages:
    """Queues or topics, as the rows of one partition are sent to them."""

    def __init__(self, plan: Plan, identity: Identity, transport: Transport) -> None:
        settings = plan.settings
        self._identity = identity
        self._transport = transport
        self._letters = settings.letters
        self._builder = EntryBuilder(
            settings,
            plan.columns,
            destination=_destination(settings, transport),
            identity=identity,
        )

    def pack(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Each row as a message, or as the dead letter for one that cannot be sent."""
        for row in self._builder.rows(batch):
            yield self._set_aside(*row) if isinstance(row, Unsendable) else row

    def send(self, destination: Destination, entries: Sequence[Entry]) -> Answers:
        """SendMessageBatch or PublishBatch."""
        if destination.is_topic:
            return self._transport.publish(destination.address, entries)
        return self._transport.send(destination.address, entries)

    def refused(self, row: Row, fault: Fault) -> Row:
        """The dead letter for a message. Raises RowRefused where none can be."""
        return self._set_aside(row, row.entry.body.encode(), fault)

    def _set_aside(self, row: Row, raw: bytes | None, fault: Fault) -> Row:
        """The dead letter for a row that was refused, or RowRefused where none can be."""
        if self._letters and not row.is_dead_letter:
            return dead_letter(row, raw, fault, self._letters)
        where = f"row {row.position} of partition {self._identity.partition}"
        if row.is_dead_letter:
            where += " was refused, and so was its dead letter"
        elif row.entry.group_id:
            where += f", group '{row.entry.group_id}'"
        advice = "" if self._letters else "; deadLetterQueueUrl would set such rows aside"
        raise RowRefused(f"{where}: {fault.code}: {fault.message}{advice}")


def _destination(settings: Settings, transport: Transport) -> Destination | None:
    if settings.place is not None:
        url = _queue_url(settings.place, transport)
        return settings.destination(url)._replace(is_fifo=settings.place.is_fifo)
    return None if settings.topic_arn is None else settings.destination(settings.topic_arn)


def _queue_url(place: QueuePlace, transport: Transport) -> str:
    try:
        return place.url(transport)
    except Refused as no:
        raise Refused(no.code, f"{no.message} (asking for the URL of '{place.name}')") from None
