"""Delivers to web hooks: claims due deliveries, sends the requests and records the outcomes.

A claim is a lease: the row becomes due again if this process dies. No transaction is open during a
request. Outcomes and the next claim share one short transaction, so faster web hooks mean larger
transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from queuegate.protocol import arns
from queuegate.protocol.delivery_policies import DEFAULT_CONTENT_TYPE
from queuegate.scheduler.webhook_outcomes import (
    DELIVERED,
    NOTIFICATION,
    DeliveryOutcome,
    EndedAttempt,
    PolicyAllows,
    Recorded,
    attempt_event,
    no_answer,
    of_event,
    plan_of,
    record,
)
from queuegate.scheduler.webhook_pacing import FairQueue, allowance
from queuegate.scheduler.worker import (
    PAUSE_SECONDS,
    IdleProbe,
    Loop,
    account_presents,
    common_filter,
    failures_logged,
)
from queuegate.storage import pending_work
from queuegate.storage.account_events import note
from queuegate.storage.database import Database, probe_by_key
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics import web_hook_deliveries
from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery, DeliveryPolicies, Source

if TYPE_CHECKING:
    from queuegate.scheduler.webhook_client import WebHooks
    from queuegate.scheduler.webhook_pacing import Allowance
    from queuegate.scheduler.worker import AllClocks
    from queuegate.storage.database import Transaction


_log = logging.getLogger("queuegate.deliver")

T = TypeVar("T")

_BEFORE_ALL = UUID(int=0)
_HEADS_PER_LOOK = 1_000
# Limits looks to a fifth of the time, however many subscriptions have pending deliveries.
_PAUSE_PER_LOOK = 4
_UNAVAILABLE_PAUSE_SECONDS = 1.0
_MOST_BODIES_BYTES = 32 << 20
_FEWEST_CLAIMED = 8
# Decay of the largest known body size, per claim.
_FORGETTING = 0.9


_AGENT = "Amazon Simple Notification Service Agent"
_SHORTEST_MARGIN_SECONDS = 5.0

Sign = Callable[[str], Awaitable[str]]
"""Returns a signed envelope. Raises ``Unavailable`` while the key cannot be read."""


class _Looks:
    """Schedule and cursor of looks for due deliveries: 1,000 subscriptions a look, in a cycle."""

    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._cursor = _BEFORE_ALL
        self._spent = 0.0
        self._next_due = float("inf")
        self.is_hinted = True
        self.next_at = 0.0
        self.found_none = False
        """True if the last look found nothing pending, due or not."""
        self.accounts: dict[UUID, str] = {}
        """Accounts of pending subscriptions, where the account has its own clock."""

    async def look(self, tx: Transaction, clocks: AllClocks, turns: FairQueue) -> None:
        """Add subscriptions with due deliveries to ``turns``."""
        time = asyncio.get_running_loop().time
        began = time()
        if self._cursor == _BEFORE_ALL:
            self.is_hinted = False
            self._next_due = float("inf")
            self._spent = 0.0
        if clocks.accounts:
            await self._look_apart(tx, clocks, turns)
        heads = await web_hook_deliveries.find_heads(
            tx, clocks.now(), self._cursor, most=_HEADS_PER_LOOK, whose=common_filter(clocks)
        )
        for head in heads:
            if head.due_in is None:
                continue
            if head.due_in <= 0:
                turns.add(head.subscription_id)
            elif not clocks.is_frozen:
                self._next_due = min(self._next_due, began + head.due_in)
        self._spent += time() - began
        if len(heads) == _HEADS_PER_LOOK:
            self._cursor = heads[-1].subscription_id
            self.next_at = 0.0
        else:
            self.found_none = not heads and self._cursor == _BEFORE_ALL and not self.accounts
            self._cursor = _BEFORE_ALL
            poll_at = time() + self._poll_seconds * random.uniform(0.8, 1.0)
            soonest = time() + self._spent * _PAUSE_PER_LOOK
            self.next_at = max(soonest, min(poll_at, self._next_due))

    async def _look_apart(self, tx: Transaction, clocks: AllClocks, turns: FairQueue) -> None:
        """Look up subscriptions of accounts that have their own clock."""
        began = asyncio.get_running_loop().time()
        found = await pending_work.next_deliveries(
            tx, account_presents(clocks), most=_HEADS_PER_LOOK
        )
        self.accounts = {one.subscription_id: one.account_id for one in found}
        for one in found:
            if one.due_in <= 0:
                turns.add(one.subscription_id)
            elif (clock := clocks.accounts.get(one.account_id)) and not clock.is_frozen:
                self._next_due = min(self._next_due, began + one.due_in)


class _Memory:
    """Memory budget for message bodies, estimated from the largest recent body."""

    def __init__(self) -> None:
        self._held = 0
        self._largest = 0.0

    def room(self) -> int:
        """Return how many deliveries to claim at most. Below the budget, allow a few always."""
        left = (_MOST_BODIES_BYTES - self._held) / max(1.0, self._largest)
        return max(_FEWEST_CLAIMED if self._held < _MOST_BODIES_BYTES else 0, int(left))

    def took(self, sizes: list[int]) -> None:
        """Add the sizes of claimed bodies."""
        self._held += sum(sizes)
        self._largest = max([self._largest * _FORGETTING, *sizes])

    def left(self, size: int) -> None:
        """Subtract the size of a finished delivery's body."""
        self._held -= size


class Deliver(Loop):
    """The worker for web hooks, in any number of processes: each skips claimed deliveries.

    Call ``wake`` for a look at once; otherwise it looks every ``poll_seconds``.
    ``on_moved(queue_id, count)`` is called after the commit of messages for dead-letter queues.
    """

    name = "deliver"

    def __init__(
        self,
        database: Database,
        clocks: AllClocks,
        options: DeliveryOptions,
        *,
        sign: Sign,
        on_moved: Callable[[int, int], None],
        tally: DeliveryTally,
    ) -> None:
        super().__init__()
        self._database = database
        self.chores: IdleProbe | None = None
        """Wakes the worker when work may exist. Unused if ``poll_seconds`` is shorter."""
        self.recorded: Container[str] = ()
        """The accounts that record events."""
        self._clocks = clocks
        self._options = options
        self._on_moved = on_moved
        self._tally = tally
        self._attempts = Attempts(options, sign, tally)
        self._turns = FairQueue(options.concurrency)
        self._looks = _Looks(options.poll_seconds)
        self._in_flight: dict[asyncio.Task[None], ClaimedDelivery] = {}
        self._memory = _Memory()
        self._ended: list[EndedAttempt] = []

    def wake(self) -> None:
        """Look at once: deliveries may have become due."""
        self._looks.is_hinted = True
        self._woken.set()

    def start(self, *, after_seconds: float = 0.0) -> None:
        """Start the loop."""
        self._looks.is_hinted = False
        self._looks.next_at = asyncio.get_running_loop().time() + after_seconds
        super().start()

    async def stop(self) -> None:
        """Stop claims, let requests in flight end in ``stop_seconds``, and release the others."""
        self._stopping.set()
        self._woken.set()
        if self._task is not None:
            await self._task
            self._task = None
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=self._options.stop_seconds)
        broken_off = {task: one for task, one in self._in_flight.items() if not task.done()}
        for task in broken_off:
            task.cancel()
        if broken_off:
            await asyncio.wait(broken_off)
        with contextlib.suppress(Unavailable):
            await self._write(claiming=False)
            await self._release_leases(list(broken_off.values()))
        await self._attempts.close()

    async def run_once(self) -> int:
        """Claim once, deliver and record the claimed deliveries, and return their number."""
        self._looks.is_hinted = True
        count = await self._write(claiming=True)
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        await self._write(claiming=False)
        return count

    async def _run(self, after_seconds: float) -> None:
        time = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            wait = min(self._looks.next_at, self._turns.next_time()) - time()
            if wait > 0 and not self._looks.is_hinted:
                await self._wait(wait)
            self._woken.clear()
            with failures_logged(_log, self.name):
                await self._write(claiming=not self._stopping.is_set())
                continue
            await self._rest(_UNAVAILABLE_PAUSE_SECONDS)

    async def _wait(self, seconds: float) -> None:
        """Wait for a wake or for the next look. With nothing pending, wait for the idle probe."""
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            chores = self.chores if self._options.poll_seconds >= PAUSE_SECONDS else None
            if self._looks.found_none and not self._in_flight and chores is not None:
                await chores.wait_for("deliveries", self._woken, self.name)

    async def _write(self, *, claiming: bool) -> int:
        """Record ended attempts and claim more in one transaction; return the number claimed."""
        time = asyncio.get_running_loop().time
        looks = claiming and (self._looks.is_hinted or time() >= self._looks.next_at)
        chosen = self._chosen() if claiming else {}
        if not (self._ended or looks or chosen):
            return 0
        ended, self._ended = self._ended, []
        try:
            async with self._database.transaction() as tx:
                await probe_by_key(tx)
                recorded = await self._record(tx, ended)
                await note(tx, self.recorded, map(attempt_event, ended))
                if looks:
                    await self._looks.look(tx, self._clocks, self._turns)
                    chosen = self._chosen()
                claimed, policies = await self._claim_all(tx, chosen)
        except BaseException:
            self._ended = ended + self._ended
            raise
        self._notify(recorded)
        self._begin(chosen, claimed, policies)
        return len(claimed)

    def _now_of(self, account_id: str | None) -> datetime | None:
        clock = self._clocks.accounts.get(account_id or "")
        return self._clocks.now() if clock is None else clock.now()

    def _by_clock(
        self, items: Iterable[T], claimed: Callable[[T], ClaimedDelivery]
    ) -> dict[str | None, list[T]]:
        """Group by the accounts that have their own clock; None: the common clock."""
        parts: dict[str | None, list[T]] = {}
        for one in items:
            account_id = claimed(one).account_id
            is_apart = account_id in self._clocks.accounts
            parts.setdefault(account_id if is_apart else None, []).append(one)
        return parts

    async def _record(self, tx: Transaction, ended: list[EndedAttempt]) -> Recorded:
        """Record outcomes, each by the clock of its account."""
        recorded = Recorded(Counter(), Counter())
        for account_id, some in self._by_clock(ended, lambda one: one.claimed).items():
            part = await record(tx, self._now_of(account_id), some, self._options.allows)
            recorded = Recorded(recorded.arrived + part.arrived, recorded.given_up + part.given_up)
        return recorded

    async def _claim_all(
        self, tx: Transaction, chosen: dict[UUID, int]
    ) -> tuple[list[ClaimedDelivery], dict[UUID, DeliveryPolicies]]:
        """Run ``_claim`` by the clock of each account."""
        if not self._clocks.accounts:
            return await self._claim(tx, self._clocks.now(), chosen)
        parts: dict[str | None, dict[UUID, int]] = {}
        for key, limit in chosen.items():
            parts.setdefault(self._looks.accounts.get(key), {})[key] = limit
        claimed: list[ClaimedDelivery] = []
        policies: dict[UUID, DeliveryPolicies] = {}
        for account_id, part in parts.items():
            some, theirs = await self._claim(tx, self._now_of(account_id), part)
            claimed += some
            policies |= theirs
            chosen.update(part)
        return claimed, policies

    def _chosen(self) -> dict[UUID, int]:
        most = min(self._options.batch_size, self._memory.room())
        return self._turns.choose(asyncio.get_running_loop().time(), most)

    def _notify(self, recorded: Recorded) -> None:
        for queue_id, count in recorded.arrived.items():
            self._on_moved(queue_id, count)
        if recorded.given_up:
            _log.warning("deliveries given up: %d", recorded.given_up.total())
        for source, count in recorded.given_up.items():
            self._tally.exhausted(source, count)

    async def _claim(
        self, tx: Transaction, now: datetime | None, chosen: dict[UUID, int]
    ) -> tuple[list[ClaimedDelivery], dict[UUID, DeliveryPolicies]]:
        """Lease the chosen deliveries within the throttles. Lower ``chosen`` to the allowances."""
        if not chosen:
            return [], {}
        policies = await web_hook_deliveries.find_policies(tx, chosen)
        paused = {key for key, item in policies.items() if item.is_paused}
        unpaused = {key: item for key, item in policies.items() if key not in paused}
        allowances = await self._allowances(tx, now, unpaused)
        for subscription_id, allowed in allowances.items():
            chosen[subscription_id] = min(chosen[subscription_id], allowed.most)
        # Paused subscriptions get nothing and leave the ready list. Resuming causes a new look.
        limits = {key: limit for key, limit in chosen.items() if limit and key not in paused}
        if not limits:
            return [], policies
        claimed = await web_hook_deliveries.claim(
            tx, now, limits, held_ids=self._held_ids(), lease_seconds=self._options.lease_seconds
        )
        got = Counter(one.subscription_id for one in claimed)
        charged = {key: item for key, item in allowances.items() if got[key]}
        free_in = {key: item.free_in(got[key]) for key, item in charged.items()}
        await web_hook_deliveries.set_throttles(tx, now, free_in)
        time = asyncio.get_running_loop().time()
        for key, item in charged.items():
            self._turns.pause(key, time + item.pause(got[key]))
        return claimed, policies

    def _held_ids(self) -> list[int]:
        """Return deliveries in flight or with an unwritten outcome. Moving the clock must not cause
        a second claim of them."""
        ended = [one.claimed.delivery_id for one in self._ended]
        return ended + [claimed.delivery_id for claimed in self._in_flight.values()]

    async def _allowances(
        self, tx: Transaction, now: datetime | None, policies: dict[UUID, DeliveryPolicies]
    ) -> dict[UUID, Allowance]:
        """Return the allowances of throttled subscriptions."""
        rates: dict[UUID, int] = {}
        for key, item in policies.items():
            per_second = plan_of(item).max_receives_per_second
            if per_second is not None:
                rates[key] = per_second
        if not rates:
            return {}
        time = asyncio.get_running_loop().time()
        held = await web_hook_deliveries.hold_throttles(tx, now, rates)
        found = {}
        for key, per_second in rates.items():
            # Another worker holds the throttle and is about to start deliveries.
            free_in = held.get(key, 1 / per_second)
            found[key] = allowance(free_in, per_second)
            if not found[key].most:
                self._turns.pause(key, time + found[key].pause(0))
        return found

    def _begin(
        self,
        chosen: dict[UUID, int],
        claimed: list[ClaimedDelivery],
        policies: dict[UUID, DeliveryPolicies],
    ) -> None:
        loop = asyncio.get_running_loop()
        got = Counter(one.subscription_id for one in claimed)
        for subscription_id, asked in chosen.items():
            if asked:
                self._turns.began(subscription_id, asked, got[subscription_id])
        self._memory.took([len(one.body) for one in claimed])
        for one in claimed:
            task = loop.create_task(self._attempt(one, policies.get(one.subscription_id)))
            self._in_flight[task] = one
            task.add_done_callback(self._in_flight.pop)
        lost = sum(one.was_lost for one in claimed)
        if lost:
            _log.warning("leases ran out, their requests may be made twice: %d", lost)
            self._tally.lost(lost)
        if len(claimed) >= self._options.batch_size:
            self._woken.set()

    async def _attempt(self, claimed: ClaimedDelivery, policies: DeliveryPolicies | None) -> None:
        answer = None
        try:
            ended = await self._attempts.make(claimed, policies)
            answer = ended.answer
            self._ended.append(ended)
        finally:
            self._memory.left(len(claimed.body))
            now = asyncio.get_running_loop().time()
            self._turns.ended(claimed.subscription_id, answer, now)
            self._woken.set()

    async def _release_leases(self, claimed: list[ClaimedDelivery]) -> None:
        if claimed:
            async with self._database.transaction() as tx:
                await probe_by_key(tx)
                for account_id, some in self._by_clock(claimed, lambda one: one).items():
                    leases = [(one.delivery_id, one.attempt_count) for one in some]
                    await web_hook_deliveries.release(tx, self._now_of(account_id), leases)
            self._tally.lost(len(claimed))


class DeliveryTally(Protocol):
    """Counters of deliveries."""

    def attempted(self, source: Source, seconds: float, *, succeeded: bool) -> None:
        """Count one request."""

    def exhausted(self, source: Source, count: int) -> None:
        """Count deliveries that were given up."""

    def lost(self, count: int) -> None:
        """Count leases that expired or were interrupted: their requests may be sent twice."""


class AttemptTrace(Protocol):
    """A trace of one attempt."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the trace headers of the request."""

    def ended(self, status: int | None, error: str | None) -> None:
        """End the trace; ``status`` None: no answer, ``error`` None: delivered."""


class _NoTrace:
    headers: Mapping[str, str] = MappingProxyType({})

    def ended(self, status: int | None, error: str | None) -> None:
        """Do nothing: the attempt is not traced."""


_NO_TRACE = _NoTrace()


async def _not_failed(_: ClaimedDelivery) -> DeliveryOutcome | None:
    return None


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Options of web hook deliveries."""

    poll_seconds: float = 1.0
    timeout_seconds: float = 15.0
    batch_size: int = 256
    concurrency: int = 256
    stop_seconds: float = 5.0
    allow_private: bool = False
    ca_file: Path | None = None
    trace: Callable[[ClaimedDelivery], AttemptTrace] = lambda _: _NO_TRACE
    fail: Callable[[ClaimedDelivery], Awaitable[DeliveryOutcome | None]] = _not_failed
    """Returns the outcome of an attempt that fails on purpose; None: it is made."""
    allows: PolicyAllows = lambda _queue, _topic_arn: True

    @property
    def lease_seconds(self) -> float:
        """Return a lease longer than any attempt with its record."""
        return self.timeout_seconds + max(self.timeout_seconds, _SHORTEST_MARGIN_SECONDS)


class Attempts:
    """Signs and sends requests. The first attempt opens the HTTP client."""

    def __init__(self, options: DeliveryOptions, sign: Sign, tally: DeliveryTally) -> None:
        self._options = options
        self._sign = sign
        self._tally = tally
        self._web_hooks: WebHooks | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        client, self._web_hooks = self._web_hooks, None
        if client is not None:
            await client.close()

    async def make(
        self, claimed: ClaimedDelivery, policies: DeliveryPolicies | None
    ) -> EndedAttempt:
        """Send one request and return its result. Discard a notification whose subscription was
        deleted; send a confirmation all the same."""
        body = claimed.body
        if claimed.kind == NOTIFICATION and policies is None:
            return EndedAttempt(claimed, policies, DELIVERED, body, None)
        try:
            if not claimed.is_raw:
                body = await self._sign(body)
            outcome = await self._send(claimed, policies, body)
        except Unavailable as error:
            return EndedAttempt(claimed, policies, no_answer(f"not sent: {error}"), body, None)
        except Exception:  # noqa: BLE001 - a bug must not lose the delivery, nor its lease
            _log.exception("delivery %d failed", claimed.delivery_id)
            outcome = no_answer("not sent: an error in the gateway, see its log")
            return EndedAttempt(claimed, policies, outcome, body, None)
        return EndedAttempt(claimed, policies, outcome, body, outcome)

    async def _send(
        self, claimed: ClaimedDelivery, policies: DeliveryPolicies | None, body: str
    ) -> DeliveryOutcome:
        client = self._web_hooks or await self._open()
        trace = self._options.trace(claimed)
        headers = {**headers_of(claimed, policies), **trace.headers}
        started = perf_counter()
        try:
            outcome = await self._options.fail(claimed)
            if outcome is None:
                outcome = await client.post(claimed.endpoint, headers, body.encode())
        except BaseException as error:
            trace.ended(None, type(error).__name__)
            raise
        trace.ended(outcome.status, outcome.error)
        seconds = perf_counter() - started
        self._tally.attempted(claimed.source, seconds, succeeded=outcome.is_delivered)
        return of_event(outcome) if policies is not None and policies.gets_events else outcome

    async def _open(self) -> WebHooks:
        async with self._opening:
            if self._web_hooks is None:
                # Loading the library and the certificates takes long, so a thread loads them.
                module = await asyncio.to_thread(
                    importlib.import_module, "queuegate.scheduler.webhook_client"
                )
                context = await asyncio.to_thread(module.make_context, self._options.ca_file)
                self._web_hooks = module.WebHooks(
                    context,
                    timeout_seconds=self._options.timeout_seconds,
                    allow_private=self._options.allow_private,
                )
            return self._web_hooks


def headers_of(claimed: ClaimedDelivery, policies: DeliveryPolicies | None) -> dict[str, str]:
    """Return the headers of a request. Policies do not apply to confirmations."""
    topic_arn = arns.topic_arn(claimed.region, claimed.account_id, claimed.topic_name)
    is_notification = claimed.kind == NOTIFICATION
    headers = {
        "x-amz-sns-message-type": claimed.kind,
        "x-amz-sns-message-id": str(claimed.message_id),
        "x-amz-sns-topic-arn": topic_arn,
    }
    if claimed.kind != "SubscriptionConfirmation":
        # A subscription to a pattern has another topic name than the key of the publish.
        name = claimed.topic_name if policies is None else policies.topic_name
        own_arn = arns.topic_arn(claimed.region, claimed.account_id, name)
        arn = arns.subscription_arn(own_arn, claimed.subscription_id)
        headers["x-amz-sns-subscription-arn"] = arn
    if claimed.is_raw:
        headers["x-amz-sns-rawdelivery"] = "true"
    plan = plan_of(policies)
    content_type = plan.raw_content_type if claimed.is_raw else plan.content_type
    headers["Content-Type"] = content_type if is_notification else DEFAULT_CONTENT_TYPE
    headers["User-Agent"] = _AGENT
    headers["Accept-Encoding"] = "gzip,deflate"
    return headers
