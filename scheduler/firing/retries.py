"""Retries of failed invocations, and dead letters of those given up."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from queuegate.protocol import arns
from queuegate.storage.schedule_fires import Fire, Invocation, InvocationFailure, NewInvocation

if TYPE_CHECKING:
    from queuegate.storage.schedule_fires import ClaimedSchedule

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 480.0
"""Longest pause: 185 attempts with these pauses fill the day that AWS allows
(docs/contract/scheduler.md 4.2)."""
_DAY_SECONDS = 86_400

OUT_OF_ATTEMPTS = "MaximumRetryAttempts"
OUT_OF_TIME = "MaximumEventAgeInSeconds"


def pause_after(attempts: int) -> float:
    """Return the seconds until the next attempt: doubled each time, less up to a tenth at random.
    The random part spreads out invocations that failed together."""
    doubled = min(_FIRST_SECONDS * 2.0 ** min(attempts - 1, 30), _LONGEST_SECONDS)
    return doubled * random.uniform(0.9, 1.0)


def first_retry(fire: Fire, claimed: ClaimedSchedule) -> NewInvocation | str:
    """Return the invocation to retry, or the reason to give up at once."""
    age_seconds = _DAY_SECONDS if claimed.max_age_seconds is None else claimed.max_age_seconds
    if claimed.max_attempts < 1:
        return OUT_OF_ATTEMPTS
    delay = pause_after(1)
    if delay > age_seconds:
        return OUT_OF_TIME
    return NewInvocation(fire, claimed.max_attempts, age_seconds, delay, claimed.dead_letter)


def next_retry(invocation: Invocation) -> float | str:
    """Return the seconds until the next attempt, or the reason to give up."""
    attempts = invocation.fire.attempt
    if attempts > invocation.max_attempts:
        return OUT_OF_ATTEMPTS
    delay = pause_after(attempts)
    if invocation.claimed_at + timedelta(seconds=delay) > invocation.expires_at:
        return OUT_OF_TIME
    return delay


def dead_letter(
    fire: Fire, queue: Mapping[str, str], failure: InvocationFailure, reason: str
) -> Fire:
    """Return a fire that sends the message to the dead-letter queue, with the reason as attributes
    (docs/contract/scheduler.md 4.2)."""
    target = fire.target
    attributes = {
        "ERROR_CODE": failure.code,
        "ERROR_MESSAGE": failure.message,
        "EXECUTION_ID": fire.execution_id,
        "EXHAUSTED_RETRY_CONDITION": reason,
        "RETRY_ATTEMPTS": str(fire.attempt - 1),
        "SCHEDULED_TIME": fire.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "SCHEDULE_ARN": arns.schedule_arn(
            fire.region, fire.account_id, fire.group_name or "default", fire.name
        ),
        "TARGET_ARN": _target_arn(target),
    }
    stored = {
        name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
    }
    return fire._replace(
        target={
            "kind": "queue",
            "account_id": queue["account_id"],
            "region": queue["region"],
            "queue_name": queue["queue_name"],
            "body": target["body"] if target["kind"] == "queue" else target["message"],
            "attributes": json.dumps(stored, ensure_ascii=False),
            "substitutes": target.get("substitutes", False),
            "role_arn": target.get("role_arn"),
            # A full queue must not refuse the message: no retry follows.
            "may_wait": True,
        }
    )


def _target_arn(target: Mapping[str, Any]) -> str:
    if target.get("arn"):
        return str(target["arn"])
    if target["kind"] == "queue":
        return arns.queue_arn(target["region"], target["account_id"], target["queue_name"])
    return arns.topic_arn(target["region"], target["account_id"], target["topic_name"])
