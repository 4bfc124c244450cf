"""Recordings of SNS at AWS, request by request (docs/contract/sns.md).

A test says so if its row of the contract is no recording.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.faces.sns_client import Sns

COLOUR = {"colour": {"DataType": "String", "StringValue": "red"}}


@pytest.mark.parametrize("suffix", ["", ".fifo"])
@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "envelope"])
def test_a_dead_letter_has_nothing_that_the_queue_would_not_have_got(
    publisher: Sns, suffix: str, is_raw: bool
) -> None:
    """3.6: no RequestID, ErrorCode or ErrorMessage."""
    sqs = publisher.sqs()
    topic = publisher.create_fifo() if suffix else publisher.create()
    dead = sqs.create_fifo("dead.fifo") if suffix else sqs.create("dead")
    gone = f"arn:aws:sqs:us-east-1:{publisher.account}:gone{suffix}"
    attributes = {
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": sqs.arn(dead)}),
        "RawMessageDelivery": "true" if is_raw else "false",
    }
    publisher.subscribe(topic, "sqs", gone, **attributes)
    group = {"MessageGroupId": "g"} if suffix else {}
    publisher.publish(publisher.warm(topic), "lost", MessageAttributes=COLOUR, **group)

    [letter] = sqs.receive(dead, MessageAttributeNames=["All"])
    if is_raw:
        assert (letter["Body"], letter["MessageAttributes"]) == ("lost", COLOUR)
    else:
        envelope = json.loads(letter["Body"])
        assert (envelope["Message"], envelope["TopicArn"]) == ("lost", topic)
        assert "MessageAttributes" not in letter


def test_a_topic_is_created_again_with_a_part_of_its_tags(sns: Sns) -> None:
    """3.3."""
    one, two = {"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}
    arn = sns.call("CreateTopic", Name="news", Tags=[one, two])["TopicArn"]
    for tags in ([], [one], [two], [two, one]):
        assert sns.call("CreateTopic", Name="news", Tags=tags)["TopicArn"] == arn
    for tags in ([{"Key": "a", "Value": "2"}], [one, {"Key": "c", "Value": "3"}]):
        refused = sns.refusal("CreateTopic", Name="news", Tags=tags)
        assert (refused.status, refused.code, refused.text) == (
            400,
            "InvalidParameter",
            "Invalid parameter: Tags Reason: Topic already exists with different tags",
        )


def test_a_delivery_policy_reads_back_without_what_was_not_given(sns: Sns) -> None:
    """3.6."""
    policy = '{"http":{"defaultHealthyRetryPolicy":null}}'
    found = sns.attributes(sns.create(DeliveryPolicy=policy))
    assert found["DeliveryPolicy"] == '{"http":{"disableSubscriptionOverrides":false}}'
    retry = json.loads(found["EffectiveDeliveryPolicy"])["http"]["defaultHealthyRetryPolicy"]
    assert retry["numRetries"] == 3


def test_the_subscriber_is_a_user(sns: Sns) -> None:
    """3.4; the user is named like the access key, which is the account in these tests."""
    endpoint = f"arn:aws:sqs:us-east-1:{sns.account}:orders"
    found = sns.subscription(sns.subscribe(sns.create(), "sqs", endpoint))
    user = f"arn:aws:iam::{sns.account}:user/{sns.account}"
    assert found["SubscriptionPrincipal"] == user


def refuses(
    sns: Sns, action: str, text: str, code: str = "InvalidParameter", **members: Any
) -> None:
    refused = sns.refusal(action, **members)
    assert (refused.status, refused.code, refused.text) == (400, code, text)


def test_labels_of_types_may_have_blanks_and_dots(publisher: Sns) -> None:
    """3.5; names and labels may have letters beyond ASCII: no source refuses them."""
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders", RawMessageDelivery="true")
    publisher.warm(topic)
    odd = {
        "attr.1øßä": {"DataType": "String.  prefixed.", "StringValue": "x"},
        "b": {"DataType": "Number.größe", "StringValue": "1"},
    }
    publisher.publish(topic, MessageAttributes=odd)
    [message] = publisher.sqs().receive(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == odd
    refuses(
        publisher,
        "Publish",
        "The message attribute 'a' has an invalid message attribute type, the set of supported "
        "type prefixes is Binary, Number, and String.",
        "ParameterValueInvalid",
        TopicArn=topic,
        Message="m",
        MessageAttributes={"a": {"DataType": "String.", "StringValue": "x"}},
    )


def test_an_attribute_without_a_type(publisher: Sns) -> None:
    """3.5."""
    topic = publisher.warm(publisher.create())
    path = "messageAttributes.attr1.member.dataType"
    untyped = {"Message": "m", "MessageAttributes": {"attr1": {"StringValue": "x"}}}
    text = (
        "1 validation error detected: Value null at '{}' failed to satisfy constraint: Member must "
        "not be null"
    )
    refuses(publisher, "Publish", text.format(path), "ValidationError", TopicArn=topic, **untyped)
    refuses(
        publisher,
        "PublishBatch",
        text.format(f"publishBatchRequestEntries.2.member.{path}"),
        "ValidationError",
        TopicArn=topic,
        PublishBatchRequestEntries=[{"Id": "a", "Message": "m"}, {"Id": "b", **untyped}],
    )


def test_an_empty_arn(publisher: Sns) -> None:
    """3.4 and 3.5."""
    text = "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1"
    refuses(publisher, "Publish", text, TopicArn="", Message="m")


def test_a_filter_policy_that_is_no_json(sns: Sns) -> None:
    """3.7."""
    endpoint = f"arn:aws:sqs:us-east-1:{sns.account}:orders"
    members = {"TopicArn": sns.create(), "Protocol": "sqs", "Endpoint": endpoint}
    refused = sns.refusal("Subscribe", **members, Attributes={"FilterPolicy": "{invalid"})
    first, _, second = refused.text.partition("\n")
    assert first == (
        "Invalid parameter: Attributes Reason: FilterPolicy: failed to parse JSON. Unexpected "
        "character ('i' (code 105)): was expecting double-quote to start field name"
    )
    assert second == (
        " at [Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled); line: 1, "
        "column: 2]"
    )


def test_the_name_of_an_application_that_is_too_long_is_repeated(sns: Sns) -> None:
    """3.9."""
    name = "n" * 257
    refused = sns.refusal(
        "CreatePlatformApplication",
        Name=name,
        Platform="GCM",
        Attributes={"PlatformCredential": "key"},
    )
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert refused.text.startswith(f"Invalid parameter: {name} Reason: ")


def test_a_deleted_endpoint(sns: Sns) -> None:
    """3.4: its subscriptions stay listed, on a page that leads on; subscribing it again is refused,
    in the words of an emulator, verified."""
    application = sns.call(
        "CreatePlatformApplication",
        Name="phones",
        Platform="GCM",
        Attributes={"PlatformCredential": "key"},
    )["PlatformApplicationArn"]
    device = sns.call("CreatePlatformEndpoint", PlatformApplicationArn=application, Token="t")
    endpoint = device["EndpointArn"]
    topic = sns.create()
    found = sns.subscription(sns.subscribe(topic, "application", endpoint))
    assert (found["Endpoint"], found["PendingConfirmation"]) == (endpoint, "false")
    listed = sns.call("ListSubscriptionsByTopic", TopicArn=topic)
    assert (len(listed["Subscriptions"]), listed.get("NextToken")) == (1, None)

    sns.call("DeleteEndpoint", EndpointArn=endpoint)
    page = sns.call("ListSubscriptionsByTopic", TopicArn=topic)
    assert page["Subscriptions"] == listed["Subscriptions"]
    token = page["NextToken"]
    page = sns.call("ListSubscriptionsByTopic", TopicArn=topic, NextToken=token)
    assert (page["Subscriptions"], page.get("NextToken")) == ([], None)
    refuses(
        sns,
        "Subscribe",
        f"Endpoint does not exist for endpoint arn{endpoint}",
        TopicArn=topic,
        Protocol="application",
        Endpoint=endpoint,
    )


def test_failed_entries_have_their_members_in_the_recorded_order(query_sns: Sns) -> None:
    """docs/contract/protocol.md 1.3."""
    entries = [{"Id": "a", "Message": "x"}, {"Id": "b", "Message": ""}]
    members = {"TopicArn": query_sns.create(), "PublishBatchRequestEntries": entries}
    answer = query_sns.ask("PublishBatch", members)
    found = re.findall(r"<(Failed|Successful|Code|Message|SenderFault|Id)>", answer.text)
    assert found == ["Failed", "Code", "Message", "SenderFault", "Id", "Successful", "Id"]
