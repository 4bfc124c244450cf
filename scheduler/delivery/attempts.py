"""Delivery attempts: one request each to a web hook, as SNS sends it (docs/contract/sns.md 3.6)."""

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
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery, DeliveryPolicies, Source

if TYPE_CHECKING:
    from queuegate.scheduler.delivery.webhooks import WebHooks
    from queuegate.storage.queue_model import Queue

_log = logging.getLogger("queuegate.deliver")

NOTIFICATION = "Notification"
_AGENT = "Amazon Simple Notification Service Agent"
_SHORTEST_MARGIN_SECONDS = 5.0

Sign = Callable[[str], Awaitable[str]]
"""Returns a signed envelope. Raises ``Unavailable`` while the key cannot be read."""


LetsIn = Callable[["Queue", str], bool]
"""Returns True if the policy of a queue allows messages of a topic."""


class Tally(Protocol):
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
    lets_in: LetsIn = lambda _queue, _topic_arn: True

    @property
    def lease_seconds(self) -> float:
        """Return a lease longer than any attempt with its record."""
        return self.timeout_seconds + max(self.timeout_seconds, _SHORTEST_MARGIN_SECONDS)


class Ended(NamedTuple):
    """An ended attempt."""

    claimed: ClaimedDelivery
    policies: DeliveryPolicies | None
    """None: the subscription was deleted."""
    outcome: Outcome
    body: str
    """The body that was sent."""
    heard: Outcome | None
    """The outcome, if the endpoint caused it; None otherwise."""


class Attempts:
    """Signs and sends requests. The first attempt opens the HTTP client."""

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

    async def make(self, claimed: ClaimedDelivery, policies: DeliveryPolicies | None) -> Ended:
        """Send one request and return its result. Discard a notification whose subscription was
        deleted; send a confirmation all the same."""
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

    async def _send(
        self, claimed: ClaimedDelivery, policies: DeliveryPolicies | None, body: str
    ) -> Outcome:
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
                # Loading the library and the certificates takes long, so a thread loads them.
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


def plan_of(policies: DeliveryPolicies | None) -> DeliveryPlan:
    """Return the delivery plan of these policies; None: the default plan."""
    if policies is None:
        return delivery_policies.plan(None, None)
    return delivery_policies.plan(
        policies.topic_delivery_policy, policies.delivery_policy, gets_events=policies.gets_events
    )


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
