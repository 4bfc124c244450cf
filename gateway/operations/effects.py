"""What an operation does to what is there, by the right that it needs: the one table of that.

Whatever is administrative is audited (``gateway.audit_lines``). A right that is missing here counts
as that, and fails tests/tidy/test_effects.py, which walks the actions and endpoints of all faces.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class Effect(Enum):
    """Of an operation."""

    READING = auto()
    """It changes nothing, or nothing that anybody would look for."""
    DATA = auto()
    """It sends, receives, moves on or finishes messages and records, those that it names."""
    ADMINISTRATIVE = auto()
    """It changes what is set up, makes credentials, or destroys or moves what it does not name one
    by one."""


_READING: Final = """
    log:GetGroup log:GetLog log:ListLogs log:ReadRecords
    queuegate:GetKey queuegate:ListKeys queuegate:ListQuotas
    scheduler:GetSchedule scheduler:GetScheduleGroup scheduler:ListScheduleGroups
    scheduler:ListSchedules scheduler:ListTagsForResource
    sns:CheckIfPhoneNumberIsOptedOut sns:GetDataProtectionPolicy sns:GetEndpointAttributes
    sns:GetPlatformApplicationAttributes sns:GetSMSAttributes sns:GetSMSSandboxAccountStatus
    sns:GetSubscriptionAttributes sns:GetTopicAttributes sns:ListEndpointsByPlatformApplication
    sns:ListOriginationNumbers sns:ListPhoneNumbersOptedOut sns:ListPlatformApplications
    sns:ListSMSSandboxPhoneNumbers sns:ListSubscriptions sns:ListSubscriptionsByTopic
    sns:ListTagsForResource sns:ListTopics
    sqs:GetQueueAttributes sqs:GetQueueUrl sqs:ListDeadLetterSourceQueues sqs:ListMessageMoveTasks
    sqs:ListQueueTags sqs:ListQueues
    sts:GetAccessKeyInfo sts:GetCallerIdentity sts:GetSessionToken
"""
_DATA: Final = """
    log:ConsumeRecords log:DeleteRecord log:PublishRecords
    sns:Publish
    sqs:ChangeMessageVisibility sqs:DeleteMessage sqs:ReceiveMessage sqs:SendMessage
"""
_ADMINISTRATIVE: Final = """
    log:CreateGroup log:CreateLog log:DeleteGroup log:DeleteLog log:PurgeLog log:RequeueRecords
    log:SeekGroup log:UpdateGroup log:UpdateLog
    queuegate:ChangeKey queuegate:CreateKey queuegate:DeleteQuota queuegate:PutQuota
    queuegate:RevokeKey queuegate:RotateKey
    scheduler:CreateSchedule scheduler:CreateScheduleGroup scheduler:DeleteSchedule
    scheduler:DeleteScheduleGroup scheduler:TagResource scheduler:UntagResource
    scheduler:UpdateSchedule
    sns:AddPermission sns:ConfirmSubscription sns:CreatePlatformApplication
    sns:CreatePlatformEndpoint sns:CreateSMSSandboxPhoneNumber sns:CreateTopic sns:DeleteEndpoint
    sns:DeletePlatformApplication sns:DeleteSMSSandboxPhoneNumber sns:DeleteTopic
    sns:OptInPhoneNumber sns:PutDataProtectionPolicy sns:RemovePermission sns:SetEndpointAttributes
    sns:SetPlatformApplicationAttributes sns:SetSMSAttributes sns:SetSubscriptionAttributes
    sns:SetTopicAttributes sns:Subscribe sns:TagResource sns:Unsubscribe sns:UntagResource
    sns:VerifySMSSandboxPhoneNumber
    sqs:AddPermission sqs:CancelMessageMoveTask sqs:CreateQueue sqs:DeleteQueue sqs:PurgeQueue
    sqs:RemovePermission sqs:SetQueueAttributes sqs:StartMessageMoveTask sqs:TagQueue sqs:UntagQueue
    sts:AssumeRole sts:AssumeRoleWithWebIdentity
"""
EFFECTS: Final[Mapping[str, Effect]] = {
    right: effect
    for effect, rights in (
        (Effect.READING, _READING),
        (Effect.DATA, _DATA),
        (Effect.ADMINISTRATIVE, _ADMINISTRATIVE),
    )
    for right in rights.split()
}
"""By the right, as IAM calls it."""


def effect_of(right: str) -> Effect:
    """What an operation that needs this right does."""
    return EFFECTS.get(right, Effect.ADMINISTRATIVE)
