"""All SNS actions: action -> binding."""

from __future__ import annotations

from queuegate.gateway.faces.aws.face import Binding
from queuegate.gateway.faces.aws.sns import messages as aws_sns_messages
from queuegate.gateway.faces.aws.sns import permissions as aws_sns_permissions
from queuegate.gateway.faces.aws.sns import push_endpoints as aws_sns_push_endpoints
from queuegate.gateway.faces.aws.sns import push_platforms as aws_sns_push_platforms
from queuegate.gateway.faces.aws.sns import sms as aws_sns_sms
from queuegate.gateway.faces.aws.sns import subscriptions as aws_sns_subscriptions
from queuegate.gateway.faces.aws.sns import tags as aws_sns_tags
from queuegate.gateway.faces.aws.sns import topics as aws_sns_topics

BINDINGS: dict[str, Binding] = {
    **aws_sns_messages.BINDINGS,
    **aws_sns_push_endpoints.BINDINGS,
    **aws_sns_push_platforms.BINDINGS,
    **aws_sns_permissions.BINDINGS,
    **aws_sns_sms.BINDINGS,
    **aws_sns_subscriptions.BINDINGS,
    **aws_sns_tags.BINDINGS,
    **aws_sns_topics.BINDINGS,
}
