"""Queues: their names, attributes, tags and counters; the secret of receipt handles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.protocol import arns
from queuegate.protocol.malformed import Malformed
from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import load
from queuegate.storage.queue_model import QUEUE_DEFAULTS, Queue
from queuegate.storage.queues.kinds import kind_of

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction


_SQL = load("queues/stored_queues")
_SECRETS = load("queues/receipt_secrets")

_VISIBILITY_TIMEOUT = "VisibilityTimeout"


@dataclass(frozen=True, slots=True)
class NewQueue:
    """A queue to create. ``attributes`` are normalised."""

    account_id: str
    region: str
    name: str
    is_fifo: bool
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    is_archiving: bool = False
    archive_days: int | None = None
    visibility_timeout_seconds: int = 30
    """The default if no attribute sets it."""
    title: str | None = None
    """The remaining fields are as in ``Queue``."""
    is_serial: bool = False
    has_priorities: bool = False
    most_messages: int | None = None
    max_deliveries: int | None = None


class SourceQueue(NamedTuple):
    """A queue with a redrive policy to some dead-letter queue."""

    queue_id: int
    name: str


_PLAIN = (
    *("queue_id", "account_id", "region", "created_at", "modified_at", "is_archiving"),
    *("archive_days", "grouped_from", "is_serial", "has_priorities", "most_messages"),
    *("max_deliveries", "paused_at"),
)
"""Members that are columns of the same name."""


def _queue(row: asyncpg.Record) -> Queue:
    name, is_fifo, is_serial = row["queue_name"], row["is_fifo"], row["is_serial"]
    members: dict[str, Any] = {member: row[member] for member in _PLAIN}
    return Queue(
        **members,
        name=name,
        arn=f"arn:aws:sqs:{row['region']}:{row['account_id']}:{name}",
        is_fifo=is_fifo and not is_serial,
        kind=kind_of(is_fifo=is_fifo, is_serial=is_serial, has_priorities=row["has_priorities"]),
        tags=json.loads(row["tags"]),
        title=row["title"] or name,
        **_typed(json.loads(row["attributes"]), row["max_deliveries"]),
    )


def _typed(attributes: Mapping[str, str], max_deliveries: int | None) -> dict[str, Any]:
    """Return attributes and typed values; without a policy ``max_deliveries`` counts."""

    def number(attribute_name: str) -> int:
        return int(attributes.get(attribute_name, QUEUE_DEFAULTS[attribute_name]))

    dead_letter_arn, max_receive_count = _redrive(attributes)
    return {
        "attributes": attributes,
        "visibility_timeout_seconds": number(_VISIBILITY_TIMEOUT),
        "delay_seconds": number("DelaySeconds"),
        "maximum_message_size_bytes": number("MaximumMessageSize"),
        "retention_seconds": number("MessageRetentionPeriod"),
        "receive_wait_seconds": number("ReceiveMessageWaitTimeSeconds"),
        "content_based_deduplication": attributes.get("ContentBasedDeduplication") == "true",
        "deduplication_per_group": attributes.get("DeduplicationScope") == "messageGroup",
        "dead_letter_arn": dead_letter_arn,
        "max_receive_count": max_receive_count or max_deliveries or 0,
    }


def _redrive(attributes: Mapping[str, str]) -> tuple[str | None, int]:
    """Return (dead-letter queue's ARN, maxReceiveCount) of the normalised redrive policy."""
    text = attributes.get("RedrivePolicy")
    if not text:
        return None, 0
    policy = json.loads(text)
    return policy["deadLetterTargetArn"], policy["maxReceiveCount"]


def _stored(attributes: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in attributes.items()
        if value and value != QUEUE_DEFAULTS.get(name)
    }


def with_attributes(queue: Queue, attributes: Mapping[str, str]) -> Queue:
    """Return the queue with these attributes, "" for one that is unset."""
    return replace(queue, **_typed(_stored(attributes), queue.max_deliveries))


def takes_dead_letters_of(queue: Queue, source_arn: str) -> bool:
    """Return True if ``source_arn`` may use the queue as its dead-letter queue."""
    text = queue.attributes.get("RedriveAllowPolicy")
    if text is None:
        return True
    policy = json.loads(text)
    if policy["redrivePermission"] == "byQueue":
        return source_arn in policy["sourceQueueArns"]
    return bool(policy["redrivePermission"] == "allowAll")


async def find(tx: Transaction, account_id: str, region: str, name: str) -> Queue | None:
    """Return the live queue of that name."""
    return await _SQL["find"].first(tx, _queue, account_id, region, name)


async def find_by_arn(tx: Transaction, arn: str) -> Queue | None:
    """Return the live queue of that ARN."""
    try:
        named = arns.parse_queue(arn)
    except Malformed:
        return None
    return await find(tx, named.account_id, named.region, named.resource)


async def find_many(tx: Transaction, account_id: str, region: str, names: list[str]) -> list[Queue]:
    """Return the live queues of these names; unknown names are skipped."""
    return await _SQL["find_many"].all(tx, _queue, account_id, region, names)


async def find_by_id(tx: Transaction, queue_id: int) -> Queue | None:
    """Return the live queue of that id."""
    return await _SQL["find_by_id"].first(tx, _queue, queue_id)


async def lock(tx: Transaction, queue_id: int) -> Queue | None:
    """Lock and return the live queue, until the transaction ends."""
    return await _SQL["lock"].first(tx, _queue, queue_id)


async def create(tx: Transaction, now: datetime | None, new: NewQueue) -> Queue | None:
    """Create a queue; return None if a live one has the name already.

    After None an older snapshot may not see the other queue yet: repeat ``find``, which takes a new
    one.
    """
    timeout = str(new.visibility_timeout_seconds)
    return await _SQL["create"].first(
        tx,
        _queue,
        now,
        new.account_id,
        new.region,
        new.name,
        new.is_fifo or new.is_serial,
        json.dumps(_stored({_VISIBILITY_TIMEOUT: timeout, **new.attributes})),
        json.dumps(dict(new.tags)),
        _redrive(new.attributes)[0],
        new.is_archiving,
        new.archive_days,
        new.title,
        new.is_serial,
        new.has_priorities,
        new.most_messages,
        new.max_deliveries,
    )


async def was_deleted_recently(
    tx: Transaction, now: datetime | None, *, account_id: str, region: str, name: str, seconds: int
) -> bool:
    """Return True if a queue of that name was deleted less than ``seconds`` ago."""
    return bool(await _SQL["deleted_recently"].value(tx, now, account_id, region, name, seconds))


async def delete(tx: Transaction, now: datetime | None, queue_id: int) -> list[int]:
    """Turn the queue and its own dead-letter queue into tombstones; return the new ones."""
    deleted = [row["queue_id"] for row in await _SQL["delete"].rows(tx, now, queue_id)]
    for one in {queue_id, *deleted}:
        await notify(tx, Notice.QUEUE_CHANGED, one)
    return deleted


async def list_names(
    tx: Transaction, account_id: str, region: str, *, prefix: str, after_name: str, limit: int
) -> list[str]:
    """Return names with ``prefix`` of live queues behind ``after_name``, in byte order."""
    rows = await _SQL["list_names"].rows(tx, account_id, region, prefix, after_name, limit)
    return [row["queue_name"] for row in rows]


async def set_attributes(tx: Transaction, now: datetime | None, queue: Queue) -> None:
    """Store the attributes of a queue from ``with_attributes``."""
    text = json.dumps(dict(queue.attributes))
    await _SQL["set_attributes"].run(tx, now, queue.queue_id, text, queue.dead_letter_arn)
    await notify(tx, Notice.QUEUE_CHANGED, queue.queue_id)


async def set_max_deliveries(tx: Transaction, queue_id: int, max_deliveries: int | None) -> None:
    """Set the deliveries after which a message is dead-lettered; None: only by redrive policy.
    Follow with a change that notifies all processes."""
    await _SQL["set_max_deliveries"].run(tx, queue_id, max_deliveries)


async def set_tags(tx: Transaction, queue_id: int, tags: Mapping[str, str]) -> None:
    """Replace all tags."""
    await _SQL["set_tags"].run(tx, queue_id, json.dumps(dict(tags)))
    await notify(tx, Notice.QUEUE_CHANGED, queue_id)


async def set_archiving(
    tx: Transaction, queue_id: int, is_archiving: bool, archive_days: int | None
) -> None:
    """Set whether messages deleted by receivers are archived, and for how many days.

    Applies to statements after the commit in processes that have received the notification, which
    is sent with the commit.
    """
    await _SQL["set_archiving"].run(tx, queue_id, is_archiving, archive_days)
    await notify(tx, Notice.QUEUE_CHANGED, queue_id)


async def set_paused(
    tx: Transaction, now: datetime | None, queue_id: int, *, is_paused: bool
) -> None:
    """Pause or resume the queue for all processes, with the commit."""
    await _SQL["set_paused"].run(tx, now, queue_id, is_paused)
    await notify(tx, Notice.QUEUE_CHANGED, queue_id)


async def total_arrived(tx: Transaction, queue_id: int) -> int:
    """Return the number of messages ever added: sent, moved to the queue, or replayed."""
    return await _SQL["total_arrived"].value(tx, queue_id)


async def list_places(tx: Transaction, account_id: str | None, limit: int) -> list[tuple[str, str]]:
    """Return accounts with the regions in which they have a queue, a topic or a log; None: of all
    accounts."""
    return await _SQL["list_places"].all(tx, tuple, account_id, limit)


async def dead_letter_sources(
    tx: Transaction, dead_letter_arn: str, *, after_queue_id: int, limit: int
) -> list[SourceQueue]:
    """Return live queues whose redrive policy names that dead-letter queue, oldest first."""
    return await _SQL["dead_letter_sources"].all(
        tx, SourceQueue._make, dead_letter_arn, after_queue_id, limit
    )


async def purged_recently(
    tx: Transaction, now: datetime | None, queue_id: int, *, seconds: int
) -> bool:
    """Return True if the queue was purged less than ``seconds`` ago."""
    return await _SQL["purged_recently"].value(tx, now, queue_id, seconds)


async def set_purged(
    tx: Transaction, now: datetime | None, queue_id: int, *, seconds_ago: int
) -> None:
    """Record a purge of ``seconds_ago``."""
    await _SQL["set_purged"].run(tx, now, queue_id, seconds_ago)


class ReceiptSecret(NamedTuple):
    """The secret, the second since the epoch of its creation, and whether queues existed then:
    those of gateways without a secret."""

    secret: bytes
    made_at: int
    is_upgrade: bool


async def agree_on_receipt_secret(tx: Transaction, made: bytes) -> ReceiptSecret:
    """Store this secret unless one exists; return the stored one.

    Processes that start together each create a secret; the first one stored becomes that of all.
    """
    await _SECRETS["offer_receipt_secret"].run(tx, "receipt_secret", made.hex())
    [(secret, made_at, is_upgrade)] = await _SECRETS["read_receipt_secret"].rows(
        tx, "receipt_secret"
    )
    return ReceiptSecret(bytes.fromhex(secret), made_at, is_upgrade)
