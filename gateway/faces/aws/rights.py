"""What a caller of an action needs: the right, as IAM calls it, and to which resource.

Actions on queues and topics find these by ``authorization``, which asks for the right. All
others are asked about before they are begun, new ones too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queuegate.protocol.sqs_shapes import SQS

_OF_QUEUES = {name for name, action in SQS.actions.items() if "QueueUrl" in action.input.members}
_FOUND: Mapping[str, set[str]] = {
    "sqs": _OF_QUEUES
    | {"CancelMessageMoveTask", "GetQueueUrl", "ListMessageMoveTasks", "StartMessageMoveTask"},
    "sns": {
        "AddPermission",
        "DeleteTopic",
        "GetDataProtectionPolicy",
        "GetTopicAttributes",
        "ListSubscriptionsByTopic",
        "ListTagsForResource",
        "PublishBatch",
        "PutDataProtectionPolicy",
        "RemovePermission",
        "SetTopicAttributes",
        "Subscribe",
        "TagResource",
        "UntagResource",
    },
    "sts": {"AssumeRoleWithWebIdentity", "GetCallerIdentity", "GetSessionToken"},
}
"""Actions that find a queue or a topic, or that everybody may do."""
BY_TOKEN = {"ConfirmSubscription", "Unsubscribe"}
"""Actions of SNS for whoever has the token or made the subscription, which the operation knows."""
_ARNS = (
    "TopicArn",
    "TargetArn",
    "ResourceArn",
    "SubscriptionArn",
    "PlatformApplicationArn",
    "EndpointArn",
    "SourceArn",
    "RoleArn",
)
_BATCH = "Batch"
_NEW = {"CreateQueue": "QueueName", "CreateTopic": "Name"}
"""What a request calls something that is not there yet."""
_GROUPED = {"CreateSchedule", "DeleteSchedule", "GetSchedule", "UpdateSchedule"}
_GROUPS = {"CreateScheduleGroup", "DeleteScheduleGroup", "GetScheduleGroup"}


def right_to(service: str, action: str) -> str:
    """The right to an action: that to a batch is the right to each of its entries."""
    return f"{service}:{action.removesuffix(_BATCH)}"


def resource_of(service: str, action: str, members: Mapping[str, Any]) -> str | None:
    """The ARN of what an action is about, as far as the request says it, or what is behind the
    account in it; "" of what belongs to the account. None: the right is asked for when it is
    found."""
    if action in _FOUND.get(service, ()) or (
        (service, action) == ("sns", "Publish") and published_topic(members)
    ):
        return None
    named = _named(action, members)
    if named:
        return named
    arn: str = next((members[name] for name in _ARNS if members.get(name)), "")
    # A subscription is its topic's, as in IAM.
    return arn.rpartition(":")[0] if arn and arn == members.get("SubscriptionArn") else arn


def _named(action: str, members: Mapping[str, Any]) -> str:
    if action in _NEW:
        name: str = members.get(_NEW[action]) or ""
        return name
    if action in _GROUPED:
        return f"schedule/{members.get('GroupName') or 'default'}/{members.get('Name')}"
    return f"schedule-group/{members.get('Name')}" if action in _GROUPS else ""


def published_topic(members: Mapping[str, Any]) -> str | None:
    """The topic that Publish is asked for, if it is one: TargetArn may name a topic, too."""
    if members.get("PhoneNumber"):
        return None
    arn: str | None = members.get("TopicArn") or members.get("TargetArn")
    return None if arn is None or ":endpoint/" in arn else arn
