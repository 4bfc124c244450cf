"""Confirmations of subscriptions: requests, answers, and offers to restore a subscription that was
deleted without credentials (docs/contract/sns.md 3.4)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.gateway.operations.topics.prepared_copies import lets_in
from queuegate.protocol import arns, sns_envelopes
from queuegate.protocol.endpoint_urls import WEB
from queuegate.protocol.sns_envelopes import ConfirmationKind, Confirming, Signing
from queuegate.storage.model import NewDelivery, NewOutboxMessage, Topic, TopicSubscription
from queuegate.storage.queue_model import NewMessage
from queuegate.storage.storage_errors import Rejected, TokenRefused
from queuegate.storage.topics import (
    stored_outbox,
    stored_topics,
    subscriptions,
    web_hook_deliveries,
)

if TYPE_CHECKING:
    from datetime import datetime

    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.topics.subscriptions import EndedSubscription

_TOKEN_BYTES = 144
_SUBJECTS: Mapping[ConfirmationKind, str] = {
    "SubscriptionConfirmation": "AWS Notification - Subscription Confirmation",
    "UnsubscribeConfirmation": "AWS Notification - Unsubscribe Confirmation",
}


def new_token() -> str:
    """Return a random token of 288 hex digits, as in AWS."""
    return secrets.token_hex(_TOKEN_BYTES)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A request for confirmation, or a notice that none is needed."""

    message_id: str
    envelope: str


async def write_confirmation(
    engine: Engine,
    tx: Transaction,
    kind: ConfirmationKind,
    *,
    topic: Topic,
    subscription: TopicSubscription,
    token: str,
    base_url: str,
) -> Confirmation:
    """Write a confirmation for a web hook, or into the outbox for endpoints that only AWS reaches.
    For queues, call ``send_confirmation`` after the commit. The signer is ready; the link starts
    with ``base_url``.

    Deliveries to web hooks are signed when they are sent; all others are signed here.
    """
    clock, message_id = engine.clock.of(topic.account_id), new_id()
    certificate = sns_envelopes.cert_url(
        engine.rules.cert_url_base or base_url, engine.signer.fingerprint
    )
    confirming = Confirming(kind, message_id, token, topic.arn, subscription.arn, clock.instant())
    envelope = sns_envelopes.confirmation(
        confirming, base_url=base_url, signing=Signing(topic.signature_version, certificate)
    )
    if subscription.protocol not in WEB:
        signature = engine.signer.sign(*sns_envelopes.to_sign(envelope))
        envelope = sns_envelopes.with_signature(envelope, signature, engine.signer.fingerprint)
    if subscription.protocol in WEB:
        delivery = NewDelivery(
            str(subscription.subscription_id),
            kind,
            False,
            message_id,
            topic.account_id,
            topic.region,
            topic.name,
            subscription.endpoint,
            envelope,
        )
        await web_hook_deliveries.insert(tx, clock.now(), [delivery])
    elif subscription.protocol != "sqs":
        message = NewOutboxMessage(
            topic.account_id,
            topic.region,
            subscription.protocol,
            subscription.endpoint,
            kind,
            topic.arn,
            subscription.arn,
            message_id,
            _SUBJECTS[kind],
            envelope,
            None,
        )
        await stored_outbox.insert(tx, clock.now(), [message])
    return Confirmation(message_id, envelope)


async def send_confirmation(
    engine: Engine, caller: Caller, subscription: TopicSubscription, confirmation: Confirmation
) -> None:
    """Send a confirmation to a queue of another account. Nothing is sent if the queue does not
    exist or its policy forbids it, or it cannot store the message."""
    queue_arn = arns.parse_queue(subscription.endpoint)
    with contextlib.suppress(Rejected):
        queue = await engine.queues.find(queue_arn.account_id, queue_arn.region, queue_arn.resource)
        if not lets_in(engine, queue, subscription.arn.rpartition(":")[0]):
            return
        ids = (str(subscription.subscription_id), confirmation.message_id)
        message = NewMessage(confirmation.envelope)
        if queue.kind.has_groups:
            message = message._replace(group_id=ids[0], deduplication_id=ids[1])
        await answered(send_all, engine, caller, queue, [MessageToSend(message)], False)


async def confirm(
    engine: Engine,
    account_id: str,
    token: str,
    *,
    region: str,
    is_signed: bool,
    authenticate_on_unsubscribe: bool,
) -> str:
    """Confirm the subscription of a token, if it is not, and return its ARN.

    The token decides; its topic only has to be in the same region. ``account_id`` selects the
    clock. Raises TokenRefused.
    """
    now = engine.clock.of(account_id).now()
    confirming = _Confirming(now, token, region, is_signed, authenticate_on_unsubscribe)
    async with engine.database.transaction() as tx:
        confirmed = await confirming.confirm(tx)
    engine.wakeups.topic_changed(confirmed.topic_id)
    return confirmed.arn


@dataclass(frozen=True, slots=True)
class _Confirming:
    """One answer to a request for confirmation."""

    now: datetime | None
    token: str
    region: str
    is_signed: bool
    authenticate_on_unsubscribe: bool

    async def confirm(self, tx: Transaction) -> TopicSubscription:
        """Confirm and return the subscription of the token."""
        # In this order: a deleted subscription may be restored concurrently.
        place = await self._ended(tx) or await self._live(tx)
        if place is None:
            raise TokenRefused
        await self._lock(tx, place)
        ended = await self._ended(tx)
        if ended is not None:
            await subscriptions.restore(
                tx,
                self.now,
                ended,
                token=self.token,
                was_authenticated=self.is_signed,
                authenticate_on_unsubscribe=self.authenticate_on_unsubscribe,
            )
        found = await self._live(tx)
        if found is None:
            raise TokenRefused
        if not found.is_confirmed:
            await subscriptions.confirm(
                tx,
                found,
                was_authenticated=self.is_signed,
                authenticate_on_unsubscribe=self.authenticate_on_unsubscribe,
            )
        return found

    async def _live(self, tx: Transaction) -> TopicSubscription | None:
        return await subscriptions.find_by_token(tx, self.token, self.now)

    async def _ended(self, tx: Transaction) -> EndedSubscription | None:
        return await subscriptions.find_ended(tx, self.now, self.token)

    async def _lock(self, tx: Transaction, found: TopicSubscription | EndedSubscription) -> None:
        if found.region != self.region:
            raise TokenRefused(is_of_other_region=True)
        if await stored_topics.lock(tx, found.topic_id) is None:
            # Deleted meanwhile, with its subscriptions.
            raise TokenRefused
