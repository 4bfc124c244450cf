from uuid import UUID

import pytest

from queuegate.protocol import arns
from queuegate.protocol.malformed import Malformed

QUEUE = "arn:aws:sqs:us-east-1:123456789012:q.fifo"


def test_queue_arn_is_built_and_parsed() -> None:
    assert arns.queue_arn("us-east-1", "123456789012", "q.fifo") == QUEUE
    assert arns.parse_queue(QUEUE) == ("aws", "sqs", "us-east-1", "123456789012", "q.fifo")


def test_resource_may_contain_colons_and_the_rest_may_be_empty() -> None:
    assert arns.parse("arn:aws-cn:sns:eu-1:123456789012:t:1-2").resource == "t:1-2"
    assert arns.parse("arn:aws:iam::123456789012:root").region == ""
    assert arns.parse("arn:aws:s3:::bucket/key") == ("aws", "s3", "", "", "bucket/key")


@pytest.mark.parametrize(
    "text",
    ["", "q", "arn:aws:sqs:us-east-1:123456789012:", "arn:aws:sqs:us-east-1:12345:q", QUEUE + "\n"],
)
def test_other_texts_are_no_arns(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        arns.parse(text)
    assert caught.value.kind == "arn"


@pytest.mark.parametrize(
    "text",
    [
        "arn:aws:sns:us-east-1:123456789012:q",
        "arn:aws:sqs::123456789012:q",
        "arn:aws:sqs:us-east-1::q",
        "arn:aws:sqs:us-east-1:123456789012:q/r",
        "arn:aws:sqs:us-east-1:123456789012:" + "q" * 81,
    ],
)
def test_other_arns_are_not_those_of_queues(text: str) -> None:
    arns.parse(text)
    with pytest.raises(Malformed):
        arns.parse_queue(text)


TOPIC = "arn:aws:sns:us-east-1:123456789012:t"
ID = "0a1b2c3d-4e5f-4a7b-8c9d-0e1f2a3b4c5d"


@pytest.mark.parametrize("name", ["t", "t.fifo", "a" * 256, "a" * 251 + ".fifo"])
def test_topic_arn_is_built_and_parsed(name: str) -> None:
    text = arns.topic_arn("us-east-1", "123456789012", name)
    assert arns.parse_topic(text) == ("aws", "sns", "us-east-1", "123456789012", name)


def test_subscription_arn_is_built_and_parsed() -> None:
    text = arns.subscription_arn(TOPIC, UUID(ID))
    assert text == f"{TOPIC}:{ID}"
    assert arns.parse_subscription(text) == (arns.parse_topic(TOPIC), UUID(ID))


@pytest.mark.parametrize(
    "text",
    [
        TOPIC + ":" + ID,
        TOPIC.replace(":sns:", ":sqs:"),
        "arn:aws:sns::123456789012:t",
        "arn:aws:sns:us-east-1::t",
        "arn:aws:sns:us-east-1:123456789012:" + "a" * 257,
        "arn:aws:sns:us-east-1:123456789012:a.b",
        "arn:aws:sns:us-east-1:123456789012:.fifo",
        TOPIC + "\n",
    ],
)
def test_other_arns_are_not_those_of_topics(text: str) -> None:
    with pytest.raises(Malformed):
        arns.parse_topic(text)


@pytest.mark.parametrize(
    "text",
    [TOPIC, f"{TOPIC}:", f"{TOPIC}:{ID.upper()}", f"{TOPIC}:{ID}:{ID}", f"{TOPIC}:{{{ID}}}", ID],
)
def test_other_arns_are_not_those_of_subscriptions(text: str) -> None:
    with pytest.raises(Malformed):
        arns.parse_subscription(text)


@pytest.mark.parametrize("pattern", ["order.*", "#", "a.b", "*.x.#"])
def test_subscription_arns_may_have_a_pattern_for_a_name(pattern: str) -> None:
    place = f"arn:aws:sns:us-east-1:111122223333:{pattern}"
    found, subscription_id = arns.parse_subscription(f"{place}:{ID}")
    assert (found.resource, str(subscription_id)) == (pattern, ID)
    assert arns.parse_subscribed(place) == found
    with pytest.raises(Malformed):
        arns.parse_topic(place)
    for wrong in ("a..b", "a*", "", "a b"):
        with pytest.raises(Malformed):
            arns.parse_subscribed(f"arn:aws:sns:us-east-1:111122223333:{wrong}")


@pytest.mark.parametrize(("text", "found"), [("", 1), ("arn", 1), ("arn:aws:sns:r:a", 5)])
def test_elements_of_an_arn_are_counted(text: str, found: int) -> None:
    expected = f"An ARN must have at least 6 elements, not {found}"
    assert arns.missing_elements(text) == expected
    assert arns.missing_elements("a:b:c:d:e:f") is None
    assert arns.missing_elements(TOPIC + ":" + ID) is None
