"""Archives of FIFO topics and their replay to subscriptions (docs/contract/sns.md 3.6)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.faces.clients import Refused, Sqs
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.waiting import until

ARCHIVE = {"ArchivePolicy": '{"MessageRetentionPeriod":"30"}'}


def moment(server: Server) -> datetime:
    return datetime.fromisoformat(server.now())


def replay_policy(start: datetime, end: datetime | None = None) -> str:
    policy = {"PointType": "Timestamp", "StartingPoint": start.isoformat()}
    if end is not None:
        policy["EndingPoint"] = end.isoformat()
    return json.dumps(policy)


def subscription_attributes(sns: Sns, arn: str) -> dict[str, str]:
    found: dict[str, str] = sns.call("GetSubscriptionAttributes", SubscriptionArn=arn)["Attributes"]
    return found


def until_status(sns: Sns, arn: str, status: str) -> dict[str, str]:
    """Look until the replay is that far; the attributes."""
    return until(
        lambda: subscription_attributes(sns, arn), lambda found: found["ReplayStatus"] == status
    )


def collect(sqs: Sqs, url: str, count: int) -> list[dict[str, Any]]:
    """So many messages, deleted; and there are no more."""
    messages: list[dict[str, Any]] = []
    names: dict[str, Any] = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    while len(messages) < count:
        found = sqs.receive(url, WaitTimeSeconds=20, **names)
        assert found, f"{len(messages)} of {count} messages"
        sqs.delete(url, *found)
        messages += found
    assert not sqs.receive(url)
    assert len(messages) == count
    return messages


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [json.loads(message["Body"])["Message"] for message in messages]


def test_new_queue_gets_what_was_published_before(sns: Sns, server: Server) -> None:
    sqs, start = sns.sqs(), moment(server)
    topic = sns.create_fifo(**ARCHIVE)
    sent = [
        sns.publish(topic, f"m{n}", MessageGroupId="ab"[n % 2], Subject="about") for n in range(12)
    ]
    assert "BeginningArchiveTime" in sns.attributes(topic)

    url = sqs.create_fifo("late.fifo")
    arn = sns.subscribe(topic, "sqs", sqs.arn(url), ReplayPolicy=replay_policy(start))
    found = until_status(sns, arn, "Completed")
    assert json.loads(found["ReplayPolicy"])["PointType"] == "Timestamp"
    live = sns.publish(topic, "live", MessageGroupId="a")

    messages = collect(sqs, url, 13)
    envelopes = {
        envelope["Message"]: envelope for m in messages for envelope in [json.loads(m["Body"])]
    }
    for n, published in enumerate([*sent, live]):
        envelope = envelopes["live" if n == 12 else f"m{n}"]
        assert envelope["MessageId"] == published["MessageId"]
        assert envelope["SequenceNumber"] == published["SequenceNumber"]
        assert envelope["TopicArn"] == topic
        assert envelope["UnsubscribeURL"].startswith(f"{server.url}/?Action=Unsubscribe&")
        assert envelope["UnsubscribeURL"].endswith(arn)
    for group, names in (("a", range(0, 12, 2)), ("b", range(1, 12, 2))):
        of_group = [m for m in messages if m["Attributes"]["MessageGroupId"] == group]
        assert texts(of_group)[:6] == [f"m{n}" for n in names]


def test_replay_comes_within_five_minutes_of_the_message(sns: Sns, server: Server) -> None:
    """The copies have the ids of those that the queue has had, and are no duplicates."""
    sqs, start = sns.sqs(), moment(server)
    topic = sns.create_fifo(**ARCHIVE)
    url = sqs.create_fifo()
    arn = sns.subscribe(topic, "sqs", sqs.arn(url))
    for n in range(3):
        sns.publish(topic, f"m{n}", MessageGroupId="g")
    first = collect(sqs, url, 3)
    for _ in range(2):
        members = {"AttributeName": "ReplayPolicy", "AttributeValue": replay_policy(start)}
        sns.call("SetSubscriptionAttributes", SubscriptionArn=arn, **members)
        again = collect(sqs, url, 3)
        assert [m["Body"] for m in again] == [m["Body"] for m in first]
        for name in ("MessageGroupId", "MessageDeduplicationId"):
            assert [m["Attributes"][name] for m in again] == [m["Attributes"][name] for m in first]
        until_status(sns, arn, "Completed")


def test_standard_queue_gets_raw_copies_that_pass_the_filter(
    query_sns: Sns, server: Server
) -> None:
    sns, sqs, start = query_sns, query_sns.sqs(), moment(server)
    topic = sns.create_fifo(**ARCHIVE)
    for colour in ("red", "blue", "green"):
        values = {
            "colour": {"DataType": "String", "StringValue": colour},
            "data": {"DataType": "Binary", "BinaryValue": colour.encode()},
        }
        sns.publish(topic, colour, MessageGroupId="g", MessageAttributes=values)
    url = sqs.create("plain")
    sns.subscribe(
        topic,
        "sqs",
        sqs.arn(url),
        ReplayPolicy=replay_policy(start),
        RawMessageDelivery="true",
        FilterPolicy='{"colour":["red","green"]}',
    )
    red, green = collect(sqs, url, 2)
    assert (red["Body"], green["Body"]) == ("red", "green")
    assert green["MessageAttributes"]["colour"]["StringValue"] == "green"
    assert green["MessageAttributes"]["data"]["BinaryValue"] == b"green"
    assert "MessageGroupId" not in green["Attributes"]


def test_messages_of_a_mebibyte_are_archived_and_replayed(query_sns: Sns, server: Server) -> None:
    sns, sqs, start = query_sns, query_sns.sqs(), moment(server)
    topic = sns.create_fifo(**ARCHIVE, MaximumMessageSize="1048576")
    sns.publish(topic, "x" * 1_048_576, MessageGroupId="g")
    url = sqs.create("plain")
    raw = {"RawMessageDelivery": "true", "ReplayPolicy": replay_policy(start)}
    sns.subscribe(topic, "sqs", sqs.arn(url), **raw)
    [message] = collect(sqs, url, 1)
    assert message["Body"] == "x" * 1_048_576


def test_end_to_come_keeps_a_replay_in_progress_and_others_out(
    query_sns: Sns, server: Server
) -> None:
    sns, sqs, start = query_sns, query_sns.sqs(), moment(server)
    topic = sns.create_fifo(**ARCHIVE)
    sns.publish(topic, "m", MessageGroupId="g")
    url = sqs.create_fifo()
    policy = replay_policy(start, start + timedelta(days=2))
    arn = sns.subscribe(topic, "sqs", sqs.arn(url), ReplayPolicy=policy)
    collect(sqs, url, 1)
    until_status(sns, arn, "In progress")
    members = {"AttributeName": "ReplayPolicy", "AttributeValue": replay_policy(start)}
    refused = sns.refusal("SetSubscriptionAttributes", SubscriptionArn=arn, **members)
    assert (refused.status, refused.code) == (403, "ReplayLimitExceeded")

    members["AttributeValue"] = ""
    sns.call("SetSubscriptionAttributes", SubscriptionArn=arn, **members)
    assert "ReplayStatus" not in subscription_attributes(sns, arn)
    members["AttributeValue"] = policy
    sns.call("SetSubscriptionAttributes", SubscriptionArn=arn, **members)
    collect(sqs, url, 1)
    server.advance(3 * 86_400)
    until_status(sns, arn, "Completed")


def test_replay_reaches_as_far_back_as_the_archive(query_sns: Sns, server: Server) -> None:
    sns, sqs, start = query_sns, query_sns.sqs(), moment(server)
    topic = sns.create_fifo(ArchivePolicy='{"MessageRetentionPeriod":"1"}')
    sns.publish(topic, "old", MessageGroupId="g")
    server.advance(86_400 + 3_600)
    sns.publish(topic, "new", MessageGroupId="g")
    url = sqs.create_fifo()
    with pytest.raises(Refused, match="retention"):
        sns.subscribe(topic, "sqs", sqs.arn(url), ReplayPolicy=replay_policy(start))
    policy = replay_policy(moment(server) - timedelta(hours=23))
    sns.subscribe(topic, "sqs", sqs.arn(url), ReplayPolicy=policy)
    assert texts(collect(sqs, url, 1)) == ["new"]


def test_replay_to_a_queue_that_does_not_exist_fails(query_sns: Sns, server: Server) -> None:
    sns, start = query_sns, moment(server)
    topic = sns.create_fifo(**ARCHIVE)
    sns.publish(topic, "m", MessageGroupId="g")
    nowhere = f"arn:aws:sqs:{sns.region}:{sns.account}:nowhere.fifo"
    arn = sns.subscribe(topic, "sqs", nowhere, ReplayPolicy=replay_policy(start))
    until_status(sns, arn, "Failed")


def test_nothing_published_while_others_subscribe_is_missed_or_doubled(
    query_sns: Sns, server: Server
) -> None:
    sns, sqs, start = query_sns, query_sns.sqs(), moment(server)
    topic = sns.create_fifo(**ARCHIVE)
    urls = []
    for n in range(60):
        sns.publish(topic, f"m{n}", MessageGroupId=f"g{n % 7}")
        if n % 12 == 5:
            urls.append(sqs.create_fifo(f"q{n}.fifo"))
            endpoint = sqs.arn(urls[-1])
            sns.subscribe(topic, "sqs", endpoint, ReplayPolicy=replay_policy(start))
    for url in urls:
        assert sorted(texts(collect(sqs, url, 60))) == sorted(f"m{n}" for n in range(60))
