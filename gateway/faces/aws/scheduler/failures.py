"""What is said of an invocation that failed (docs/contract/scheduler.md 4.2)."""

from __future__ import annotations

from gateway.faces.aws.refusals import aws_error, text_of
from storage.errors import (
    InvalidMessageContents,
    InvalidParameterValue,
    QueueDoesNotExist,
    Rejected,
)


def words(refusal: Rejected) -> tuple[str, str]:
    """The code and the text. What queues refuse has SQS's; the others go by their class."""
    if isinstance(refusal, InvalidMessageContents):
        return "InvalidMessageContents", "Invalid characters found in the message."
    text = text_of(refusal, is_query=False)
    if isinstance(refusal, (InvalidParameterValue, QueueDoesNotExist)):
        return aws_error("sqs", refusal).query_code, text
    return type(refusal).__name__, text
