"""Bindings of every AWS action, by service."""

from __future__ import annotations

import re
from types import ModuleType

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
from queuegate.protocol.service_detection import SERVICES

_WORDS = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def bindings(service: str, *modules: ModuleType) -> dict[str, Binding]:
    """Return the functions of actions in these modules: ``create_queue`` for CreateQueue."""
    names = {action: _WORDS.sub("_", action).lower() for action in SERVICES[service].actions}
    return {
        action: getattr(module, name)
        for module in modules
        for action, name in names.items()
        if hasattr(module, name)
    }


SNS_BINDINGS = bindings("sns", mobile_push, sns_publishing, sns_sms, sns_subscriptions, sns_topics)
BINDINGS: dict[str, dict[str, Binding]] = {
    "scheduler": aws_schedules.BINDINGS,
    "sns": SNS_BINDINGS,
    "sqs": {**sqs_messages.BINDINGS, **bindings("sqs", sqs_queues)},
    "sts": bindings("sts", sts_actions),
}
"""By service."""
