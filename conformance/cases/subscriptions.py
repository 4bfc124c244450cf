"""SNS: subscriptions, how they are confirmed, and their attributes."""

from __future__ import annotations

import json
from typing import Any

import xmltodict

from conformance import web_hooks
from conformance.casebook import Cases
from conformance.driving import Client, expect, expect_refusal

CASES = Cases()
case = CASES.case

_PENDING = "pending confirmation"


def _listed(client: Client, action: str, **members: Any) -> list[dict[str, str]]:
    page = client.sns(action, **members)
    found: list[dict[str, str]] = page.get("Subscriptions", [])
    while page.get("NextToken"):
        page = client.sns(action, NextToken=page["NextToken"], **members)
        found += page["Subscriptions"]
    return found


@case(brief=True)
def a_queue_is_subscribed_listed_and_unsubscribed(client: Client) -> None:
    topic, queue = client.topic(), client.queue()
    arn = client.subscribed(topic, queue)
    expect(arn.startswith(topic + ":") and len(arn) == len(topic) + 37, True, f"ARN {arn}")
    wanted = {
        "SubscriptionArn": arn,
        "Owner": topic.split(":")[4],
        "Protocol": "sqs",
        "Endpoint": client.queue_arn(queue),
        "TopicArn": topic,
    }
    expect(_listed(client, "ListSubscriptionsByTopic", TopicArn=topic), [wanted])
    expect(wanted in _listed(client, "ListSubscriptions"), True, "listed")
    found = client.subscription_attributes(arn)
    order = ("SubscriptionPrincipal", "Owner", "RawMessageDelivery", "TopicArn", "Endpoint")
    if client.is_ordered:
        expect(tuple(found)[:5], order)
    expect(found.pop("SubscriptionPrincipal").startswith("arn:aws:iam::"), True)
    expect(
        found,
        wanted
        | {
            "RawMessageDelivery": "false",
            "PendingConfirmation": "false",
            "ConfirmationWasAuthenticated": "true",
        },
    )
    expect(client.topic_attributes(topic)["SubscriptionsConfirmed"], "1")
    expect(client.sns("Unsubscribe", SubscriptionArn=arn), {})
    expect(client.sns("Unsubscribe", SubscriptionArn=arn), {})
    expect(_listed(client, "ListSubscriptionsByTopic", TopicArn=topic), [])
    refused = client.sns_refusal("GetSubscriptionAttributes", SubscriptionArn=arn)
    text = "Subscription does not exist"
    expect_refusal(refused, "NotFound", text=text, status=404, exception="NotFoundException")


@case()
def the_same_subscription_again(client: Client) -> None:
    topic, queue = client.topic(), client.queue()
    arn = client.subscribed(topic, queue, RawMessageDelivery="true")
    expect(client.subscribed(topic, queue, RawMessageDelivery="true"), arn)
    expect(client.subscribed(topic, queue), arn)
    endpoint = client.queue_arn(queue)
    refused = client.sns_refusal(
        "Subscribe",
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=endpoint,
        Attributes={"RawMessageDelivery": "false"},
    )
    text = (
        "Invalid parameter: Attributes Reason: Subscription already exists with different "
        "attributes"
    )
    expect_refusal(refused, "InvalidParameter", text=text)


@case(brief=True)
def attributes_of_a_subscription_read_back(client: Client) -> None:
    arn = client.subscribed(client.topic(), client.queue())
    dead = json.dumps({"deadLetterTargetArn": client.queue_arn(client.queue())})
    attributes = {
        "RawMessageDelivery": "true",
        "FilterPolicy": '{"color":["blue"]}',
        "FilterPolicyScope": "MessageBody",
        "RedrivePolicy": dead,
    }
    for name, value in attributes.items():
        members = {"SubscriptionArn": arn, "AttributeName": name, "AttributeValue": value}
        expect(client.sns("SetSubscriptionAttributes", **members), {})
    found = client.subscription_attributes(arn)
    expect({name: found.get(name) for name in attributes}, attributes)


@case()
def a_filter_policy_is_removed(client: Client) -> None:
    arn = client.subscribed(client.topic(), client.queue(), FilterPolicy='{"a":["b"]}')
    expect(client.subscription_attributes(arn)["FilterPolicyScope"], "MessageAttributes")
    members = {"SubscriptionArn": arn, "AttributeName": "FilterPolicy", "AttributeValue": "{}"}
    client.sns("SetSubscriptionAttributes", **members)
    found = client.subscription_attributes(arn)
    expect([name for name in found if name.startswith("Filter")], [])


@case()
def delivery_policy_of_a_subscription(client: Client) -> None:
    members: dict[str, Any] = {"TopicArn": client.topic(), "Protocol": "https"}
    members |= {"Endpoint": "https://example.invalid/hook", "ReturnSubscriptionArn": True}
    arn = client.sns("Subscribe", **members)["SubscriptionArn"]
    effective = json.loads(client.subscription_attributes(arn)["EffectiveDeliveryPolicy"])
    expect(effective["healthyRetryPolicy"]["numRetries"], 3)
    policy = {"throttlePolicy": {"maxReceivesPerSecond": 7}}
    change = {"AttributeName": "DeliveryPolicy", "AttributeValue": json.dumps(policy)}
    expect(client.sns("SetSubscriptionAttributes", SubscriptionArn=arn, **change), {})
    found = client.subscription_attributes(arn)
    stored = json.loads(found["DeliveryPolicy"])
    expect(stored["throttlePolicy"], policy["throttlePolicy"])
    expect((stored["healthyRetryPolicy"], stored["guaranteed"]), (None, False))
    effective = json.loads(found["EffectiveDeliveryPolicy"])
    expect(effective["throttlePolicy"], policy["throttlePolicy"])
    expect(effective["healthyRetryPolicy"]["numRetries"], 3)


@case()
def pages_of_subscriptions(client: Client) -> None:
    topic = client.topic()
    start = client.queue_arn(client.queue())
    for number in range(101):
        members = {"Protocol": "sqs", "Endpoint": f"{start}-{number}"}
        client.sns("Subscribe", TopicArn=topic, **members)
    first = client.sns("ListSubscriptionsByTopic", TopicArn=topic)
    expect(len(first["Subscriptions"]), 100)
    found = _listed(client, "ListSubscriptionsByTopic", TopicArn=topic)
    expect(len({item["SubscriptionArn"] for item in found}), 101)
    expect(len(_listed(client, "ListSubscriptions")) >= 101, True)
    expect(client.topic_attributes(topic)["SubscriptionsConfirmed"], "101")
    client.sns("DeleteTopic", TopicArn=topic)


@case()
def attributes_that_no_subscription_may_have(client: Client) -> None:
    arn = client.subscribed(client.topic(), client.queue())
    raw = "RawMessageDelivery: Invalid value [x]. Must be true or false."
    scope = (
        "FilterPolicyScope: Invalid value [x]. Please use either MessageBody or MessageAttributes"
    )
    dead = "RedrivePolicy: deadLetterTargetArn is an invalid arn"
    table = [
        ("Nonsense", "x", "AttributeName"),
        ("RawMessageDelivery", "x", raw),
        ("FilterPolicyScope", "x", scope),
        ("RedrivePolicy", '{"deadLetterTargetArn":"x"}', dead),
        ("DeliveryPolicy", '{"healthyRetryPolicy":{"numRetries":3}}', ""),
        ("FilterPolicy", '{"a":[{"wildcard":"x*"}]}', ""),
        ("FilterPolicy", '{"a":["b"],"b":["c"],"c":["c"],"d":["d"],"e":["e"],"f":["f"]}', ""),
    ]
    for name, value, reason in table:
        members = {"SubscriptionArn": arn, "AttributeName": name, "AttributeValue": value}
        refused = client.sns_refusal("SetSubscriptionAttributes", **members)
        text = f"Invalid parameter: {reason}" if reason else ""
        exception = "InvalidParameterException"
        expect_refusal(refused, "InvalidParameter", text=text, exception=exception)


@case()
def subscriptions_that_cannot_be(client: Client) -> None:
    topic = client.topic()
    queue = client.queue_arn(client.queue())
    fifo = client.queue_arn(client.queue(".fifo"))
    missing = topic + "-missing"
    invalid = "InvalidParameter"
    of_fifo = (
        "Invalid parameter: Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be "
        "subscribed to standard SNS topics"
    )
    protocol = "Invalid parameter: Amazon SNS does not support this protocol string: pigeon"
    elements = "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1"
    table = [
        (topic, "pigeon", "x", invalid, protocol),
        (topic, "sqs", "http://x/0/q", invalid, "Invalid parameter: SQS endpoint ARN"),
        (topic, "sqs", fifo, invalid, of_fifo),
        (topic, "https", "http://example.com/", invalid, ""),
        (topic, "sms", "not-a-number", invalid, ""),
        ("garbage", "sqs", queue, invalid, elements),
        (missing, "sqs", queue, "NotFound", "Topic does not exist"),
    ]
    for arn, wire, endpoint, code, text in table:
        refused = client.sns_refusal("Subscribe", TopicArn=arn, Protocol=wire, Endpoint=endpoint)
        status = 404 if code == "NotFound" else 400
        expect_refusal(refused, code, text=text, status=status)


@case()
def subscriptions_that_cannot_be_ended(client: Client) -> None:
    topic = client.topic()
    few = "Invalid parameter: SubscriptionArn Reason: An ARN must have at least 6 elements, not 1"
    table = [("garbage", few), (topic + ":x", "Invalid parameter: SubscriptionId")]
    for arn, text in table:
        refused = client.sns_refusal("Unsubscribe", SubscriptionArn=arn)
        expect_refusal(refused, "InvalidParameter", text=text)


@case()
def an_unconfirmed_subscription(client: Client) -> None:
    topic = client.topic()
    members = {"TopicArn": topic, "Protocol": "email", "Endpoint": "someone@example.com"}
    expect(client.sns("Subscribe", **members), {"SubscriptionArn": _PENDING})
    result = client.sns("Subscribe", ReturnSubscriptionArn=True, **members)
    arn = result["SubscriptionArn"]
    expect(arn.startswith(topic + ":"), True, f"ARN {arn}")
    [listed] = _listed(client, "ListSubscriptionsByTopic", TopicArn=topic)
    expect(listed["SubscriptionArn"], "PendingConfirmation")
    found = client.subscription_attributes(arn)
    expect(found["PendingConfirmation"], "true")
    expect(found["ConfirmationWasAuthenticated"], "false")
    expect(client.topic_attributes(topic)["SubscriptionsPending"], "1")
    refused = client.sns_refusal("Unsubscribe", SubscriptionArn=arn)
    expect_refusal(refused, "InvalidParameter")


@case(brief=True)
def a_web_hook_is_confirmed_by_its_token(client: Client) -> None:
    topic = client.topic()
    with web_hooks.listening() as hook:
        members: dict[str, Any] = {"TopicArn": topic, "Protocol": "http", "Endpoint": hook.url}
        arn = client.sns("Subscribe", ReturnSubscriptionArn=True, **members)["SubscriptionArn"]
        asked = hook.next("SubscriptionConfirmation")
        expect(asked.headers["content-type"], "text/plain; charset=UTF-8")
        expect(asked.headers["user-agent"], "Amazon Simple Notification Service Agent")
        expect(asked.headers["x-amz-sns-topic-arn"], topic)
        expect("x-amz-sns-subscription-arn" in asked.headers, False)
        message = asked.message
        order = ("Type", "MessageId", "Token", "TopicArn", "Message", "SubscribeURL", "Timestamp")
        expect(tuple(message)[: len(order)], order)
        expect(asked.headers["x-amz-sns-message-id"], message["MessageId"])
        confirm = {"TopicArn": topic, "Token": message["Token"]}
        expect(client.sns("ConfirmSubscription", **confirm), {"SubscriptionArn": arn})
        expect(client.sns("ConfirmSubscription", **confirm), {"SubscriptionArn": arn})
        expect(client.subscription_attributes(arn)["PendingConfirmation"], "false")
        published = client.sns("Publish", TopicArn=topic, Message="żółć", Subject="s")
        delivery = hook.next("Notification")
        expect(delivery.headers["x-amz-sns-subscription-arn"], arn)
        expect(delivery.headers["x-amz-sns-message-id"], published["MessageId"])
        expect(delivery.message["Message"], "żółć")
        expect(client.sns("Unsubscribe", SubscriptionArn=arn), {})


@case()
def a_web_hook_follows_its_links(client: Client) -> None:
    topic = client.topic()
    with web_hooks.listening() as hook:
        members = {"TopicArn": topic, "Protocol": "http", "Endpoint": hook.url}
        expect(client.sns("Subscribe", **members), {"SubscriptionArn": _PENDING})
        link = hook.next("SubscriptionConfirmation").message["SubscribeURL"]
        expect("Action=ConfirmSubscription&TopicArn=arn:aws:sns:" in link, True, link)
        answered = xmltodict.parse(web_hooks.visit(link))["ConfirmSubscriptionResponse"]
        arn = answered["ConfirmSubscriptionResult"]["SubscriptionArn"]
        expect(arn.startswith(topic + ":"), True, arn)
        client.sns("Publish", TopicArn=topic, Message="m")
        link = hook.next("Notification").message["UnsubscribeURL"]
        expect([*xmltodict.parse(web_hooks.visit(link))], ["UnsubscribeResponse"])
        farewell = hook.next("UnsubscribeConfirmation").message
        expect(farewell["Message"].startswith("You have chosen to deactivate"), True)
        expect(_listed(client, "ListSubscriptionsByTopic", TopicArn=topic), [])
        web_hooks.visit(farewell["SubscribeURL"])
        expect(len(_listed(client, "ListSubscriptionsByTopic", TopicArn=topic)), 1)


@case()
def an_unsubscribe_that_must_be_signed(client: Client) -> None:
    topic = client.topic()
    with web_hooks.listening() as hook:
        members = {"TopicArn": topic, "Protocol": "http", "Endpoint": hook.url}
        client.sns("Subscribe", **members)
        token = hook.next("SubscriptionConfirmation").message["Token"]
        confirm = {"TopicArn": topic, "Token": token, "AuthenticateOnUnsubscribe": "true"}
        arn = client.sns("ConfirmSubscription", **confirm)["SubscriptionArn"]
        expect(client.subscription_attributes(arn)["ConfirmationWasAuthenticated"], "true")
        client.sns("Publish", TopicArn=topic, Message="m")
        status, text = web_hooks.follow(hook.next("Notification").message["UnsubscribeURL"])
        refused = xmltodict.parse(text)["ErrorResponse"]["Error"]["Code"]
        expect((status, refused), (403, "AuthorizationError"), text)
        expect(client.sns("Unsubscribe", SubscriptionArn=arn), {})
        expect(_listed(client, "ListSubscriptionsByTopic", TopicArn=topic), [])


@case()
def tokens_that_are_none(client: Client) -> None:
    topic = client.topic()
    refused = client.sns_refusal("ConfirmSubscription", TopicArn=topic)
    text = (
        "1 validation error detected: Value null at 'token' failed to satisfy constraint: "
        "Member must not be null"
    )
    expect_refusal(refused, "ValidationError", text=text)
    refused = client.sns_refusal("ConfirmSubscription", TopicArn=topic, Token="nonsense")
    expect_refusal(refused, "InvalidParameter", exception="InvalidParameterException")
