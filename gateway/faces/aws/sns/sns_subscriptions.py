"""SNS actions on subscriptions, and the endpoints that each protocol accepts (docs/contract/sns.md
3.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from queuegate.gateway.faces.aws.aws_face import AwsCall, Members
from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter, ValidationFailed
from queuegate.gateway.faces.aws.aws_rules import AWS, dead_letter_of
from queuegate.gateway.faces.aws.sns import subscription_attributes
from queuegate.gateway.faces.aws.sns.sns_members import find_topic, position_behind
from queuegate.gateway.faces.aws.sns.subscription_attributes import (
    REDRIVE,
    REPLAY,
    AttributeSubject,
)
from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics import mobile, topic_subscriptions
from queuegate.gateway.operations.topics.topic_cache import check_web_hook
from queuegate.gateway.operations.topics.topic_subscriptions import (
    Subscribe,
    SubscriptionChange,
    SubscriptionPage,
)
from queuegate.protocol import arns, names
from queuegate.protocol.malformed import refusing
from queuegate.protocol.opaque_tokens import token_behind
from queuegate.protocol.urls import WEB, without_password
from queuegate.storage.model import Topic, TopicSubscription
from queuegate.storage.storage_errors import (
    NotFound,
    SubscriptionExists,
    SubscriptionPending,
    TokenRefused,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller


MAIL = frozenset({"email", "email-json"})

_MAIL = re.compile(r"[^\s@\x00-\x1f\x7f]{1,64}@[^\s@\x00-\x1f\x7f]{1,255}")
_PHONE = re.compile(r"\+?[1-9][0-9]{1,14}")
_PHONE_PUNCTUATION = re.compile(r"[./-]")
_MISPLACED_PUNCTUATION = re.compile(r"[./-]{2}|^[./-]|[./-]$")
_FUNCTION = re.compile(r"function:[A-Za-z0-9_-]{1,140}(:[A-Za-z0-9_$-]{1,128})?")
_STREAM = re.compile(r"deliverystream/[A-Za-z0-9_.-]{1,64}")
_PUSH_ENDPOINT = re.compile(r"endpoint/[A-Za-z0-9_]{1,64}/[A-Za-z0-9_.-]{1,256}/[0-9a-fA-F-]{36}")


def check_endpoint(
    topic: Topic, protocol: str, endpoint: str, *, allow_private: bool = False
) -> None:
    """Refuse an endpoint that the protocol or this kind of topic cannot deliver to.

    ``allow_private`` accepts web hooks at private addresses. The endpoint need not exist. Raises
    InvalidParameter, WebHookRefused, AuthorizationError.
    """
    check = CHECKS.get(protocol)
    if check is None and protocol not in WEB:
        raise InvalidParameter(f"Amazon SNS does not support this protocol string: {protocol}")
    if topic.is_fifo and protocol != "sqs":
        raise InvalidParameter(f"Invalid protocol type: {protocol}")
    if check is None:
        check_web_hook(protocol, endpoint, allow_private=allow_private)
        return
    if len(endpoint) > LIMITS.endpoint_length or not endpoint.isprintable():
        # This refuses lone surrogates, too.
        raise InvalidParameter("Endpoint")
    check(endpoint)
    if protocol == "sqs" and endpoint.endswith(".fifo") and not topic.is_fifo:
        # AWS writes the prefix twice.
        raise InvalidParameter(
            "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to "
            "standard SNS topics"
        )


def log_endpoint(caller: Caller, topic: Topic, endpoint: str) -> str:
    """Return the log's ARN for the protocol ``log``, which AWS does not have. The log must be of
    the caller's account, and in account and region of the topic. Raises InvalidParameter."""
    arn = endpoint
    if names.is_standard_queue_name(endpoint):
        arn = arns.log_arn(topic.region, topic.account_id, endpoint)
    with refusing(InvalidParameter("Log endpoint ARN")):
        log = arns.parse_log(arn)
    place = (topic.account_id, topic.region)
    if (log.account_id, log.region) != place or caller.account_id != topic.account_id:
        raise InvalidParameter("Endpoint Reason: a log must be of the topic's account and region")
    return arns.log_arn(log.region, log.account_id, log.resource)


def is_confirmed_at_once(account_id: str, protocol: str, endpoint: str) -> bool:
    """Return True for phones and endpoints of the subscriber's own account: they need no
    confirmation."""
    if protocol in WEB or protocol in MAIL:
        return False
    return protocol == "sms" or arns.parse(endpoint).account_id == account_id


def _check_queue(endpoint: str) -> None:
    with refusing(InvalidParameter("SQS endpoint ARN")):
        arns.parse_queue(endpoint)


def _check_mail(endpoint: str) -> None:
    if _MAIL.fullmatch(endpoint) is None:
        raise InvalidParameter("Email address")


def _check_phone(endpoint: str) -> None:
    digits = _PHONE_PUNCTUATION.sub("", endpoint)
    if _MISPLACED_PUNCTUATION.search(endpoint) or _PHONE.fullmatch(digits) is None:
        raise InvalidParameter(f"Invalid SMS endpoint: {endpoint}", prefix="")


def _arn_check(service: str, resource: re.Pattern[str], text: str) -> Callable[[str], None]:
    def check(endpoint: str) -> None:
        with refusing(InvalidParameter(text)):
            arn = arns.parse(endpoint)
        whole = arn.service == service and arn.region and arn.account_id
        if not whole or resource.fullmatch(arn.resource) is None:
            raise InvalidParameter(text)

    return check


CHECKS: dict[str, Callable[[str], None]] = {
    "email": _check_mail,
    "email-json": _check_mail,
    "sms": _check_phone,
    "sqs": _check_queue,
    "application": _arn_check("sns", _PUSH_ENDPOINT, "Application endpoint ARN"),
    "lambda": _arn_check("lambda", _FUNCTION, "Lambda endpoint ARN"),
    "firehose": _arn_check("firehose", _STREAM, "Firehose endpoint ARN"),
}


_PENDING = "pending confirmation"
# AWS's tokens have had several lengths. All pass this check and are unknown.
_TOKEN = re.compile(r"[0-9A-Fa-f]{64,1024}")


def _checked_arn(subscription_arn: str | None) -> str:
    if subscription_arn is None:
        raise ValidationFailed("subscriptionArn")
    missing = arns.missing_elements(subscription_arn)
    if missing is not None:
        raise InvalidParameter(f"SubscriptionArn Reason: {missing}")
    with refusing(InvalidParameter("SubscriptionId")):
        arns.parse_subscription(subscription_arn)
    return subscription_arn


async def subscribe(call: AwsCall) -> Members:
    members, engine, caller = call.members, call.engine, call.caller
    topic = await find_topic(call)
    protocol, endpoint = call.required("Protocol"), members.get("Endpoint") or ""
    if protocol == "log":
        endpoint = log_endpoint(caller, topic, endpoint)
        authorization.check_right(engine, caller, authorization.PUBLISH_RECORDS, endpoint)
    else:
        check_endpoint(topic, protocol, endpoint, allow_private=engine.rules.private_webhooks)
    if protocol == "application" and await mobile.find_missing(engine, [endpoint]):
        # AWS writes no space after "arn".
        raise InvalidParameter(f"Endpoint does not exist for endpoint arn{endpoint}", prefix="")
    given: Mapping[str, str] = members.get("Attributes") or {}
    subject = AttributeSubject(
        topic, protocol, endpoint, engine.clock.of(topic.account_id).instant()
    )
    wanted = subscription_attributes.normalise(subject, given, {}, in_subscribe=True)
    if protocol == "sqs":
        authorization.check_copies(engine, caller, endpoint)
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


def _check_dead_letter(call: AwsCall, attributes: Mapping[str, str]) -> None:
    """Check the right to send to the dead-letter queue, which on AWS is in the subscription's
    account."""
    arn = dead_letter_of(attributes)
    if arn is None:
        return
    if arns.parse(arn).account_id == call.caller.account_id:
        authorization.check_copies(call.engine, call.caller, arn)
    else:
        authorization.check_right(call.engine, call.caller, authorization.SEND, arn)


async def confirm_subscription(call: AwsCall) -> Members:
    members, is_signed = call.members, not call.caller.is_anonymous
    with refusing(InvalidParameter("Topic")):
        arn = arns.parse_subscribed(call.required("TopicArn"))
    token = call.required("Token")
    if _TOKEN.fullmatch(token) is None:
        raise InvalidParameter("Invalid token", prefix="")
    # Callers without credentials may confirm, but cannot require authentication.
    wants_authentication = (members.get("AuthenticateOnUnsubscribe") or "").lower() == "true"
    try:
        subscription_arn = await topic_subscriptions.confirm(
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


async def unsubscribe(call: AwsCall) -> None:
    """Unsubscribe. An absent subscription is no error."""
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


async def get_subscription_attributes(call: AwsCall) -> Members:
    arn = _checked_arn(call.members.get("SubscriptionArn"))
    found = await topic_subscriptions.find(call.engine, arn)
    return {"Attributes": subscription_attributes.read(*found)}


async def set_subscription_attributes(call: AwsCall) -> None:
    members, engine = call.members, call.engine
    subscription_arn = members.get("SubscriptionArn")
    name, value = members.get("AttributeName", ""), members.get("AttributeValue") or ""
    if subscription_arn is not None and "AttributeName" not in members:
        raise ValidationFailed("attributeName")
    arn = _checked_arn(subscription_arn)
    present = engine.clock.of_arn(arn).instant()

    def work_out(subscription: TopicSubscription, topic: Topic) -> SubscriptionChange:
        subject = AttributeSubject(topic, subscription.protocol, subscription.endpoint, present)
        attributes = subscription_attributes.normalise(
            subject, {name: value}, subscription.attributes
        )
        if name == REDRIVE:
            _check_dead_letter(call, attributes)
        if name != REPLAY:
            return SubscriptionChange(attributes)
        return SubscriptionChange(attributes, True, subscription_attributes.replay_of(attributes))

    await topic_subscriptions.change(engine, arn, work_out, base_url=call.request.links_url)


async def list_subscriptions(call: AwsCall) -> Members:
    page = await topic_subscriptions.list_of_account(
        call.engine,
        call.caller,
        after_position=position_behind("subscriptions", call.members.get("NextToken")),
        limit=AWS.subscriptions_page,
    )
    return _page("subscriptions", page)


async def list_subscriptions_by_topic(call: AwsCall) -> Members:
    """List a page of the topic's subscriptions. A page with the subscription of a deleted push
    endpoint has a NextToken, as on AWS (docs/contract/sns.md 3.4)."""
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


def _listed(subscription: TopicSubscription) -> Members:
    return {
        "Owner": subscription.account_id,
        "Protocol": subscription.protocol,
        "Endpoint": without_password(subscription.endpoint),
        "SubscriptionArn": subscription.arn if subscription.is_confirmed else "PendingConfirmation",
        "TopicArn": subscription.topic_arn,
    }
