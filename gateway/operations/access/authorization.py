"""Authorization: the check before each operation, and the only way to queues, topics and logs.

A caller's queue, topic or log comes from this module alone (tests/tidy/test_access.py), so no
operation skips the check. Rights have the names of IAM actions, such as `sqs:SendMessage`, on every
face. ``EFFECTS`` says for each right whether an operation reads, sends or administers.
Administrative operations are audited (``gateway.audit_lines``), and so are rights that are missing
in the table; tests/tidy/test_effects.py requires each action and endpoint to be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NewType

from queuegate.protocol import arns, names
from queuegate.protocol.arns import Arn
from queuegate.protocol.urls import QueueAddress, queue_from_url
from queuegate.storage.model import StoredLog
from queuegate.storage.storage_errors import (
    AccessDenied,
    AuthorizationError,
    LogDoesNotExist,
    NotFound,
    QueueDoesNotExist,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.topics.topic_cache import Audience
    from queuegate.protocol.policy_patterns import Context
    from queuegate.storage.model import Topic
    from queuegate.storage.queue_model import Queue


class Effect(Enum):
    """The effect of an operation."""

    READING = auto()
    """It changes nothing of interest."""
    DATA = auto()
    """It sends, receives, moves or deletes messages and records that the request names."""
    ADMINISTRATIVE = auto()
    """It changes settings, creates credentials, or deletes or moves messages that the request does
    not name."""


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


def effect_of(right: str) -> Effect:
    return EFFECTS.get(right, Effect.ADMINISTRATIVE)


def check_right(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Raise AccessDenied or AuthorizationError unless the authority and the policy of the caller's
    key allow the right. Without an authority, everything is allowed."""
    if engine.authority is not None:
        engine.authority.check(caller, right, arn)
    check_key(engine, caller, right, arn)


def check_elsewhere(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Check a right that something else decides, too: a token, or the policy of a resource in
    another account. While policies are enforced, only the policy of the caller's key is checked
    here."""
    if engine.policies is not None and engine.policies.enforces:
        check_key(engine, caller, right, arn)
    else:
        check_right(engine, caller, right, arn)


def check_copies(engine: Engine, caller: Caller, queue_arn: str) -> None:
    """Check that SNS may send to the queue for the caller, who needs the right to send. While
    policies are enforced, the policy of the queue decides at each send instead, as on AWS."""
    if engine.policies is None or not engine.policies.enforces:
        check_right(engine, caller, SEND, queue_arn)


def check_key(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Raise AccessDenied or AuthorizationError if the policy of the caller's key denies the right.
    For resources without a policy, and for absent ones, so that their absence is not disclosed."""
    if engine.policies is not None:
        engine.policies.check_key(caller, right, arn)


def _check_before(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Ask the authority before a queue or topic is looked up. While policies are enforced, policies
    alone decide about resources of other accounts, once they are found."""
    policies = engine.policies
    if engine.authority is not None and (
        policies is None or not policies.enforces or f":{caller.account_id}:" in arn
    ):
        engine.authority.check(caller, right, arn)


def _check_policy(
    engine: Engine,
    caller: Caller,
    right: str,
    resource: Queue | Topic,
    about: Context | None = None,
) -> None:
    """Raise AccessDenied or AuthorizationError if the policy of the resource, or of the key, denies
    the right."""
    if engine.policies is not None:
        engine.policies.check(caller, right, resource, about)


def _check_absent(engine: Engine, caller: Caller, right: str, arn: str, owner_id: str) -> None:
    """Raise the same error for an absent resource of another account as for one without a
    policy."""
    if engine.policies is not None:
        engine.policies.check_absent(caller, right, arn, owner_id)


GrantedTopic = NewType("GrantedTopic", Arn)
"""The address of a topic for which the caller has the right. Operations take no other address."""
SEND = "sqs:SendMessage"
"""The right to have messages sent to a queue."""
PUBLISH = "sns:Publish"
"""The right to publish to a topic, and to publish events."""
PUBLISH_RECORDS = "log:PublishRecords"


def may(engine: Engine, caller: Caller, right: str, resource: Queue | Topic | StoredLog) -> bool:
    try:
        if isinstance(resource, StoredLog):
            check_right(engine, caller, right, resource.arn)
        else:
            _check_before(engine, caller, right, resource.arn)
            _check_policy(engine, caller, right, resource)
    except (AccessDenied, AuthorizationError):
        return False
    return True


def own_arn(caller: Caller, right: str, resource: str) -> str:
    """Return the ARN of a resource of the caller, in the service of the right."""
    return f"arn:aws:{right.partition(':')[0]}:{caller.region}:{caller.account_id}:{resource}"


def known_queue(engine: Engine, caller: Caller, right: str, url: str) -> Queue | None:
    """Return the queue that was found by this URL before. None, also if the caller lacks the right:
    ``find_queue`` raises."""
    queue = engine.queues.by_url.get((caller.account_id, caller.region, url))
    if queue is None or engine.authority is None or may(engine, caller, right, queue):
        return queue
    return None


def known_own_queue(engine: Engine, caller: Caller, right: str, name: str) -> Queue | None:
    """Return the caller's queue of that name if it is cached. None, also if the caller lacks the
    right."""
    queue = engine.queues.cached(caller.account_id, caller.region, name)
    if queue is None or engine.authority is None or may(engine, caller, right, queue):
        return queue
    return None


async def find_queue(
    engine: Engine, caller: Caller, right: str, account_id: str, region: str, name: str
) -> Queue:
    """Return the queue of that name. Raises QueueDoesNotExist and AccessDenied."""
    arn = arns.queue_arn(region, account_id, name)
    _check_before(engine, caller, right, arn)
    try:
        queue = await engine.queues.find(account_id, region, name)
    except QueueDoesNotExist:
        _check_absent(engine, caller, right, arn, account_id)
        raise
    _check_policy(engine, caller, right, queue)
    return queue


async def find_queue_at(
    engine: Engine, caller: Caller, right: str, address: QueueAddress | None
) -> Queue:
    """Return the queue at an address, by default in the caller's account and region. Raises
    QueueDoesNotExist, also if there is no address, and AccessDenied."""
    if address is None:
        raise QueueDoesNotExist
    account_id = address.account_id or caller.account_id
    region = address.region or caller.region
    return await find_queue(engine, caller, right, account_id, region, address.name)


async def find_queue_by_url(engine: Engine, caller: Caller, right: str, url: str) -> Queue:
    """Return the queue of a QueueUrl or a name. Raises QueueDoesNotExist and AccessDenied."""
    known = known_queue(engine, caller, right, url)
    if known is not None:
        return known
    queue = await find_queue_at(engine, caller, right, queue_from_url(url))
    engine.queues.remember(caller.account_id, caller.region, url, queue)
    return queue


async def find_own_queue(engine: Engine, caller: Caller, right: str, name: str) -> Queue:
    """Return the caller's queue of that name, or the FIFO queue of that name with its suffix.
    Raises QueueDoesNotExist with the name, and AccessDenied."""
    account_id, region = caller.account_id, caller.region
    queue = engine.queues.cached(account_id, region, name)
    if queue is None:
        keys = []
        if names.is_standard_queue_name(name):
            keys = [(account_id, region, name), (account_id, region, name + names.FIFO_SUFFIX)]
        elif names.is_fifo_queue_name(name):
            keys = [(account_id, region, name)]
        found = await engine.queues.find_many(keys)
        queue = next((one for key in keys if (one := found[key]) is not None), None)
    found_name = name if queue is None else queue.name
    arn = arns.queue_arn(region, account_id, found_name)
    _check_before(engine, caller, right, arn)
    if queue is None:
        check_key(engine, caller, right, arn)
        raise QueueDoesNotExist(name)
    _check_policy(engine, caller, right, queue)
    return queue


async def find_queue_by_id(engine: Engine, caller: Caller, right: str, queue_id: str) -> Queue:
    """Return the caller's queue with that public id, in any region. Raises QueueDoesNotExist and
    AccessDenied."""
    queue = engine.queues.by_public_id.get(queue_id)
    if queue is None:
        queue = await engine.queues.find_by_public_id(queue_id.lower())
    if queue is None or queue.account_id != caller.account_id:
        check_right(engine, caller, right, own_arn(caller, right, "*"))
        raise QueueDoesNotExist
    check_found(engine, caller, right, queue)
    return queue


def check_found(engine: Engine, caller: Caller, right: str, resource: Queue | Topic) -> None:
    """Check the right to a queue or topic that was found otherwise, such as a dead-letter queue."""
    _check_before(engine, caller, right, resource.arn)
    _check_policy(engine, caller, right, resource)


async def granted_topic(
    engine: Engine, caller: Caller, right: str, arn: Arn, about: Context | None = None
) -> GrantedTopic:
    """Return the topic's address for a caller with the right; the topic may be absent. ``about``
    has condition keys of the action. Raises AccessDenied and AuthorizationError."""
    name = arns.topic_arn(arn.region, arn.account_id, arn.resource)
    _check_before(engine, caller, right, name)
    if engine.policies is not None:
        try:
            audience = await engine.topics.find(arn.account_id, arn.region, arn.resource)
        except NotFound:
            # The operation refuses absent topics.
            _check_absent(engine, caller, right, name, arn.account_id)
        else:
            _check_policy(engine, caller, right, audience.topic, about)
    return GrantedTopic(arn)


def own_topic(caller: Caller, name: str) -> Arn:
    """Return the address of the caller's topic of that name. Raises NotFound if no topic can have
    the name."""
    if not names.is_topic_name(name):
        raise NotFound("Topic does not exist")
    return Arn("aws", "sns", caller.region, caller.account_id, name)


def known_audience(engine: Engine, caller: Caller, right: str, arn: str) -> Audience | None:
    """Return the audience of a topic if it is cached. None, also if the caller lacks the right:
    ``find_audience`` raises."""
    audience = engine.topics.by_arn.get(arn)
    if audience is None or engine.authority is None or may(engine, caller, right, audience.topic):
        return audience
    return None


async def find_audience(engine: Engine, caller: Caller, right: str, arn: Arn) -> Audience:
    """Return the audience of a topic: its subscriptions. Raises NotFound and AccessDenied."""
    name = arns.topic_arn(arn.region, arn.account_id, arn.resource)
    _check_before(engine, caller, right, name)
    try:
        audience = await engine.topics.find(arn.account_id, arn.region, arn.resource)
    except NotFound:
        _check_absent(engine, caller, right, name, arn.account_id)
        raise
    _check_policy(engine, caller, right, audience.topic)
    return audience


async def find_event_audience(engine: Engine, caller: Caller, key: str) -> Audience:
    """Return the audience of the caller's events with that routing key. Raises AccessDenied."""
    check_right(engine, caller, PUBLISH, own_arn(caller, PUBLISH, key))
    return await engine.topics.event_audience(caller.account_id, caller.region, key)


def log_arn(caller: Caller, name: str) -> str:
    return arns.log_arn(caller.region, caller.account_id, name)


def known_log(engine: Engine, caller: Caller, right: str, name: str) -> StoredLog | None:
    """Return the caller's log of that name if it is cached. None, also if the caller lacks the
    right: ``find_log`` raises."""
    log = engine.logs.cached(caller.account_id, caller.region, name)
    if log is None or engine.authority is None or may(engine, caller, right, log):
        return log
    return None


async def find_log(engine: Engine, caller: Caller, right: str, name: str) -> StoredLog:
    """Return the caller's log of that name. Raises AccessDenied and LogDoesNotExist."""
    check_right(engine, caller, right, log_arn(caller, name))
    if names.is_standard_queue_name(name):
        log = await engine.logs.find(caller.account_id, caller.region, name)
        if log is not None:
            return log
    raise LogDoesNotExist(name)
