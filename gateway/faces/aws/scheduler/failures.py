"""What is said of an invocation that failed (docs/contract/scheduler.md 4.2)."""

from __future__ import annotations

from queuegate.gateway.faces.aws.refusals import aws_error, text_of
from queuegate.storage.errors import (
    InvalidMessageContents,
    InvalidParameterValue,
    QueueDoesNotExist,
    QueueFull,
    Rejected,
)


def words(refusal: Rejected, kind: str) -> tuple[str, str]:
    """The code and the text, as the service of this kind of target has them; what it does not word
    itself goes by its class."""
    if isinstance(refusal, InvalidMessageContents):
        return "InvalidMessageContents", "Invalid characters found in the message."
    is_of_topic = kind == "topic" and type(refusal) is not InvalidParameterValue
    service = "sns" if is_of_topic else "sqs"
    text = text_of(refusal, is_query=False, service=service)
    if isinstance(refusal, InvalidParameterValue):
        return aws_error(service, refusal).query_code, text
    if isinstance(refusal, QueueDoesNotExist | QueueFull):
        return aws_error("sqs", refusal).query_code, text
    return type(refusal).__name__, text
