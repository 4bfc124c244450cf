"""ReplayPolicy: a FIFO topic's archive, again for one subscription (docs/contract/sns.md 3.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import orjson

from protocol.errors import Malformed
from storage.errors import ReplayLimitExceeded
from storage.model import Subscription, Topic
from storage.topics import replays

if TYPE_CHECKING:
    from storage.database import Transaction

_MEMBERS = {"PointType", "StartingPoint", "EndingPoint"}


class Replay(NamedTuple):
    """What is to be sent again; ``ending_at`` None: all to the end."""

    starting_at: datetime
    ending_at: datetime | None


def check_replay_policy(topic: Topic, protocol: str, text: str, present: datetime) -> None:
    """Raises Malformed for a policy that is none, or that this subscription cannot have."""
    if not topic.is_fifo or not topic.archive_days or protocol != "sqs":
        raise _wrong("only subscriptions of queues to FIFO topics with an ArchivePolicy have one")
    replay = _parsed(text)
    if replay.ending_at is not None and replay.starting_at >= replay.ending_at:
        raise _wrong("StartingPoint must be before EndingPoint")
    if replay.starting_at < present - timedelta(days=topic.archive_days):
        raise _wrong("StartingPoint is before the archive's retention period")


async def begin_replay(
    tx: Transaction, now: datetime | None, subscription: Subscription, text: str, base_url: str
) -> None:
    """Ask for the replay of a policy that was checked; without one end what is asked for.

    The topic is locked. ``base_url`` is where links in envelopes lead.
    Raises ReplayLimitExceeded while another one runs.
    """
    if not text:
        await replays.remove(tx, subscription)
        return
    replay = _parsed(text)
    asked = replays.Asked(replay.starting_at, replay.ending_at, base_url)
    if not await replays.begin(tx, now, subscription, asked):
        raise ReplayLimitExceeded("The subscription has a replay that is not finished.")


def _parsed(text: str) -> Replay:
    try:
        policy = orjson.loads(text)
    except (ValueError, RecursionError):
        policy = None
    if not isinstance(policy, dict):
        raise _wrong("failed to parse JSON.")
    if not policy.keys() <= _MEMBERS:
        raise _wrong("only PointType, StartingPoint and EndingPoint are supported")
    if policy.get("PointType") != "Timestamp":
        raise _wrong("PointType must be Timestamp")
    starting_at = _instant("StartingPoint", policy.get("StartingPoint"))
    ending = policy.get("EndingPoint")
    return Replay(starting_at, None if ending is None else _instant("EndingPoint", ending))


def _instant(name: str, value: object) -> datetime:
    """ISO 8601; without an offset it is UTC."""
    try:
        instant = datetime.fromisoformat(value if isinstance(value, str) else "")
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _wrong(f"{name} must be a time in ISO 8601") from None


def _wrong(reason: str) -> Malformed:
    return Malformed(f"ReplayPolicy: {reason}")
