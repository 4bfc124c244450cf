"""Outcomes of attempts to deliver to a web hook, and their records (docs/contract/sns.md 3.6).

A delivery is delivered, due again, dead-lettered or given up.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import orjson

from queuegate.protocol import arns, delivery_policies, sns_envelopes
from queuegate.protocol.delivery_policies import DeliveryPlan
from queuegate.storage.account_events import AccountEvent
from queuegate.storage.queue_model import UNSIGNED, NewMessage, Row
from queuegate.storage.queues.capacity import Addressed, send_or_wait
from queuegate.storage.queues.messages import row_of
from queuegate.storage.queues.stored_queues import find_by_arn
from queuegate.storage.topics import web_hook_deliveries
from queuegate.storage.topics.web_hook_deliveries import (
    ClaimedDelivery,
    DeliveryFailure,
    DeliveryPolicies,
    Lease,
    Source,
)

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Queue

_TOO_MANY_REQUESTS = 429
_LONGEST_ERROR = 500
NOTIFICATION = "Notification"

PolicyAllows = Callable[["Queue", str], bool]
"""Returns True if the policy of a queue allows messages of a topic."""


class DeliveryOutcome(NamedTuple):
    """The outcome of an attempt. ``error`` None: delivered."""

    status: int | None
    """None: no complete answer arrived."""
    error: str | None
    is_permanent: bool = False
    """True: a retry would not help."""

    @property
    def is_delivered(self) -> bool:
        return self.error is None


DELIVERED = DeliveryOutcome(200, None)


def judge(status: int) -> DeliveryOutcome:
    """Return the outcome of a complete answer: retry 5xx and 429, but no other client errors.

    Redirects are not followed, because their target did not subscribe. They count as client errors.
    """
    if 200 <= status < 300:
        return DeliveryOutcome(status, None)
    if status >= 500 or status == _TOO_MANY_REQUESTS:
        return DeliveryOutcome(status, f"HTTP {status}")
    reason = "redirects are not followed" if status < 400 else "client errors are not tried again"
    return DeliveryOutcome(status, f"HTTP {status}: {reason}", is_permanent=True)


def of_event(outcome: DeliveryOutcome) -> DeliveryOutcome:
    """Return the outcome for a subscription that gets events: every answer except 2xx is retried,
    client errors and redirects too (docs/seeds.md 1.5)."""
    status = outcome.status
    if status is None or outcome.is_delivered:
        return outcome
    return DeliveryOutcome(status, f"HTTP {status}")


def no_answer(reason: str, *, is_permanent: bool = False) -> DeliveryOutcome:
    """Return the outcome of a request without a complete answer."""
    return DeliveryOutcome(None, _clean(reason), is_permanent)


def _clean(text: str) -> str:
    """Return text from a server in a form that all columns and message attributes accept."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable.encode("utf-8", "replace").decode()[:_LONGEST_ERROR] or "failed"


class EndedAttempt(NamedTuple):
    """An ended attempt."""

    claimed: ClaimedDelivery
    policies: DeliveryPolicies | None
    """None: the subscription was deleted."""
    outcome: DeliveryOutcome
    body: str
    """The body that was sent."""
    answer: DeliveryOutcome | None
    """The outcome, if the endpoint caused it; None otherwise."""


class Recorded(NamedTuple):
    """Counts of a transaction, to report after its commit."""

    arrived: Counter[int]
    """Messages by the id of their dead-letter queue."""
    given_up: Counter[Source]


async def record(
    tx: Transaction, now: datetime | None, ended: list[EndedAttempt], allows: PolicyAllows
) -> Recorded:
    """Record the outcomes whose lease is still valid."""
    done: list[Lease] = []
    given_up: Counter[Source] = Counter()
    failures: list[DeliveryFailure] = []
    letters: list[FailedDelivery] = []
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
            letters.append(FailedDelivery(claimed, one.outcome, one.body, queue_arn, _topic(one)))
        else:
            failures.append(_failure(one, delay))
    arrived: Counter[int] = Counter()
    if letters:
        arrived, stuck = await move_to_dead_letters(tx, now, letters, allows)
        failures += [_failure(letter, None) for letter in stuck]
    await web_hook_deliveries.remove(tx, done)
    await web_hook_deliveries.record_failures(tx, now, failures)
    return Recorded(arrived, given_up)


def attempt_event(one: EndedAttempt) -> AccountEvent:
    """Return the event of an attempt."""
    claimed, outcome = one.claimed, one.outcome
    attempt = {
        "kind": "delivered" if outcome.is_delivered else "failed",
        "region": claimed.region,
        "topic": claimed.topic_name,
        "message_id": str(claimed.message_id),
        "endpoint": claimed.endpoint[:_LONGEST_ERROR],
        "attempt": claimed.attempt_count,
        "status": outcome.status,
        "error": outcome.error,
    }
    return claimed.account_id, attempt


def plan_of(policies: DeliveryPolicies | None) -> DeliveryPlan:
    """Return the delivery plan of these policies; None: the default plan."""
    if policies is None:
        return delivery_policies.plan(None, None)
    return delivery_policies.plan(
        policies.topic_delivery_policy, policies.delivery_policy, gets_events=policies.gets_events
    )


def _topic(one: EndedAttempt) -> str | None:
    """Return the topic ARN of an SNS subscription; None: not an SNS subscription."""
    if one.policies is None or one.policies.gets_events:
        return None
    account_id, region, name = one.claimed.source
    return arns.topic_arn(region, account_id, name)


def _failure(one: EndedAttempt | FailedDelivery, delay: float | None) -> DeliveryFailure:
    claimed, outcome = one.claimed, one.outcome
    return DeliveryFailure(
        claimed.delivery_id, claimed.attempt_count, delay, outcome.status, outcome.error or ""
    )


def _delay(one: EndedAttempt) -> float | None:
    """Return the seconds until the next attempt; None: no attempt is left. Lost attempts do not
    count."""
    if one.outcome.is_permanent:
        return None
    failed_count = one.claimed.attempt_count - one.claimed.lost_count
    return plan_of(one.policies).delay_before_retry(failed_count, random.random())


def _dead_letter_queue(one: EndedAttempt) -> str | None:
    if one.policies is None or one.claimed.kind != NOTIFICATION:
        return None
    return target_of(one.policies.redrive_policy)


class FailedDelivery(NamedTuple):
    """A delivery whose last attempt failed, with the body for the dead-letter queue."""

    claimed: ClaimedDelivery
    outcome: DeliveryOutcome
    body: str
    queue_arn: str
    topic_arn: str | None
    """None: the delivery belongs to the native API, which has no queue policies."""


def target_of(redrive_policy: str | None) -> str | None:
    """Return the ARN of the queue in a subscription's RedrivePolicy."""
    if not redrive_policy:
        return None
    try:
        policy = orjson.loads(redrive_policy)
    except orjson.JSONDecodeError:
        return None
    arn = policy.get("deadLetterTargetArn") if isinstance(policy, dict) else None
    return arn if isinstance(arn, str) else None


async def move_to_dead_letters(
    tx: Transaction, now: datetime | None, letters: list[FailedDelivery], allows: PolicyAllows
) -> tuple[Counter[int], list[FailedDelivery]]:
    """Write deliveries whose lease is still valid as messages to their dead-letter queues.

    Return the count of each queue, and the letters that stay: their queue does not exist, denies
    the topic, or is a FIFO queue, which accepts no web hook messages. Messages for a full queue
    wait.
    """
    held = await web_hook_deliveries.lock_leases(tx, [_lease(letter) for letter in letters])
    queues: dict[str, Queue | None] = {}
    messages = []
    stuck = []
    moved = []
    for letter in letters:
        if letter.claimed.delivery_id not in held:
            continue
        if letter.queue_arn not in queues:
            queues[letter.queue_arn] = await find_by_arn(tx, letter.queue_arn)
        queue = queues[letter.queue_arn]
        topic_arn = letter.topic_arn
        if (
            queue is None
            or queue.kind.has_groups
            or (topic_arn is not None and not allows(queue, topic_arn))
        ):
            stuck.append(letter)
        else:
            row = _row(letter, queue, held[letter.claimed.delivery_id])
            messages.append(Addressed(queue, row))
            moved.append(letter)
    counts, gone = await send_or_wait(tx, now, messages)
    written = [
        (letter, message.queue.queue_id not in gone)
        for letter, message in zip(moved, messages, strict=True)
    ]
    stuck += [letter for letter, is_written in written if not is_written]
    moved = [letter for letter, is_written in written if is_written]
    await web_hook_deliveries.remove(tx, [_lease(letter) for letter in moved])
    return counts, stuck


def _lease(letter: FailedDelivery) -> web_hook_deliveries.Lease:
    return letter.claimed.delivery_id, letter.claimed.attempt_count


def _row(letter: FailedDelivery, queue: Queue, attributes: str | None) -> Row:
    """Return the row with the body for the web hook, unchanged (docs/contract/sns.md 3.6)."""
    # A body that could not be signed without the key is signed at receive.
    is_unsigned = not letter.claimed.is_raw and sns_envelopes.is_unsigned(letter.body)
    digest = UNSIGNED if is_unsigned else None
    message = NewMessage(letter.body, attributes, digest=digest)
    return row_of(queue, message, str(uuid4()), letter.claimed.account_id)
