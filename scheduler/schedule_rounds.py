"""One round of schedules: claims due schedules, sends their messages and advances the schedules.

A round is one transaction, so a worker that dies has fired nothing, and no other worker fires
claimed schedules. All messages are sent together. If that fails, each group is sent in a savepoint
of its own, so that one schedule does not delay others. A database that is unavailable or busy
causes no failure: the round is repeated.

Times for which a due schedule fires, and its next time:

    next_fire_at          now - window       now
    ----|------|------|------|-----------------|------>
        (   missed    )        (its window is open: not missed, it is the next time)

Without catch-up, the missed times collapse to one fire, for the first of them. With catch-up, they
fire in order, oldest first, up to the limit. Times beyond the limit are skipped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from queuegate.protocol import arns
from queuegate.protocol.timing import Timing, drawn_due_at, next_within
from queuegate.storage import schedule_fires
from queuegate.storage.account_events import AccountEvent, event_of_fire, note
from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter
from queuegate.storage.schedule_fires import (
    Advance,
    ClaimedSchedule,
    Dispatched,
    Fire,
    Invocation,
    InvocationFailure,
    NewInvocation,
)
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_log = logging.getLogger("queuegate.fire")

_MOST_FIRES = 2_000
"""Limit of times that a transaction computes, fired or skipped."""
_MOST_ALONE = 20
"""Limit of groups sent one by one: their locks are held until the commit."""
_MOST_REPEATED = 50
"""Limit of retries in a round: each carries its target, which may be long."""
_NOT_A_TIMING = InvocationFailure("InternalError", "The schedule cannot be read.")
_BROKEN = InvocationFailure("InternalError", "The message could not be sent.")

_MOST_COUNTED = 1_000
"""Limit for counting skipped times: counting many years of minutes would take minutes."""

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 480.0
"""Longest pause: 185 attempts with these pauses fill the day that AWS allows
(docs/contract/scheduler.md 4.2)."""
_DAY_SECONDS = 86_400

OUT_OF_ATTEMPTS = "MaximumRetryAttempts"
OUT_OF_TIME = "MaximumEventAgeInSeconds"


class Dispatch(Protocol):
    """Sends the messages of fires; implemented by the gateway."""

    async def __call__(
        self, tx: Transaction, now: datetime | None, groups: Sequence[Sequence[Fire]], /
    ) -> Dispatched:
        """Write the messages of these fires within the transaction, each group completely or not.

        It may skip the last groups (``Dispatched``), but not the first. After an error no message
        is written, and the transaction stays usable, except after Unavailable.
        """


class FiringTally(Protocol):
    """Counters of schedules."""

    def fired(self, count: int) -> None:
        """Count invocations."""

    def failed(self, count: int) -> None:
        """Count failed attempts to invoke."""

    def late(self, seconds: float) -> None:
        """Record the delay between the due time of a schedule and its fire."""

    def paused(self, count: int) -> None:
        """Count schedules that were paused after too many failures."""


class RoundResult(NamedTuple):
    """The results of a round, to report after its commit."""

    handled: int
    claimed_at: datetime | None
    due_ats: list[datetime]
    fired_count: int
    failed_count: int
    paused: list[str]
    committed: list[Callable[[], None]]

    def report(self, tally: FiringTally, seconds: float) -> None:
        """Run the callbacks and count; ``seconds`` is the time since the claim."""
        for committed in self.committed:
            committed()
        tally.fired(self.fired_count)
        tally.failed(self.failed_count)
        for due_at in self.due_ats:
            assert self.claimed_at is not None
            tally.late((self.claimed_at - due_at).total_seconds() + seconds)
        if self.paused:
            tally.paused(len(self.paused))
            _log.warning("paused after too many failures: %s", ", ".join(self.paused))


class _Due(NamedTuple):
    """A claimed schedule with its plan; None: its timing cannot be read."""

    claimed: ClaimedSchedule
    plan: FiringPlan | None
    fires: list[Fire]


class Round:
    """One round in a transaction."""

    def __init__(
        self,
        tx: Transaction,
        now: datetime | None,
        dispatch: Dispatch,
        whose: AccountFilter = ALL_ACCOUNTS,
        recorded: Container[str] = (),
    ) -> None:
        """``recorded``: accounts that record events."""
        self._tx = tx
        self._recorded = recorded
        self._events: list[AccountEvent] = []
        self._now = now
        self._whose = whose
        self._dispatch = dispatch
        self._committed: list[Callable[[], None]] = []
        self._letters: list[Fire] = []
        self._fired = 0
        self._failed = 0
        self._paused: list[str] = []

    async def run(self, limit: int) -> RoundResult:
        """Fire up to ``limit`` due schedules, and retry due invocations."""
        await probe_by_key(self._tx)
        claimed = await schedule_fires.claim(self._tx, self._now, limit, self._whose)
        repeated = await schedule_fires.claim_invocations(
            self._tx, self._now, _MOST_REPEATED, self._whose
        )
        due = await self._plan(claimed)
        groups = [one.fires for one in due] + [[one.fire] for one in repeated]
        handled = 0
        if groups:
            failures = await self._send(groups)
            handled = len(failures)
            due, repeated = due[:handled], repeated[: max(0, handled - len(due))]
            await self._advance(due, failures[: len(due)])
            await self._end_repeated(repeated, failures[len(due) :])
            await self._dead_letter()
            await note(self._tx, self._recorded, self._events)
        return RoundResult(
            handled,
            claimed[0].claimed_at if claimed else None,
            [one.claimed.due_at for one in due if one.plan is not None],
            self._fired,
            self._failed,
            self._paused,
            self._committed,
        )

    async def _plan(self, claimed: list[ClaimedSchedule]) -> list[_Due]:
        """Return plans for the schedules that one transaction should send. Others stay due."""
        found: list[_Due] = []
        count = 0
        for one in claimed:
            planned = _planned(one)
            times = planned.times if planned is not None else []
            found.append(_Due(one, planned, [_fire(one, time) for time in times]))
            worked_out = len(times) + (0 if planned is None else planned.skipped_count)
            count += worked_out
            if count >= _MOST_FIRES:
                break
            if worked_out > 1:
                # Yield to the event loop.
                await asyncio.sleep(0)
        return found

    async def _send(self, groups: list[list[Fire]]) -> list[InvocationFailure | None]:
        """Send groups and return the failure of each; None: sent. A short list covers the first
        groups only: the others stay due."""
        try:
            done = await self._dispatch(self._tx, self._now, groups)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop other schedules
            # Do not log the error's text: it may contain messages.
            _log.info("%d fires go one by one: %s", len(groups), type(error).__name__)
            return [await self._send_alone(group) for group in groups[:_MOST_ALONE]]
        self._committed.append(done.committed)
        return list(done.failures)

    async def _send_alone(self, group: list[Fire]) -> InvocationFailure | None:
        try:
            done = await self._dispatch(self._tx, self._now, [group])
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - the failure of one schedule, and of no other
            _log.exception("schedule %s cannot be fired", group[0].name if group else "?")
            return _BROKEN
        self._committed.append(done.committed)
        return done.failures[0]

    async def _advance(self, due: list[_Due], failures: Sequence[InvocationFailure | None]) -> None:
        ended: list[int] = []
        advances: list[Advance] = []
        invocations: list[NewInvocation] = []
        for one, failure in zip(due, failures, strict=True):
            claimed = one.claimed
            if one.plan is None:
                failure = _NOT_A_TIMING
            self._events += [event_of_fire(fire, failure) for fire in one.fires]
            if failure is None:
                self._fired += len(one.fires)
            else:
                self._failed += 1
                invocations += self._retries(one, failure)
            is_kept = failure is not None and claimed.group_name is None
            is_last = one.plan is not None and one.plan.next_fire_at is None
            if is_last and claimed.deletes_itself and not is_kept:
                ended.append(claimed.schedule_id)
                continue
            advance = _advance(one, failure)
            advances.append(advance)
            if not advance.is_active:
                self._paused.append(claimed.name)
        at = due[0].claimed.claimed_at if due else None
        if at is not None:
            await schedule_fires.advance(self._tx, at, advances)
            await schedule_fires.remove(self._tx, ended)
            await schedule_fires.insert_invocations(self._tx, at, invocations)

    def _retries(self, due: _Due, failure: InvocationFailure) -> list[NewInvocation]:
        found = []
        for fire in due.fires:
            retry = first_retry(fire, due.claimed)
            if isinstance(retry, NewInvocation):
                found.append(retry)
            elif due.claimed.dead_letter is not None:
                queue = due.claimed.dead_letter
                self._letters.append(dead_letter(fire, queue, failure, retry))
        return found

    async def _end_repeated(
        self, repeated: list[Invocation], failures: Sequence[InvocationFailure | None]
    ) -> None:
        ended: list[int] = []
        postponed: list[tuple[int, float]] = []
        for one, failure in zip(repeated, failures, strict=True):
            self._events.append(event_of_fire(one.fire, failure))
            if failure is None:
                self._fired += 1
                ended.append(one.invocation_id)
                continue
            self._failed += 1
            retry = next_retry(one)
            if isinstance(retry, float):
                postponed.append((one.invocation_id, retry))
                continue
            ended.append(one.invocation_id)
            if one.dead_letter is not None:
                letter = dead_letter(one.fire, one.dead_letter, failure, retry)
                self._letters.append(letter)
        if repeated:
            await schedule_fires.postpone_invocations(self._tx, repeated[0].claimed_at, postponed)
            await schedule_fires.remove_invocations(self._tx, ended)

    async def _dead_letter(self) -> None:
        """Send invocations that were given up to their dead-letter queues. A failure loses them."""
        letters = self._letters
        while letters:
            failures = await self._send([[letter] for letter in letters])
            sent, letters = letters[: len(failures)], letters[len(failures) :]
            self._log_lost(sent, failures)

    def _log_lost(self, letters: list[Fire], failures: Sequence[InvocationFailure | None]) -> None:
        for letter, failure in zip(letters, failures, strict=True):
            if failure is not None:
                _log.warning(
                    "an invocation of schedule %s is lost, its dead-letter queue %s: %s",
                    letter.name,
                    letter.target["queue_name"],
                    failure.message,
                )


def _planned(claimed: ClaimedSchedule) -> FiringPlan | None:
    try:
        return plan(claimed)
    except Exception:  # noqa: BLE001 - one schedule that cannot be read must not stop all others
        _log.exception("schedule %s cannot be read", claimed.name)
        return None


def _fire(claimed: ClaimedSchedule, time: datetime) -> Fire:
    return Fire(
        claimed.schedule_id,
        claimed.account_id,
        claimed.region,
        claimed.group_name,
        claimed.name,
        claimed.target,
        time,
        _new_id(),
    )


def _new_id() -> str:
    """Return a random UUID of version 4, in a fifth of the time of the standard library."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def _advance(due: _Due, failure: InvocationFailure | None) -> Advance:
    """Return the update of a schedule that continues. Pause it after too many failures, after a
    failure of its last time, or if it cannot be read."""
    claimed, planned = due.claimed, due.plan
    count = 0 if failure is None else claimed.failure_count + 1
    threshold = claimed.failure_threshold
    next_fire_at = claimed.next_fire_at if planned is None else planned.next_fire_at
    due_at = claimed.due_at if planned is None else planned.due_at
    is_over = failure is not None and (
        planned is None
        or (threshold is not None and count >= threshold)
        or (next_fire_at is None and claimed.deletes_itself)
    )
    return Advance(
        claimed.schedule_id,
        next_fire_at,
        due_at,
        not is_over,
        count,
        None if failure is None else failure.message,
        0 if failure is not None else len(due.fires),
        0 if planned is None else planned.skipped_count,
        None if failure is not None else due.fires[-1].scheduled_for,
    )


class FiringPlan(NamedTuple):
    """The plan of a due schedule."""

    times: list[datetime]
    """Times to fire for, in order; at least one."""
    skipped_count: int
    """Missed times beyond the catch-up limit, counted up to 1,000."""
    next_fire_at: datetime | None
    due_at: datetime | None


def plan(claimed: ClaimedSchedule) -> FiringPlan:
    """Return the times to fire for and the next time. Raise Unparsable for an invalid timing."""
    times = [claimed.next_fire_at]
    skipped = 0
    now = claimed.claimed_at
    upto = now - timedelta(seconds=claimed.window_seconds)
    following = _next(claimed, claimed.next_fire_at)
    while claimed.catchup and following is not None and following <= upto:
        if len(times) < claimed.catchup_limit:
            times.append(following)
        elif skipped < _MOST_COUNTED:
            skipped += 1
        else:
            break
        following = _next(claimed, following)
    if following is not None and following <= upto:
        following = _next(claimed, upto)
    due_at = drawn_due_at(following, claimed.window_seconds, now, random.random())
    return FiringPlan(times, skipped, following, due_at)


def _next(claimed: ClaimedSchedule, after: datetime) -> datetime | None:
    return _next_time(claimed.timing, after, claimed.starts_at, claimed.ends_at)


# Thousands of schedules may share a timing and be due at once.
@lru_cache(maxsize=4096)
def _next_time(
    timing: str, after: datetime, starts_at: datetime | None, ends_at: datetime | None
) -> datetime | None:
    return next_within(_timing(timing), after, starts_at, ends_at)


@lru_cache(maxsize=4096)
def _timing(text: str) -> Timing:
    return Timing.from_json(json.loads(text))


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
