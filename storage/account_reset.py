"""Accounts back to nothing, for tests: queues, topics, logs, schedules and the outbox."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.logs import stored_logs
from queuegate.storage.notifications import Notice, namespace_number, notify
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("account_reset")


class ResetObjects(NamedTuple):
    """Ids of what a reset or a load has changed, for caches."""

    queue_ids: list[int]
    topic_ids: list[int]


async def reset(tx: Transaction, account_id: str | None) -> ResetObjects:
    """Delete everything of an account but its keys, quotas and saved states; None: of all
    accounts."""
    queue_ids = await _SQL["queues"].all(tx, itemgetter(0), account_id)
    topics = await _SQL["topics"].rows(tx, account_id)
    patterns = {(topic["account_id"], topic["region"]) for topic in topics if topic["is_pattern"]}
    log_ids = await _SQL["logs"].all(tx, itemgetter(0), account_id)
    for log_id in log_ids:
        await stored_logs.delete(tx, None, log_id)
    await _SQL["rest"].run(tx, account_id)
    await _SQL["schedule_groups"].run(tx, account_id)
    changed = ResetObjects(queue_ids, [topic["topic_id"] for topic in topics])
    await notify_changed(tx, changed, patterns, log_ids)
    return changed


async def notify_changed(
    tx: Transaction,
    changed: ResetObjects,
    patterns: Collection[tuple[str, str]],
    log_ids: Iterable[int],
) -> None:
    """Let every process drop these objects from its caches, at the commit. ``patterns``: account
    and region of topics with routing keys."""
    for queue_id in changed.queue_ids:
        await notify(tx, Notice.QUEUE_CHANGED, queue_id)
    for number in {*changed.topic_ids, *(namespace_number(*one) for one in patterns)}:
        await notify(tx, Notice.TOPIC_CHANGED, number)
    for log_id in log_ids:
        await notify(tx, Notice.LOG_CHANGED, log_id)
