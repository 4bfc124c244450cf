"""Topics: their names, attributes, tags and counters; the keys that sign messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.model import TOPIC_DEFAULTS, Topic
from queuegate.storage.notifications import Notice, namespace_number, notify
from queuegate.storage.queries import load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction


_SQL = load("topics/stored_topics")

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. ``attributes`` are normalised.

    ``is_pattern``: its name is a pattern of routing keys, which SNS neither lists nor finds.
    """

    account_id: str
    region: str
    name: str
    is_fifo: bool
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    data_protection_policy: str | None
    is_pattern: bool = False


class OutdatedArchive(NamedTuple):
    """A topic's archive with messages to remove: up to that instant; None: everything."""

    topic_id: int
    upto: datetime | None


def _topic(row: asyncpg.Record) -> Topic:
    attributes: dict[str, str] = json.loads(row["attributes"])

    def value(attribute_name: str) -> str:
        return attributes.get(attribute_name, TOPIC_DEFAULTS[attribute_name])

    account_id, region, name = row["account_id"], row["region"], row["topic_name"]
    return Topic(
        topic_id=row["topic_id"],
        account_id=account_id,
        region=region,
        name=name,
        arn=f"arn:aws:sns:{region}:{account_id}:{name}",
        is_fifo=row["is_fifo"],
        attributes=attributes,
        tags=json.loads(row["tags"]),
        created_at=row["created_at"],
        subscriptions_deleted=row["subscriptions_deleted"],
        signature_version=value("SignatureVersion"),
        content_based_deduplication=value("ContentBasedDeduplication") == "true",
        deduplication_per_group=value("FifoThroughputScope") == "MessageGroup",
        archive_days=_archive_days(attributes),
        maximum_message_bytes=int(value("MaximumMessageSize")),
        paused_at=row["paused_at"],
    )


def passing(account_id: str, region: str, name: str) -> Topic:
    """Return a standard topic that is not stored, with the defaults and id 0, for events whose
    routing key is no topic's name."""
    return Topic(
        topic_id=0,
        account_id=account_id,
        region=region,
        name=name,
        arn=f"arn:aws:sns:{region}:{account_id}:{name}",
        is_fifo=False,
        attributes={},
        tags={},
        created_at=_LONG_AGO,
        subscriptions_deleted=0,
        signature_version=TOPIC_DEFAULTS["SignatureVersion"],
        content_based_deduplication=False,
        deduplication_per_group=False,
        archive_days=0,
        maximum_message_bytes=int(TOPIC_DEFAULTS["MaximumMessageSize"]),
    )


def _archive_days(attributes: Mapping[str, str]) -> int:
    """Return the days of the stored, normalised archive policy."""
    text = attributes.get("ArchivePolicy")
    return 0 if text is None else int(json.loads(text)["MessageRetentionPeriod"])


async def find(tx: Transaction, account_id: str, region: str, name: str) -> Topic | None:
    """Return the topic of that name; patterns are excluded."""
    return await _SQL["find"].first(tx, _topic, account_id, region, name)


async def find_pattern(tx: Transaction, account_id: str, region: str, pattern: str) -> Topic | None:
    """Return the topic with the subscriptions to that pattern of routing keys."""
    return await _SQL["find_pattern"].first(tx, _topic, account_id, region, pattern)


async def list_patterns(tx: Transaction, account_id: str, region: str) -> dict[int, str]:
    """Return all patterns of the namespace by their ids, also those without a subscription."""
    rows = await _SQL["list_patterns"].by_key.rows(tx, account_id, region)
    return {row["topic_id"]: row["topic_name"] for row in rows}


async def count_patterns(tx: Transaction, account_id: str, region: str, *, limit: int) -> int:
    """Count the patterns of the namespace, up to ``limit``."""
    return await _SQL["count_patterns"].by_key.value(tx, account_id, region, limit)


async def remove_unused_patterns(tx: Transaction, topic_ids: Iterable[int]) -> None:
    """Remove the patterns without a subscription, present or restorable.

    Additions of a subscription lock the row (``lock``): they and this wait for each other.
    """
    held = [row["topic_id"] for row in await _SQL["hold_patterns"].rows(tx, list(topic_ids))]
    if held:
        await _SQL["remove_unused_patterns"].by_key.run(tx, held)


async def find_by_id(tx: Transaction, topic_id: int) -> Topic | None:
    """Return the topic of that id."""
    return await _SQL["find_by_id"].first(tx, _topic, topic_id)


async def lock(tx: Transaction, topic_id: int) -> Topic | None:
    """Lock and return the topic, until the transaction ends."""
    return await _SQL["lock"].first(tx, _topic, topic_id)


async def create(tx: Transaction, now: datetime | None, new: NewTopic) -> Topic | None:
    """Create a topic; return None if the name exists.

    After None an older snapshot may not see the other topic yet: repeat ``find``, which takes a new
    one.
    """
    row = await _SQL["create"].row(
        tx,
        now,
        new.account_id,
        new.region,
        new.name,
        new.is_fifo,
        new.is_pattern,
        json.dumps(dict(new.attributes)),
        json.dumps(dict(new.tags)),
        new.data_protection_policy,
    )
    if row is None:
        return None
    topic = _topic(row)
    if new.is_pattern:
        # Its id is unknown: notify all caches of the namespace.
        await notify(tx, Notice.TOPIC_CHANGED, namespace_number(topic.account_id, topic.region))
    else:
        await notify(tx, Notice.TOPIC_CHANGED, topic.topic_id)
    return topic


async def delete(tx: Transaction, topic_id: int) -> bool:
    """Delete the topic with its subscriptions; return False if it is deleted already."""
    deleted = await _SQL["delete"].value(tx, topic_id) is not None
    await notify(tx, Notice.TOPIC_CHANGED, topic_id)
    return deleted


async def list_names(
    tx: Transaction, account_id: str, region: str, *, after_name: str, limit: int
) -> list[str]:
    """Return names of topics behind ``after_name``, in byte order, without patterns."""
    rows = await _SQL["list_names"].rows(tx, account_id, region, after_name, limit)
    return [row["topic_name"] for row in rows]


async def set_attributes(tx: Transaction, topic_id: int, attributes: Mapping[str, str]) -> None:
    """Replace the attributes that were set, in normalised form."""
    await _SQL["set_attributes"].run(tx, topic_id, json.dumps(dict(attributes)))
    await notify(tx, Notice.TOPIC_CHANGED, topic_id)


async def set_tags(tx: Transaction, topic_id: int, tags: Mapping[str, str]) -> None:
    """Replace all tags, which keep this order."""
    await _SQL["set_tags"].run(tx, topic_id, json.dumps(dict(tags)))
    await notify(tx, Notice.TOPIC_CHANGED, topic_id)


async def set_paused(
    tx: Transaction, now: datetime | None, topic_id: int, *, is_paused: bool
) -> None:
    """Pause or resume deliveries to web hooks of all subscriptions."""
    await _SQL["set_paused"].run(tx, now, topic_id, is_paused)
    await notify(tx, Notice.TOPIC_CHANGED, topic_id)
    await notify(tx, Notice.DELIVERIES_WRITTEN)


async def data_protection_policy(tx: Transaction, topic_id: int) -> str | None:
    """Return the policy as it was set."""
    return await _SQL["data_protection_policy"].value(tx, topic_id)


async def set_data_protection_policy(tx: Transaction, topic_id: int, policy: str | None) -> None:
    """Replace the policy; None removes it."""
    await _SQL["set_data_protection_policy"].run(tx, topic_id, policy)


async def count_subscriptions(
    tx: Transaction, now: datetime | None, topic_id: int
) -> tuple[int, int]:
    """Count the topic's subscriptions: (confirmed, pending), without overdue ones."""
    [row] = await _SQL["count_subscriptions"].rows(tx, now, topic_id)
    return row[0], row[1]


async def oldest_archived_at(tx: Transaction, topic_id: int) -> datetime | None:
    """Return the publish time of the oldest message in the topic's archive; None: it is empty."""
    return await _SQL["oldest_archived_at"].value(tx, topic_id)


find_outdated_archives = partial(_SQL["find_outdated_archives"].by_key.scan, OutdatedArchive)
"""Find archives with messages to remove, those of deleted topics too."""


async def remove_archived(tx: Transaction, archive: OutdatedArchive, limit: int) -> int:
    """Remove at most ``limit`` of the archive's oldest messages; return the count."""
    return await _SQL["remove_archived"].by_key.value(tx, archive.topic_id, archive.upto, limit)


async def forget_deduplication(tx: Transaction, now: datetime | None, limit: int) -> int:
    """Remove at most ``limit`` deduplication ids of topics after their 5 minutes."""
    return await _SQL["forget_deduplication"].by_key.value(tx, now, limit)


_NAME = "signing_keys"
# "QG" in ASCII, second use; migrations are the first.
_LOCKED = (0x5147, 2)

MOST_CERTIFICATES = 100
"""Limit of certificates of supplied keys; the newest are kept."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key and its certificate, in PEM. Supplied keys store only the certificate."""

    fingerprint: str
    certificate_pem: str
    private_key_pem: str | None = field(default=None, repr=False)


async def stored_signing_keys(tx: Transaction) -> list[SigningKey]:
    """Return every key and certificate, in order of addition."""
    text: str | None = await _SQL["read_signing_keys"].value(tx, _NAME)
    return [SigningKey(**members) for members in json.loads(text)] if text else []


def private_key_of(keys: list[SigningKey]) -> SigningKey | None:
    """Return the key that signs if none is supplied; None if none was created yet."""
    return next((key for key in keys if key.private_key_pem is not None), None)


async def agree_on_signing_key(tx: Transaction, made: SigningKey) -> list[SigningKey]:
    """Store this key unless one exists; return all keys.

    Processes that start together create a key each; the first one stored becomes that of all.
    """
    await _SQL["lock_signing_keys"].run(tx, *_LOCKED)
    keys = await stored_signing_keys(tx)
    if private_key_of(keys) is None:
        keys.append(made)
        await _write(tx, keys)
    return keys


async def remember_signing_key(tx: Transaction, certificate: SigningKey) -> list[SigningKey]:
    """Store the certificate of a supplied key; return all keys."""
    await _SQL["lock_signing_keys"].run(tx, *_LOCKED)
    keys = await stored_signing_keys(tx)
    if certificate.fingerprint not in {key.fingerprint for key in keys}:
        keys.append(SigningKey(certificate.fingerprint, certificate.certificate_pem))
        supplied = [key for key in keys if key.private_key_pem is None]
        dropped = {key.fingerprint for key in supplied[:-MOST_CERTIFICATES]}
        keys = [key for key in keys if key.fingerprint not in dropped]
        await _write(tx, keys)
    return keys


async def _write(tx: Transaction, keys: list[SigningKey]) -> None:
    await _SQL["write_signing_keys"].run(tx, _NAME, json.dumps([asdict(key) for key in keys]))
