"""Records outcomes of attempts: delivered, due again, dead-lettered or given up."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.protocol import arns
from queuegate.scheduler.delivery import dead_letters
from queuegate.scheduler.delivery.attempts import NOTIFICATION, Ended, LetsIn, plan_of
from queuegate.scheduler.delivery.dead_letters import DeadLetter
from queuegate.storage.topics import web_hook_deliveries
from queuegate.storage.topics.web_hook_deliveries import DeliveryFailure, Lease, Source

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


class Recorded(NamedTuple):
    """Counts of a transaction, to report after its commit."""

    arrived: Counter[int]
    """Messages by the id of their dead-letter queue."""
    given_up: Counter[Source]


async def record(
    tx: Transaction, now: datetime | None, ended: list[Ended], lets_in: LetsIn
) -> Recorded:
    """Record the outcomes whose lease is still valid."""
    done: list[Lease] = []
    given_up: Counter[Source] = Counter()
    failures: list[DeliveryFailure] = []
    letters: list[DeadLetter] = []
    for one in ended:
        claimed = one.claimed
        if one.outcome.is_delivered:
            done.append((claimed.delivery_id, claimed.attempt_count))
            continue
        delay = _delay(one)
        queue_arn = _dead_letter_queue(one)
        if delay is None:
            given_up[claimed.source] += 1
        if delay is None and queue_arn is not None:
            letters.append(DeadLetter(claimed, one.outcome, one.body, queue_arn, _topic(one)))
        else:
            failures.append(_failure(one, delay))
    arrived: Counter[int] = Counter()
    if letters:
        arrived, stuck = await dead_letters.move(tx, now, letters, lets_in)
        failures += [_failure(letter, None) for letter in stuck]
    await web_hook_deliveries.remove(tx, done)
    await web_hook_deliveries.record_failures(tx, now, failures)
    return Recorded(arrived, given_up)


def _topic(one: Ended) -> str | None:
    """Return the topic ARN of an SNS subscription; None: not an SNS subscription."""
    if one.policies is None or one.policies.gets_events:
        return None
    account_id, region, name = one.claimed.source
    return arns.topic_arn(region, account_id, name)


def _failure(one: Ended | DeadLetter, delay: float | None) -> DeliveryFailure:
    claimed, outcome = one.claimed, one.outcome
    return DeliveryFailure(
        claimed.delivery_id, claimed.attempt_count, delay, outcome.status, outcome.error or ""
    )


def _delay(one: Ended) -> float | None:
    """Return the seconds until the next attempt; None: no attempt is left. Lost attempts do not
    count."""
    if one.outcome.is_permanent:
        return None
    failed_count = one.claimed.attempt_count - one.claimed.lost_count
    return plan_of(one.policies).delay_before_retry(failed_count, random.random())


def _dead_letter_queue(one: Ended) -> str | None:
    if one.policies is None or one.claimed.kind != NOTIFICATION:
        return None
    return dead_letters.target_of(one.policies.redrive_policy)
