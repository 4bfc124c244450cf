"""SNS actions on subscriptions: action -> binding. Decoded members in, response members out."""

from __future__ import annotations

from gateway.faces.aws.face import Binding, Call, Members
from gateway.operations.topics import confirmations, subscription_endings, subscriptions
from protocol.endpoint_urls import without_password
from storage.model import Subscription


async def subscribe(call: Call) -> Members:
    members = call.members
    request = subscriptions.Subscribe(
        members.get("TopicArn"),
        members.get("Protocol"),
        members.get("Endpoint"),
        call.request.links_url,
        members.get("Attributes") or {},
        bool(members.get("ReturnSubscriptionArn")),
    )
    return {"SubscriptionArn": await subscriptions.subscribe(call.engine, call.caller, request)}


async def confirm_subscription(call: Call) -> Members:
    members = call.members
    request = confirmations.ConfirmSubscription(
        members.get("TopicArn"), members.get("Token"), members.get("AuthenticateOnUnsubscribe")
    )
    arn = await confirmations.confirm_subscription(call.engine, call.caller, request)
    return {"SubscriptionArn": arn}


async def unsubscribe(call: Call) -> None:
    request = subscription_endings.Unsubscribe(
        call.members.get("SubscriptionArn"), call.request.links_url
    )
    await subscription_endings.unsubscribe(call.engine, call.caller, request)


async def get_subscription_attributes(call: Call) -> Members:
    request = subscriptions.GetSubscriptionAttributes(call.members.get("SubscriptionArn"))
    found = await subscriptions.get_subscription_attributes(call.engine, call.caller, request)
    return {"Attributes": found}


async def set_subscription_attributes(call: Call) -> None:
    members = call.members
    request = subscriptions.SetSubscriptionAttributes(
        members.get("SubscriptionArn"),
        members.get("AttributeName"),
        members.get("AttributeValue"),
        call.request.links_url,
    )
    await subscriptions.set_subscription_attributes(call.engine, call.caller, request)


async def list_subscriptions(call: Call) -> Members:
    request = subscriptions.ListSubscriptions(call.members.get("NextToken"))
    return _page(await subscriptions.list_subscriptions(call.engine, call.caller, request))


async def list_subscriptions_by_topic(call: Call) -> Members:
    members = call.members
    request = subscriptions.ListSubscriptionsByTopic(
        members.get("TopicArn"), members.get("NextToken")
    )
    page = await subscriptions.list_subscriptions_by_topic(call.engine, call.caller, request)
    return _page(page)


def _page(page: subscriptions.SubscriptionPage) -> Members:
    return {
        "Subscriptions": [_listed(subscription) for subscription in page.subscriptions],
        "NextToken": page.next_token,
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
