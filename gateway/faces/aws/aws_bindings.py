"""Bindings of every AWS action, by service."""

from __future__ import annotations

from queuegate.gateway.faces.aws.aws_face import Binding
from queuegate.gateway.faces.aws.scheduler import aws_schedules
from queuegate.gateway.faces.aws.sns import (
    mobile_push,
    sns_publishing,
    sns_sms,
    sns_subscriptions,
    sns_topics,
)
from queuegate.gateway.faces.aws.sqs import sqs_messages, sqs_queues
from queuegate.gateway.faces.aws.sts import sts_actions

SQS_BINDINGS: dict[str, Binding] = {**sqs_messages.BINDINGS, **sqs_queues.BINDINGS}
SNS_BINDINGS: dict[str, Binding] = {
    **mobile_push.BINDINGS,
    **sns_publishing.BINDINGS,
    **sns_sms.BINDINGS,
    **sns_subscriptions.BINDINGS,
    **sns_topics.BINDINGS,
}
BINDINGS: dict[str, dict[str, Binding]] = {
    "scheduler": aws_schedules.BINDINGS,
    "sns": SNS_BINDINGS,
    "sqs": SQS_BINDINGS,
    "sts": sts_actions.BINDINGS,
}
"""By service."""
