"""Subscriptions over both wires: recorded texts, attributes and lists."""

from __future__ import annotations

import json
import re

import pytest

from tests.faces.clients import Refused
from tests.faces.servers import Server
from tests.faces.sns_client import Sns

REGION = "us-east-1"
INVALID = "Invalid parameter: "
IN_ATTRIBUTES = f"{INVALID}Attributes Reason: "
PRINCIPAL = "arn:aws:iam::{0}:user/{0}"


@pytest.fixture
def topic(sns: Sns) -> str:
    return sns.create()


def queue_arn(sns: Sns, name: str = "orders") -> str:
    return f"arn:aws:sqs:{REGION}:{sns.account}:{name}"


def assert_invalid(refused: Refused, text: str) -> None:
    assert (refused.status, refused.code, refused.text) == (400, "InvalidParameter", text)
    assert refused.fault == "Sender"


def test_queue_is_confirmed_at_once(sns: Sns, topic: str) -> None:
    members = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": queue_arn(sns)}

    arn = sns.call("Subscribe", **members)["SubscriptionArn"]

    assert re.fullmatch(re.escape(topic) + ":[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", arn)
    assert sns.call("Subscribe", **members) == {"SubscriptionArn": arn}
    assert list(sns.subscription(arn).items()) == [
        ("SubscriptionPrincipal", PRINCIPAL.format(sns.account)),
        ("Owner", sns.account),
        ("RawMessageDelivery", "false"),
        ("TopicArn", topic),
        ("Endpoint", queue_arn(sns)),
        ("Protocol", "sqs"),
        ("PendingConfirmation", "false"),
        ("ConfirmationWasAuthenticated", "true"),
        ("SubscriptionArn", arn),
    ]
    counts = sns.attributes(topic)
    assert (counts["SubscriptionsConfirmed"], counts["SubscriptionsPending"]) == ("1", "0")


def test_mail_is_pending(sns: Sns, topic: str) -> None:
    members = {"TopicArn": topic, "Protocol": "email", "Endpoint": "reader@example.com"}

    assert sns.call("Subscribe", **members) == {"SubscriptionArn": "pending confirmation"}
    arn = sns.call("Subscribe", **members, ReturnSubscriptionArn=True)["SubscriptionArn"]

    assert arn.startswith(f"{topic}:")
    assert sns.subscription(arn)["PendingConfirmation"] == "true"
    assert sns.attributes(topic)["SubscriptionsPending"] == "1"
    [listed] = sns.call("ListSubscriptionsByTopic", TopicArn=topic)["Subscriptions"]
    assert listed["SubscriptionArn"] == "PendingConfirmation"
    refused = sns.refusal("Unsubscribe", SubscriptionArn=arn)
    assert (refused.status, refused.code) == (400, "InvalidParameter")


@pytest.mark.parametrize(
    ("protocol", "endpoint", "attributes", "is_pending"),
    [
        ("lambda", f"arn:aws:lambda:{REGION}:A:function:handle", {}, False),
        ("sms", "+15551234567", {}, False),
        (
            "firehose",
            f"arn:aws:firehose:{REGION}:A:deliverystream/all",
            {"SubscriptionRoleArn": "arn:aws:iam::111122223333:role/firehose"},
            False,
        ),
        ("http", "http://127.0.0.1:9/never?b=c", {}, True),
        ("https", "https://127.0.0.1:9/never", {}, True),
        ("email-json", "reader@example.com", {}, True),
    ],
)
def test_own_endpoints_are_confirmed_at_once_and_others_asked(
    sns: Sns, topic: str, protocol: str, endpoint: str, attributes: dict[str, str], is_pending: bool
) -> None:
    endpoint = endpoint.replace(":A:", f":{sns.account}:")
    members = {"TopicArn": topic, "Protocol": protocol, "Endpoint": endpoint}
    answer = sns.call("Subscribe", **members, Attributes=attributes)["SubscriptionArn"]
    arn = sns.subscribe(topic, protocol, endpoint, **attributes)
    assert answer == ("pending confirmation" if is_pending else arn)
    found = sns.subscription(arn)
    assert (found["Protocol"], found["Endpoint"]) == (protocol, endpoint)
    assert found["PendingConfirmation"] == str(is_pending).lower()
    assert found["ConfirmationWasAuthenticated"] == str(not is_pending).lower()


def test_lists(sns: Sns, topic: str) -> None:
    assert sns.call("ListSubscriptions") == {"Subscriptions": []}
    other = sns.create("other")
    mine = {"Owner": sns.account, "Protocol": "sqs"}
    expected = []
    for topic_arn, name in ((topic, "a"), (other, "b"), (topic, "c")):
        arn = sns.subscribe(topic_arn, "sqs", queue_arn(sns, name))
        endpoint = {"Endpoint": queue_arn(sns, name), "TopicArn": topic_arn}
        expected.append({**mine, **endpoint, "SubscriptionArn": arn})

    with sns.other(account="999988887777") as stranger:
        policy = {"Effect": "Allow", "Principal": "*", "Action": "SNS:Subscribe", "Resource": "*"}
        sns.set(topic, "Policy", json.dumps({"Statement": [policy]}))
        theirs = stranger.subscribe(topic, "sqs", queue_arn(stranger))
    with sns.other(region="eu-west-1") as elsewhere:
        assert elsewhere.call("ListSubscriptions") == {"Subscriptions": []}
    assert sns.call("ListSubscriptions") == {"Subscriptions": expected}
    of_topic = sns.call("ListSubscriptionsByTopic", TopicArn=topic)["Subscriptions"]
    assert of_topic[:2] == [expected[0], expected[2]]
    assert [one["SubscriptionArn"] for one in of_topic[2:]] == [theirs]


def pages(sns: Sns, action: str, **members: str) -> list[list[str]]:
    """Return the ARNs on all pages of a list of subscriptions."""
    found: list[list[str]] = []
    more: dict[str, str] = {}
    while not found or more:
        page = sns.call(action, **members, **more)
        found.append([one["SubscriptionArn"] for one in page["Subscriptions"]])
        more = {"NextToken": page["NextToken"]} if "NextToken" in page else {}
    return found


def test_pages_of_a_hundred(query_sns: Sns) -> None:
    sns = query_sns
    topic = sns.create()
    arns = [sns.subscribe(topic, "sms", f"+1555{number:07}") for number in range(201)]
    lists: list[tuple[str, dict[str, str]]] = [
        ("ListSubscriptions", {}),
        ("ListSubscriptionsByTopic", {"TopicArn": topic}),
    ]
    for action, members in lists:
        assert pages(sns, action, **members) == [arns[:100], arns[100:200], arns[200:]]
        for token in ("x", "é", "a" * 300, "c3Vic2NyaXB0aW9uczo=", "\0"):
            refused = sns.refusal(action, **members, NextToken=token)
            assert_invalid(refused, f"{INVALID}NextToken")
    sns.call("Unsubscribe", SubscriptionArn=arns.pop())
    for action, members in lists:
        assert pages(sns, action, **members) == [arns[:100], arns[100:]]


def test_attributes_of_a_web_hook_in_order(sns: Sns, topic: str) -> None:
    dead = json.dumps({"deadLetterTargetArn": queue_arn(sns, "dead")})
    arn = sns.subscribe(
        topic,
        "https",
        "https://127.0.0.1:9/never",
        RawMessageDelivery="TRUE",
        FilterPolicy='{"car": {"colour": ["blue"]}}',
        FilterPolicyScope="MessageBody",
        RedrivePolicy=dead,
        DeliveryPolicy=DELIVERY,
    )

    found = sns.subscription(arn)
    assert (found["RawMessageDelivery"], found["RedrivePolicy"]) == ("true", dead)
    assert found["FilterPolicy"] == '{"car": {"colour": ["blue"]}}'
    assert json.loads(found["DeliveryPolicy"])["guaranteed"] is False
    assert json.loads(found["EffectiveDeliveryPolicy"])["healthyRetryPolicy"]["numRetries"] == 5
    assert list(found) == [
        "SubscriptionPrincipal",
        "Owner",
        "RawMessageDelivery",
        "FilterPolicy",
        "TopicArn",
        "Endpoint",
        "EffectiveDeliveryPolicy",
        "DeliveryPolicy",
        "FilterPolicyScope",
        "Protocol",
        "PendingConfirmation",
        "ConfirmationWasAuthenticated",
        "SubscriptionArn",
        "RedrivePolicy",
    ]
    for name in ("FilterPolicy", "RedrivePolicy", "DeliveryPolicy"):
        members = {"SubscriptionArn": arn, "AttributeName": name, "AttributeValue": ""}
        assert sns.call("SetSubscriptionAttributes", **members) == {}
        assert name not in sns.subscription(arn)
    assert "FilterPolicyScope" not in sns.subscription(arn)


def test_subscribing_twice(sns: Sns, topic: str) -> None:
    queue, policy = queue_arn(sns), '{"colour": ["blue"]}'
    attributes = {"RawMessageDelivery": "true", "FilterPolicy": policy}
    arn = sns.subscribe(topic, "sqs", queue, **attributes)
    for same in (
        {},
        attributes,
        {"RawMessageDelivery": "TRUE"},
        {"FilterPolicy": '{ "colour" : ["blue"] }'},
        {"FilterPolicyScope": "MessageAttributes"},
    ):
        assert sns.subscribe(topic, "sqs", queue, **same) == arn
    members = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": queue}
    for other in (
        {"RawMessageDelivery": "false"},
        {"FilterPolicy": '{"colour": ["red"]}'},
        {"FilterPolicy": "{}"},
        {"FilterPolicyScope": "MessageBody"},
        {"RedrivePolicy": json.dumps({"deadLetterTargetArn": queue_arn(sns, "dead")})},
    ):
        assert_invalid(
            sns.refusal("Subscribe", **members, Attributes=other),
            f"{IN_ATTRIBUTES}Subscription already exists with different attributes",
        )
    assert pages(sns, "ListSubscriptionsByTopic", TopicArn=topic) == [[arn]]


@pytest.mark.parametrize(
    ("protocol", "endpoint", "text"),
    [
        ("ftp", "x", f"{INVALID}Amazon SNS does not support this protocol string: ftp"),
        ("sqs", f"http://localhost/{'1' * 12}/orders", f"{INVALID}SQS endpoint ARN"),
        (
            "sqs",
            f"arn:aws:sqs:{REGION}:{'1' * 12}:orders.fifo",
            f"{INVALID}{INVALID}Endpoint Reason: FIFO SQS Queues can not be subscribed to "
            "standard SNS topics",
        ),
        (
            "http",
            "https://hooks.example",
            f"{INVALID}Endpoint must match the specified protocol",
        ),
        ("sms", "NAA+15551234567", "Invalid SMS endpoint: NAA+15551234567"),
        ("email", "reader", f"{INVALID}Email address"),
    ],
)
def test_refused_endpoints(sns: Sns, topic: str, protocol: str, endpoint: str, text: str) -> None:
    members = {"TopicArn": topic, "Protocol": protocol, "Endpoint": endpoint}
    assert_invalid(sns.refusal("Subscribe", **members), text)
    assert sns.call("ListSubscriptionsByTopic", TopicArn=topic)["Subscriptions"] == []


def test_fifo_topic_takes_queues_only(sns: Sns) -> None:
    topic = sns.create_fifo()
    members = {"TopicArn": topic, "Protocol": "sms", "Endpoint": "+15551234567"}
    assert_invalid(sns.refusal("Subscribe", **members), f"{INVALID}Invalid protocol type: sms")
    sns.subscribe(topic, "sqs", queue_arn(sns, "orders.fifo"))
    sns.subscribe(topic, "sqs", queue_arn(sns))


def test_inside_addresses_are_refused_where_the_gateway_says_so() -> None:
    with Server(QUEUEGATE_PRIVATE_WEBHOOKS="false") as server, Sns("query", server.url) as sns:
        members = {"TopicArn": sns.create(), "Protocol": "http"}
        for host in ("localhost", "127.0.0.1", "[::1]", "169.254.169.254", "0x7f.1"):
            refused = sns.refusal("Subscribe", **members, Endpoint=f"http://{host}/hook")
            assert (refused.status, refused.code) == (403, "AuthorizationError")
        sns.call("Subscribe", **members, Endpoint="http://hooks.invalid/hook")


def test_a_filter_policy_may_have_256_kb_however_it_is_encoded(sns: Sns, topic: str) -> None:
    policy = '{"k": ["' + "%" * (256 * 1024 - 11) + '"]}'
    arn = sns.subscribe(topic, "sqs", queue_arn(sns), FilterPolicy=policy)
    assert sns.subscription(arn)["FilterPolicy"] == policy
    sns.call(
        "SetSubscriptionAttributes",
        SubscriptionArn=arn,
        AttributeName="FilterPolicy",
        AttributeValue=policy.replace("%", "&"),
    )


DELIVERY = '{"healthyRetryPolicy": {"numRetries": 5}}'
FIFO_REDRIVE = '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:111122223333:dead.fifo"}'
REFUSED = [
    ("Colour", "blue", "AttributeName"),
    ("TopicArn", "arn", "AttributeName"),
    ("", "", "AttributeName"),
    (
        "RawMessageDelivery",
        "maybe",
        "RawMessageDelivery: Invalid value [maybe]. Must be true or false.",
    ),
    ("RawMessageDelivery", "", "RawMessageDelivery: Invalid value []. Must be true or false."),
    (
        "FilterPolicyScope",
        "Body",
        "FilterPolicyScope: Invalid value [Body]. Please use either MessageBody or "
        "MessageAttributes",
    ),
    (
        "FilterPolicyScope",
        "",
        "FilterPolicyScope: Invalid value []. Please use either MessageBody or MessageAttributes",
    ),
    (
        "FilterPolicy",
        "blue",
        "FilterPolicy: failed to parse JSON. Unrecognized token 'blue': was expecting (JSON "
        "String, Number, Array, Object or token 'null', 'true' or 'false')\n at [Source: REDACTED "
        "(`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled); line: 1, column: 5]",
    ),
    ("RedrivePolicy", "blue", "RedrivePolicy: failed to parse JSON."),
    ("RedrivePolicy", "[]", "RedrivePolicy: failed to parse JSON."),
    ("RedrivePolicy", "[" * 5000, "RedrivePolicy: failed to parse JSON."),
    ("RedrivePolicy", "{" + " " * 10_240, "RedrivePolicy: longer than 10240 characters"),
    ("RedrivePolicy", "{", "RedrivePolicy: failed to parse JSON."),
    ("ReplayPolicy", "{" + " " * 10_240, "ReplayPolicy: longer than 10240 characters"),
    (
        "RedrivePolicy",
        '{"deadLetterTargetArn": "dead"}',
        "RedrivePolicy: deadLetterTargetArn is an invalid arn",
    ),
    (
        "RedrivePolicy",
        '{"deadLetterTargetArn": 5}',
        "RedrivePolicy: deadLetterTargetArn is an invalid arn",
    ),
    ("RedrivePolicy", '{"a": 1}', "RedrivePolicy: deadLetterTargetArn is an invalid arn"),
    (
        "RedrivePolicy",
        FIFO_REDRIVE,
        "RedrivePolicy: must use a standard queue as DLQ for a Subscription to a standard Topic.",
    ),
    (
        "DeliveryPolicy",
        DELIVERY,
        "DeliveryPolicy: Delivery protocol [sqs] does not support a delivery policy.",
    ),
    (
        "SubscriptionRoleArn",
        "arn:aws:iam::111122223333:role/r",
        "SubscriptionRoleArn: only firehose subscriptions have a role",
    ),
    (
        "ReplayPolicy",
        "x",
        "ReplayPolicy: only subscriptions of queues to FIFO topics with an ArchivePolicy have one",
    ),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED, ids=lambda value: value[:20])
def test_refused_attributes(sns: Sns, topic: str, name: str, value: str, reason: str) -> None:
    if value == FIFO_REDRIVE:
        value = value.replace("111122223333", sns.account)
    other = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": queue_arn(sns, "other")}
    refused = sns.refusal("Subscribe", **other, Attributes={name: value})
    assert_invalid(refused, f"{IN_ATTRIBUTES}{reason}")
    arn = sns.subscribe(topic, "sqs", queue_arn(sns))
    before = sns.subscription(arn)
    members = {"SubscriptionArn": arn, "AttributeName": name, "AttributeValue": value}
    assert_invalid(sns.refusal("SetSubscriptionAttributes", **members), f"{INVALID}{reason}")
    assert sns.subscription(arn) == before
    [listed] = sns.call("ListSubscriptionsByTopic", TopicArn=topic)["Subscriptions"]
    assert listed["SubscriptionArn"] == arn


def set_attribute(sns: Sns, arn: str, name: str, value: str | None) -> None:
    members = {"AttributeValue": value} if value is not None else {}
    sns.call("SetSubscriptionAttributes", SubscriptionArn=arn, AttributeName=name, **members)


@pytest.mark.parametrize("nothing", ["", "{}", " { } ", None])
def test_nothing_takes_a_policy_away(sns: Sns, topic: str, nothing: str | None) -> None:
    arn = sns.subscribe(topic, "sqs", queue_arn(sns))
    dead = json.dumps({"deadLetterTargetArn": queue_arn(sns, "dead")})
    for name, value in (("FilterPolicy", '{"colour": ["blue"]}'), ("RedrivePolicy", dead)):
        set_attribute(sns, arn, name, value)
        assert sns.subscription(arn)[name] == value
        set_attribute(sns, arn, name, nothing)
        assert name not in sns.subscription(arn)
    hook = sns.subscribe(topic, "https", "https://127.0.0.1:9/never", DeliveryPolicy=DELIVERY)
    set_attribute(sns, hook, "DeliveryPolicy", "")
    assert "DeliveryPolicy" not in sns.subscription(hook)


def test_fifo_subscription_needs_a_fifo_dead_letter_queue(sns: Sns) -> None:
    arn = sns.subscribe(sns.create_fifo(), "sqs", queue_arn(sns, "orders.fifo"))
    policy = json.dumps({"deadLetterTargetArn": queue_arn(sns, "dead")})
    members = {
        "SubscriptionArn": arn,
        "AttributeName": "RedrivePolicy",
        "AttributeValue": policy,
    }
    assert_invalid(
        sns.refusal("SetSubscriptionAttributes", **members),
        f"{INVALID}RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO "
        "Topic.",
    )
    set_attribute(sns, arn, "RedrivePolicy", policy.replace('dead"', 'dead.fifo"'))
    standard = sns.subscribe(sns.topic_arn("news.fifo"), "sqs", queue_arn(sns))
    set_attribute(sns, standard, "RedrivePolicy", policy)


def test_missing_topic_and_subscription(sns: Sns, topic: str) -> None:
    queue = {"Protocol": "sqs", "Endpoint": queue_arn(sns)}
    missing = f"{topic}:11111111-2222-3333-4444-555555555555"
    elsewhere = sns.subscribe(topic, "sqs", queue["Endpoint"]).replace(topic, sns.create("other"))
    for action, members, text in (
        ("Subscribe", {"TopicArn": sns.topic_arn("none"), **queue}, "Topic does not exist"),
        (
            "ListSubscriptionsByTopic",
            {"TopicArn": sns.topic_arn("none")},
            "Topic does not exist",
        ),
        (
            "GetSubscriptionAttributes",
            {"SubscriptionArn": missing},
            "Subscription does not exist",
        ),
        (
            "GetSubscriptionAttributes",
            {"SubscriptionArn": elsewhere},
            "Subscription does not exist",
        ),
        (
            "SetSubscriptionAttributes",
            {"SubscriptionArn": missing, "AttributeName": "RawMessageDelivery"},
            "Subscription does not exist",
        ),
    ):
        refused = sns.refusal(action, **members)
        assert (refused.status, refused.code, refused.text) == (404, "NotFound", text)
    assert sns.call("Unsubscribe", SubscriptionArn=missing) == {}
    elsewhere = topic.replace(REGION, "eu-west-1")
    assert_invalid(sns.refusal("Subscribe", TopicArn=elsewhere, **queue), f"{INVALID}TopicArn")
    assert_invalid(
        sns.refusal("Subscribe", TopicArn="news", **queue),
        f"{INVALID}TopicArn Reason: An ARN must have at least 6 elements, not 1",
    )


@pytest.mark.parametrize(
    ("arn", "text"),
    [
        ("one", f"{INVALID}SubscriptionArn Reason: An ARN must have at least 6 elements, not 1"),
        (
            "arn:aws:sns:news:one",
            f"{INVALID}SubscriptionArn Reason: An ARN must have at least 6 elements, not 5",
        ),
        (f"arn:aws:sns:{REGION}:{'1' * 12}:news", f"{INVALID}SubscriptionId"),
        (f"arn:aws:sns:{REGION}:{'1' * 12}:news:one", f"{INVALID}SubscriptionId"),
        ("::::::\0", f"{INVALID}SubscriptionId"),
    ],
)
def test_malformed_subscription_arns(sns: Sns, arn: str, text: str) -> None:
    assert_invalid(sns.refusal("Unsubscribe", SubscriptionArn=arn), text)
    assert_invalid(sns.refusal("GetSubscriptionAttributes", SubscriptionArn=arn), text)
    members = {"SubscriptionArn": arn, "AttributeName": "RawMessageDelivery"}
    assert_invalid(sns.refusal("SetSubscriptionAttributes", **members), text)


def test_unsubscribing(sns: Sns, topic: str) -> None:
    arn = sns.subscribe(topic, "sqs", queue_arn(sns))
    for _ in range(2):
        assert sns.call("Unsubscribe", SubscriptionArn=arn) == {}
    assert sns.call("ListSubscriptions") == {"Subscriptions": []}
    assert sns.attributes(topic)["SubscriptionsDeleted"] == "1"
    assert_invalid(
        sns.refusal("Unsubscribe"),
        f"{INVALID}SubscriptionArn Reason: no value for required parameter",
    )


def test_replay_policy_reads_back_with_its_status(server: Server, sns: Sns) -> None:
    topic = sns.create_fifo(ArchivePolicy='{"MessageRetentionPeriod": "5"}')
    arn = sns.subscribe(topic, "sqs", queue_arn(sns, "orders.fifo"))
    policy = json.dumps({"PointType": "Timestamp", "StartingPoint": server.now()})
    members = {"SubscriptionArn": arn, "AttributeName": "ReplayPolicy"}

    sns.call("SetSubscriptionAttributes", **members, AttributeValue=policy)

    found = sns.subscription(arn)
    assert found["ReplayPolicy"] == policy
    assert found["ReplayStatus"] in ("Pending", "In progress", "Completed")
    sns.call("SetSubscriptionAttributes", **members, AttributeValue="{}")
    assert not sns.subscription(arn).keys() & {"ReplayPolicy", "ReplayStatus"}
