import pytest

from protocol import arns
from protocol.errors import Malformed

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
