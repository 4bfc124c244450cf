"""SNS actions on subscriptions: action -> binding. Decoded members in, response members out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sns import subscription_attributes
from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns.pages import position_behind
from queuegate.gateway.faces.aws.sns.subscription_attributes import REDRIVE, REPLAY, Subject
from queuegate.gateway.faces.aws.sns.subscription_endpoints import (
    check_endpoint,
    is_confirmed_at_once,
    log_endpoint,
)
from queuegate.gateway.faces.aws.sns.topic_arns import find_topic
from queuegate.gateway.operations.access.authorization import (
    PUBLISH_RECORDS,
    SEND,
    check_copies,
    check_right,
)
from queuegate.gateway.operations.topics import confirmations, mobile, topic_subscriptions
from queuegate.gateway.operations.topics.topic_subscriptions import (
    Subscribe,
    SubscriptionChange,
    SubscriptionPage,
)
from queuegate.protocol import arns
from queuegate.protocol.arns import Arn
from queuegate.protocol.endpoint_urls import without_password
from queuegate.protocol.errors import Malformed
from queuegate.protocol.page_tokens import token_behind
from queuegate.storage.errors import (
    NotFound,
    SubscriptionExists,
    SubscriptionPending,
    TokenRefused,
)
from queuegate.storage.model import Subscription, Topic

_PENDING = "pending confirmation"
# AWS's tokens have had several lengths: any of them may be asked for, and is unknown here.
_TOKEN = re.compile(r"[0-9A-Fa-f]{64,1024}")


def _checked_arn(subscription_arn: str | None) -> str:
    if subscription_arn is None:
        raise ValidationFailed("subscriptionArn")
    missing = arns.missing_elements(subscription_arn)
    if missing is not None:
        raise InvalidParameter(f"SubscriptionArn Reason: {missing}")
    try:
        arns.parse_subscription(subscription_arn)
    except Malformed:
        raise InvalidParameter("SubscriptionId") from None
    return subscription_arn


async def subscribe(call: Call) -> Members:
    members, engine, caller = call.members, call.engine, call.caller
    topic = await find_topic(call)
    protocol, endpoint = members.get("Protocol"), members.get("Endpoint") or ""
    if protocol is None:
        raise ValidationFailed("protocol")
    if protocol == "log":
        endpoint = log_endpoint(caller, topic, endpoint)
        check_right(engine, caller, PUBLISH_RECORDS, endpoint)
    else:
        check_endpoint(topic, protocol, endpoint, allow_private=engine.rules.private_webhooks)
    if protocol == "application" and await mobile.find_missing(engine, [endpoint]):
        # AWS writes no blank behind "arn".
        raise InvalidParameter(f"Endpoint does not exist for endpoint arn{endpoint}", prefix="")
    given: Mapping[str, str] = members.get("Attributes") or {}
    subject = Subject(topic, protocol, endpoint, engine.clock.of(topic.account_id).instant())
    wanted = subscription_attributes.normalise(subject, given, {}, in_subscribe=True)
    if protocol == "sqs":
        check_copies(engine, caller, endpoint)
    _check_dead_letter(call, wanted)
    request = Subscribe(
        protocol,
        endpoint,
        wanted,
        lambda existing: subscription_attributes.fits(existing, given, wanted),
        is_own=is_confirmed_at_once(caller.account_id, protocol, endpoint),
        base_url=call.request.links_url,
        replay=subscription_attributes.replay_of(wanted),
    )
    try:
        subscription = await topic_subscriptions.subscribe(engine, caller, topic, request)
    except SubscriptionExists:
        raise InvalidParameter(
            "Attributes Reason: Subscription already exists with different attributes"
        ) from None
    shows_arn = subscription.is_confirmed or members.get("ReturnSubscriptionArn")
    return {"SubscriptionArn": subscription.arn if shows_arn else _PENDING}


def _check_dead_letter(call: Call, attributes: Mapping[str, str]) -> None:
    """Whoever has dead letters sent to a queue needs the right to have it: it is of the account of
    the subscription, on AWS."""
    arn = subscription_attributes.dead_letter_of(attributes)
    if arn is None:
        return
    if arns.parse(arn).account_id == call.caller.account_id:
        check_copies(call.engine, call.caller, arn)
    else:
        check_right(call.engine, call.caller, SEND, arn)


async def confirm_subscription(call: Call) -> Members:
    members, is_signed = call.members, not call.caller.is_anonymous
    arn = _checked_topic(members.get("TopicArn"))
    token = members.get("Token")
    if token is None:
        raise ValidationFailed("token")
    if _TOKEN.fullmatch(token) is None:
        raise InvalidParameter("Invalid token", prefix="")
    # Callers without credentials may confirm, but cannot ask for authentication.
    wants_authentication = (members.get("AuthenticateOnUnsubscribe") or "").lower() == "true"
    try:
        subscription_arn = await confirmations.confirm(
            call.engine,
            arn.account_id,
            token,
            region=arn.region,
            is_signed=is_signed,
            authenticate_on_unsubscribe=is_signed and wants_authentication,
        )
    except TokenRefused as refusal:
        raise InvalidParameter("Topic" if refusal.is_of_other_region else "Token") from None
    return {"SubscriptionArn": subscription_arn}


def _checked_topic(topic_arn: str | None) -> Arn:
    if topic_arn is None:
        raise ValidationFailed("topicArn")
    try:
        return arns.parse_subscribed(topic_arn)
    except Malformed:
        raise InvalidParameter("Topic") from None


async def unsubscribe(call: Call) -> None:
    """A subscription that is not there is no error."""
    arn = call.members.get("SubscriptionArn")
    if not arn:
        raise InvalidParameter("SubscriptionArn Reason: no value for required parameter")
    try:
        await topic_subscriptions.end(
            call.engine, call.caller, _checked_arn(arn), base_url=call.request.links_url
        )
    except NotFound:
        return
    except SubscriptionPending:
        raise InvalidParameter(
            "SubscriptionArn Reason: Cannot unsubscribe a subscription that is pending confirmation"
        ) from None


async def get_subscription_attributes(call: Call) -> Members:
    arn = _checked_arn(call.members.get("SubscriptionArn"))
    found = await topic_subscriptions.find(call.engine, arn)
    return {"Attributes": subscription_attributes.read(*found)}


async def set_subscription_attributes(call: Call) -> None:
    members, engine = call.members, call.engine
    subscription_arn = members.get("SubscriptionArn")
    name, value = members.get("AttributeName", ""), members.get("AttributeValue") or ""
    if subscription_arn is not None and "AttributeName" not in members:
        raise ValidationFailed("attributeName")
    arn = _checked_arn(subscription_arn)
    present = engine.clock.of_arn(arn).instant()

    def work_out(subscription: Subscription, topic: Topic) -> SubscriptionChange:
        subject = Subject(topic, subscription.protocol, subscription.endpoint, present)
        attributes = subscription_attributes.normalise(
            subject, {name: value}, subscription.attributes
        )
        if name == REDRIVE:
            _check_dead_letter(call, attributes)
        if name != REPLAY:
            return SubscriptionChange(attributes)
        return SubscriptionChange(attributes, True, subscription_attributes.replay_of(attributes))

    await topic_subscriptions.change(engine, arn, work_out, base_url=call.request.links_url)


async def list_subscriptions(call: Call) -> Members:
    page = await topic_subscriptions.list_of_account(
        call.engine,
        call.caller,
        after_position=position_behind("subscriptions", call.members.get("NextToken")),
        limit=AWS.subscriptions_page,
    )
    return _page("subscriptions", page)


async def list_subscriptions_by_topic(call: Call) -> Members:
    """List a page of the topic's subscriptions. A page with one of a deleted push endpoint has a
    NextToken, as on AWS (docs/contract/sns.md 3.4)."""
    engine, members = call.engine, call.members
    topic = await find_topic(call)
    page = await topic_subscriptions.list_of_topic(
        engine,
        topic,
        after_position=position_behind("by-topic", members.get("NextToken")),
        limit=AWS.subscriptions_page,
    )
    pushed = {one.endpoint for one in page.subscriptions if one.protocol == "application"}
    if pushed and await mobile.find_missing(engine, pushed):
        page = SubscriptionPage(page.subscriptions, page.subscriptions[-1].position)
    return _page("by-topic", page)


def _page(listing: str, page: SubscriptionPage) -> Members:
    position = page.next_position
    return {
        "Subscriptions": [_listed(subscription) for subscription in page.subscriptions],
        "NextToken": None if position is None else token_behind(listing, str(position)),
    }


def _listed(subscription: Subscription) -> Members:
    return {
        "Owner": subscription.account_id,
        "Protocol": subscription.protocol,
        "Endpoint": without_password(subscription.endpoint),
        "SubscriptionArn": subscription.arn if subscription.is_confirmed else "PendingConfirmation",
        "TopicArn": subscription.topic_arn,
    }


BINDINGS: dict[str, Binding] = {
    "ConfirmSubscription": confirm_subscription,
    "GetSubscriptionAttributes": get_subscription_attributes,
    "ListSubscriptions": list_subscriptions,
    "ListSubscriptionsByTopic": list_subscriptions_by_topic,
    "SetSubscriptionAttributes": set_subscription_attributes,
    "Subscribe": subscribe,
    "Unsubscribe": unsubscribe,
}
