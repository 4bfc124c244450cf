"""Replays: a FIFO topic's archive sent again to one of its subscriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction
    from queuegate.storage.model import TopicSubscription

_SQL = load("topics/replays")


class ReplayRequest(NamedTuple):
    """The range to send again, by default to the end; ``base_url`` is that of envelopes' links."""

    starting_at: datetime
    ending_at: datetime | None
    base_url: str


class TopicReplay(NamedTuple):
    """A replay, locked by this transaction."""

    subscription_id: UUID
    topic_id: int
    asked: ReplayRequest
    begun_sequence: int
    """Drawn at the request; also distinguishes it from the previous replay."""
    last_sequence: int
    """The next batch begins behind this number."""
    upto_sequence: int
    """No publish in progress has a number up to this one."""
    is_over: bool
    """Only stragglers can follow."""
    live_from: int
    """Of the subscription: publishers that knew a higher one offered it their messages."""
    endpoint: str
    attributes: Mapping[str, str]
    topic_arn: str


class Line(NamedTuple):
    """A number, and an instant at which all publishes up to it had ended."""

    upto_sequence: int
    upto_at: datetime


class Kept(NamedTuple):
    """One message of the archive, as it was published."""

    sequence: int
    message_id: str
    group_id: str
    deduplication_id: str
    subject: str | None
    message: str
    attributes: str | None
    """As JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    sender_id: str
    published_at: datetime


class ReplayPage(NamedTuple):
    """A part of the archive. ``messages`` are to be sent; ``looked_at`` counts the others, too."""

    messages: list[Kept]
    looked_at: int
    last_sequence: int
    is_last: bool
    """Nothing more up to ``upto_sequence``."""
    is_past: bool
    """Nothing more later: new messages are archived after the end."""


async def start(
    tx: Transaction, now: datetime | None, subscription: TopicSubscription, asked: ReplayRequest
) -> bool:
    """Request a replay; return False while one runs."""
    ids = subscription.subscription_id, subscription.topic_id
    return await _SQL["begin"].value(tx, now, *ids, *asked) is not None


async def remove(tx: Transaction, subscription: TopicSubscription) -> None:
    """End the subscription's replay, if there is one."""
    await _SQL["remove"].run(tx, subscription.subscription_id)


async def status(tx: Transaction, subscription: TopicSubscription) -> str | None:
    """Return `Pending`, `In progress`, `Completed` or `Failed`; None without a replay."""
    return await _SQL["status"].value(tx, subscription.subscription_id)


def _replay(row: asyncpg.Record) -> TopicReplay:
    asked = ReplayRequest(*row[2:5])
    attributes = json.loads(row["attributes"])
    return TopicReplay(*[*row[:2], asked, *row[5:11], attributes, row["topic_arn"]])


async def claim(
    tx: Transaction, now: datetime | None, whose: AccountFilter = ALL_ACCOUNTS
) -> TopicReplay | None:
    """Lock the most overdue replay; None if none is due or all are locked."""
    return await _SQL["claim"].by_key.first(tx, _replay, now, *whose)


async def draw_line(tx: Transaction, now: datetime | None, topic_id: int) -> Line:
    """Draw a line behind everything published to the topic.

    Publishes to the topic wait until the transaction ends: do nothing else in it.
    """
    await _SQL["hold_topic"].run(tx, topic_id)
    return await _SQL["last_number"].only(tx, Line._make, now)


async def extend(tx: Transaction, replay: TopicReplay, line: Line) -> TopicReplay | None:
    """Extend the replay up to the line and lock it; None if it has changed."""
    return await _SQL["extend"].by_key.first(
        tx, _replay, replay.subscription_id, replay.begun_sequence, *line
    )


async def read(tx: Transaction, replay: TopicReplay, *, limit: int, most_bytes: int) -> ReplayPage:
    """Read at most ``limit`` messages, and at most ``most_bytes`` of those to send.

    Call in the transaction of ``claim`` or ``extend``.
    """
    rows = await _SQL["read"].rows(
        tx,
        replay.topic_id,
        replay.last_sequence,
        replay.upto_sequence,
        replay.asked.starting_at,
        replay.asked.ending_at,
        replay.begun_sequence,
        replay.live_from,
        limit,
        most_bytes,
    )
    if not rows:
        return ReplayPage([], 0, replay.upto_sequence, True, False)
    found = rows[0]["found"]
    return ReplayPage(
        messages=[Kept(row[0], str(row[4]), *row[5:]) for row in rows if row["is_wanted"]],
        looked_at=len(rows),
        last_sequence=rows[-1]["sequence"],
        is_last=len(rows) == found and found < limit,
        is_past=rows[-1]["is_past"],
    )


async def advance(
    tx: Transaction,
    now: datetime | None,
    replay: TopicReplay,
    page: ReplayPage,
    *,
    replayed_count: int,
) -> None:
    """Record the page as sent. The last page ends the replay, unless its end is in the future."""
    subscription_id = replay.subscription_id
    await _SQL["advance"].run(tx, now, subscription_id, page.last_sequence, replayed_count)
    if page.is_last or page.is_past:
        await _SQL["settle"].run(tx, now, subscription_id, page.is_past)


async def pause(tx: Transaction, now: datetime | None, replay: TopicReplay, seconds: float) -> None:
    """Continue after so many seconds. The caller locks the replay's row."""
    await _SQL["pause"].run(tx, now, replay.subscription_id, seconds)


async def end(tx: Transaction, now: datetime | None, replay: TopicReplay, reason: str) -> None:
    """End the replay as failed, unless it was complete and only polled for stragglers."""
    await _SQL["end"].run(tx, now, replay.subscription_id, reason)
