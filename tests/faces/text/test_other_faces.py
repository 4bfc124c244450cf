"""Text queues behind topics, and as the native API sees them."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.faces.sns_client import Sns
from tests.faces.text.client import Text


def _queue(text: Text, **members: object) -> str:
    text.call("POST", "/v1/queues", {"name": "work", "serial": True, **members}, status=201)
    return f"arn:aws:sqs:us-east-1:{text.account}:work"


@pytest.mark.parametrize("group_id", [None, "g"])
def test_copies_of_a_topic_come_in_groups_of_their_own(text: Text, group_id: str | None) -> None:
    """Unless their publisher says which."""
    arn = _queue(text)
    with Sns("query", text.url, text.account) as sns:
        topic = sns.create("news")
        raw = {"RawMessageDelivery": "true"}
        sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes=raw)
        group = {} if group_id is None else {"MessageGroupId": group_id}
        for body in ("one", "two"):
            sns.call("Publish", TopicArn=topic, Message=body, **group)
    found = [text.get(queue="work") for _ in range(2)]
    bodies = [one.payload for one in found if one is not None]
    assert bodies == (["one", "two"] if group_id is None else ["one"])


def test_copies_of_a_fifo_topic_keep_their_groups(text: Text) -> None:
    arn = _queue(text)
    with Sns("query", text.url, text.account) as sns:
        topic = sns.create("news.fifo", FifoTopic="true")
        sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn)
        for number in range(3):
            sns.call(
                "Publish",
                TopicArn=topic,
                Message="x",
                MessageGroupId="g",
                MessageDeduplicationId=str(number),
            )
    first = text.taken(queue="work")
    assert text.get(queue="work") is None
    assert text.delete(first, queue="work")
    assert text.taken(queue="work").timestamp > first.timestamp


def test_events_have_no_order(text: Text) -> None:
    _queue(text)
    target = f"/v1/events/{quote('a.#')}/subscriptions"
    refusal = text.refusal("POST", target, {"queue_name": "work"})
    assert refusal.startswith("'work' is a serial queue. Events have no order")


def test_the_native_api_has_what_a_text_queue_has(text: Text) -> None:
    _queue(text, archive=True)
    messages = "/v1/queues/work/messages"
    new = {"message": "a", "group_id": "ein Fach \U0001f600"}
    [first, again] = [text.call("POST", messages, new, status=201)["id"] for _ in range(2)]
    assert first == again
    assert "group_id" in text.refusal("POST", messages, {"message": "a"})
    assert "delay" in text.refusal("POST", messages, new | {"delay": 5})
    [received] = text.call("GET", messages)
    assert received["id"] == first
    assert text.call("GET", "/v1/queues/work/browse")["messages"][0]["state"] == "in_flight"
    text.call("DELETE", f"{messages}/{first}", status=204)
    [kept] = text.call("GET", "/v1/queues/work/archive")
    assert kept["group_id"] == new["group_id"]
    text.create("plain")
    replay = "/v1/queues/work/archive/replays"
    refusal = text.refusal("POST", replay, {"ids": [first], "to": "plain"})
    assert "one of them is a serial queue, the other is a standard queue" in refusal
    text.call("POST", replay, {"ids": [first]}, status=201)
    assert text.taken(queue="work").payload == '"a"'
    assert text.call("POST", "/v1/queues/work/purge") == {"deleted": 1}
    assert text.call("GET", "/v1/queues/work")["queue_length"] == 0
