"""Attempts: one request to a web hook each, as SNS makes them (docs/contract/sns.md 3.6)."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from queuegate.protocol import arns, delivery_policies
from queuegate.protocol.delivery_policies import DEFAULT_CONTENT_TYPE, DeliveryPlan
from queuegate.scheduler.delivery.outcomes import DELIVERED, Outcome, no_answer, of_event
from queuegate.storage.deliveries.deliveries import Claimed, Policies, Source
from queuegate.storage.errors import Unavailable

if TYPE_CHECKING:
    from queuegate.scheduler.delivery.webhooks import WebHooks
    from queuegate.storage.model import Queue

_log = logging.getLogger("queuegate.deliver")

NOTIFICATION = "Notification"
_AGENT = "Amazon Simple Notification Service Agent"
_SHORTEST_MARGIN_SECONDS = 5.0

Sign = Callable[[str], Awaitable[str]]
"""An envelope with its signature; ``Unavailable`` while the key cannot be read."""


LetsIn = Callable[["Queue", str], bool]
"""Whether the policy of a queue lets in a message of that topic."""


class Tally(Protocol):
    """Counts what happens."""

    def attempted(self, source: Source, seconds: float, *, succeeded: bool) -> None:
        """One request was made."""

    def exhausted(self, source: Source, count: int) -> None:
        """So many deliveries were given up."""

    def lost(self, count: int) -> None:
        """So many leases ran out, or were broken off: their requests may be made twice."""


class AttemptTrace(Protocol):
    """Follows one attempt."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the request carries for it."""

    def ended(self, status: int | None, error: str | None) -> None:
        """The attempt is over; ``status`` None: no answer, ``error`` None: delivered."""


class _NoTrace:
    headers: Mapping[str, str] = MappingProxyType({})

    def ended(self, status: int | None, error: str | None) -> None:
        """Nobody follows."""


_NO_TRACE = _NoTrace()


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """What can be configured."""

    poll_seconds: float = 1.0
    timeout_seconds: float = 15.0
    batch_size: int = 256
    concurrency: int = 256
    stop_seconds: float = 5.0
    allow_private: bool = False
    ca_file: Path | None = None
    trace: Callable[[Claimed], AttemptTrace] = lambda _: _NO_TRACE
    lets_in: LetsIn = lambda _queue, _topic_arn: True

    @property
    def lease_seconds(self) -> float:
        """Longer than any attempt takes, its record included."""
        return self.timeout_seconds + max(self.timeout_seconds, _SHORTEST_MARGIN_SECONDS)


class Ended(NamedTuple):
    """An attempt that is over."""

    claimed: Claimed
    policies: Policies | None
    """None: the subscription is gone."""
    outcome: Outcome
    body: str
    """What was sent."""
    heard: Outcome | None
    """The outcome, if it says anything about the endpoint."""


class Attempts:
    """Signs and sends; the client is opened by the first of them."""

    def __init__(self, options: DeliveryOptions, sign: Sign, tally: Tally) -> None:
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

    async def make(self, claimed: Claimed, policies: Policies | None) -> Ended:
        """One request, whatever comes of it. Without its subscription a notification is nobody's;
        a confirmation goes out all the same."""
        body = claimed.body
        if claimed.kind == NOTIFICATION and policies is None:
            return Ended(claimed, policies, DELIVERED, body, None)
        try:
            if not claimed.is_raw:
                body = await self._sign(body)
            outcome = await self._send(claimed, policies, body)
        except Unavailable as error:
            return Ended(claimed, policies, no_answer(f"not sent: {error}"), body, None)
        except Exception:  # noqa: BLE001 - a bug must not lose the delivery, nor its lease
            _log.exception("delivery %d failed", claimed.delivery_id)
            outcome = no_answer("not sent: an error in the gateway, see its log")
            return Ended(claimed, policies, outcome, body, None)
        return Ended(claimed, policies, outcome, body, outcome)

    async def _send(self, claimed: Claimed, policies: Policies | None, body: str) -> Outcome:
        client = self._web_hooks or await self._open()
        trace = self._options.trace(claimed)
        headers = {**headers_of(claimed, policies), **trace.headers}
        started = perf_counter()
        try:
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
                # Its library and the certificates take long to load: not on the event loop.
                module = await asyncio.to_thread(
                    importlib.import_module, "queuegate.scheduler.delivery.webhooks"
                )
                context = await asyncio.to_thread(module.make_context, self._options.ca_file)
                self._web_hooks = module.WebHooks(
                    context,
                    timeout_seconds=self._options.timeout_seconds,
                    allow_private=self._options.allow_private,
                )
            return self._web_hooks


def plan_of(policies: Policies | None) -> DeliveryPlan:
    """How to deliver under these policies; the default when there are none."""
    if policies is None:
        return delivery_policies.plan(None, None)
    return delivery_policies.plan(
        policies.topic_delivery_policy, policies.delivery_policy, gets_events=policies.gets_events
    )


def headers_of(claimed: Claimed, policies: Policies | None) -> dict[str, str]:
    """The headers of a request; those of confirmations know no policy."""
    topic_arn = arns.topic_arn(claimed.region, claimed.account_id, claimed.topic_name)
    is_notification = claimed.kind == NOTIFICATION
    headers = {
        "x-amz-sns-message-type": claimed.kind,
        "x-amz-sns-message-id": str(claimed.message_id),
        "x-amz-sns-topic-arn": topic_arn,
    }
    if claimed.kind != "SubscriptionConfirmation":
        # Published under a key, delivered to a subscription to a pattern: these are two names.
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
