"""All SNS actions: action -> binding."""

from __future__ import annotations

from gateway.faces import aws_sns_messages, aws_sns_mobile, aws_sns_subscriptions, aws_sns_topics
from gateway.faces.aws import Binding

BINDINGS: dict[str, Binding] = {
    **aws_sns_messages.BINDINGS,
    **aws_sns_mobile.BINDINGS,
    **aws_sns_subscriptions.BINDINGS,
    **aws_sns_topics.BINDINGS,
}
