"""All SQS actions: action -> binding."""

from __future__ import annotations

from gateway.faces import aws_sqs_messages, aws_sqs_queues
from gateway.faces.aws import Binding

BINDINGS: dict[str, Binding] = {**aws_sqs_messages.BINDINGS, **aws_sqs_queues.BINDINGS}
