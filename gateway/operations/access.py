"""Who may do what: the question before everything that is asked, and the ways to queues, topics and
logs.

A caller's queue, topic or log comes from here and from nowhere else (tests/tidy/test_access.py), so
nobody gets around the question. Rights have the names of IAM's actions, such as `sqs:SendMessage`,
on every face: it is the one vocabulary of AWS that operations use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType, Protocol

from queuegate.protocol import arns, names
from queuegate.protocol.arns import Arn
from queuegate.protocol.queue_urls import QueueAddress, queue_from_url
from queuegate.storage.errors import AccessDenied, AuthorizationError, NotFound, QueueDoesNotExist
from queuegate.storage.log_errors import LogDoesNotExist
from queuegate.storage.log_model import Log

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.topics.topic_cache import Audience
    from queuegate.protocol.policies.requests import Context
    from queuegate.storage.model import Queue, Topic


class Authority(Protocol):
    """Knows who may do what."""

    def check(self, caller: Caller, right: str, arn: str) -> None:
        """Raise AuthorizationError unless the caller has the right to what has that ARN, or
        AccessDenied.

        Asked for each request, the fast ones too: it remembers what it has decided.
        """


def check_right(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Raise what the authority says unless the caller may, or the policy of its key; without an
    authority everybody may everything."""
    if engine.authority is not None:
        engine.authority.check(caller, right, arn)
    check_key(engine, caller, right, arn)


def check_elsewhere(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Raise the same about what others decide, too: by a token, or by the policy of what may be
    another account's, which is asked when it comes to that. Where policies are enforced, the policy
    of the caller's key says no more than it may ask for."""
    if engine.policies is not None and engine.policies.enforces:
        check_key(engine, caller, right, arn)
    else:
        check_right(engine, caller, right, arn)


def check_copies(engine: Engine, caller: Caller, queue_arn: str) -> None:
    """Raise the same unless the caller may have SNS send to that queue: who may send may. Where
    policies are enforced, as on AWS, that of the queue says what SNS may, whenever it sends."""
    if engine.policies is None or not engine.policies.enforces:
        check_right(engine, caller, SEND, queue_arn)


def check_key(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Raise AccessDenied or AuthorizationError where the policy of the caller's key says so: of
    what has no policy of its own, and of what is not there, which nobody else is told."""
    if engine.policies is not None:
        engine.policies.check_key(caller, right, arn)


def _check_before(engine: Engine, caller: Caller, right: str, arn: str) -> None:
    """Ask the authority alone about a queue or topic whose policy is asked when it is found, with
    that of the key: where policies are enforced, these alone decide about what another account
    has."""
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
    """Raise AccessDenied or AuthorizationError where the policy of what was found says so."""
    if engine.policies is not None:
        engine.policies.check(caller, right, resource, about)


def _check_absent(engine: Engine, caller: Caller, right: str, arn: str, owner_id: str) -> None:
    """Raise the same of a queue or topic that is not there. In another account, where policies are
    enforced, this is what a queue or topic without a policy is refused with."""
    if engine.policies is not None:
        engine.policies.check_absent(caller, right, arn, owner_id)


GrantedTopic = NewType("GrantedTopic", Arn)
"""Where a topic is that the caller may do something with: operations take no other address."""
SEND = "sqs:SendMessage"
"""What whoever has something sent to a queue needs for it."""
PUBLISH = "sns:Publish"
"""The same of a topic, and of events."""
PUBLISH_RECORDS = "log:PublishRecords"
"""The same of a log."""


def may(engine: Engine, caller: Caller, right: str, resource: Queue | Topic | Log) -> bool:
    """Whether the caller may do this with what was found before."""
    try:
        if isinstance(resource, Log):
            check_right(engine, caller, right, resource.arn)
        else:
            _check_before(engine, caller, right, resource.arn)
            _check_policy(engine, caller, right, resource)
    except (AccessDenied, AuthorizationError):
        return False
    return True


def own_arn(caller: Caller, right: str, resource: str) -> str:
    """The ARN of something of the caller's, of the service of that right."""
    return f"arn:aws:{right.partition(':')[0]}:{caller.region}:{caller.account_id}:{resource}"


def known_queue(engine: Engine, caller: Caller, right: str, url: str) -> Queue | None:
    """The queue that was found by this URL before. None also for whoever may not: ``find_queue``
    refuses."""
    queue = engine.queues.by_url.get((caller.account_id, caller.region, url))
    if queue is None or engine.authority is None or may(engine, caller, right, queue):
        return queue
    return None


def known_own_queue(engine: Engine, caller: Caller, right: str, name: str) -> Queue | None:
    """The caller's queue of that name, if this process knows it. None also for whoever may not."""
    queue = engine.queues.cached(caller.account_id, caller.region, name)
    if queue is None or engine.authority is None or may(engine, caller, right, queue):
        return queue
    return None


async def find_queue(
    engine: Engine, caller: Caller, right: str, account_id: str, region: str, name: str
) -> Queue:
    """The queue of that name. Raises QueueDoesNotExist and AccessDenied."""
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
    """The queue at an address, in the caller's account and region unless it names others.

    Raises QueueDoesNotExist, for no address, too, and AccessDenied.
    """
    if address is None:
        raise QueueDoesNotExist
    account_id = address.account_id or caller.account_id
    region = address.region or caller.region
    return await find_queue(engine, caller, right, account_id, region, address.name)


async def find_queue_by_url(engine: Engine, caller: Caller, right: str, url: str) -> Queue:
    """The queue that a QueueUrl means, or a name. Raises QueueDoesNotExist and AccessDenied."""
    known = known_queue(engine, caller, right, url)
    if known is not None:
        return known
    queue = await find_queue_at(engine, caller, right, queue_from_url(url))
    engine.queues.remember(caller.account_id, caller.region, url, queue)
    return queue


async def find_own_queue(engine: Engine, caller: Caller, right: str, name: str) -> Queue:
    """The caller's queue of that name, else the FIFO queue of that name without its suffix.

    Raises QueueDoesNotExist with the name, and AccessDenied.
    """
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
    """The caller's queue with that public id, in whatever region.

    Raises QueueDoesNotExist and AccessDenied.
    """
    queue = engine.queues.by_public_id.get(queue_id)
    if queue is None:
        queue = await engine.queues.find_by_public_id(queue_id.lower())
    if queue is None or queue.account_id != caller.account_id:
        check_right(engine, caller, right, own_arn(caller, right, "*"))
        raise QueueDoesNotExist
    check_found(engine, caller, right, queue)
    return queue


def check_found(engine: Engine, caller: Caller, right: str, resource: Queue | Topic) -> None:
    """Raise what the authority or a policy says unless the caller may do this with a queue or topic
    that came from elsewhere, such as a dead-letter queue."""
    _check_before(engine, caller, right, resource.arn)
    _check_policy(engine, caller, right, resource)


async def granted_topic(
    engine: Engine, caller: Caller, right: str, arn: Arn, about: Context | None = None
) -> GrantedTopic:
    """The topic of that ARN, if there is one, for whoever has the right. ``about`` has condition
    keys of the action. Raises AccessDenied and AuthorizationError."""
    name = arns.topic_arn(arn.region, arn.account_id, arn.resource)
    _check_before(engine, caller, right, name)
    if engine.policies is not None:
        try:
            audience = await engine.topics.find(arn.account_id, arn.region, arn.resource)
        except NotFound:
            # What is not there is the operation's to refuse.
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
    """Who gets what is published to that topic, if this process knows it; None also for whoever may
    not: ``find_audience`` refuses."""
    audience = engine.topics.by_arn.get(arn)
    if audience is None or engine.authority is None or may(engine, caller, right, audience.topic):
        return audience
    return None


async def find_audience(engine: Engine, caller: Caller, right: str, arn: Arn) -> Audience:
    """Who gets what is published to that topic. Raises NotFound and AccessDenied."""
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
    """Who gets the caller's events with that routing key. Raises AccessDenied."""
    check_right(engine, caller, PUBLISH, own_arn(caller, PUBLISH, key))
    return await engine.topics.event_audience(caller.account_id, caller.region, key)


def log_arn(caller: Caller, name: str) -> str:
    """As rights name the caller's log of that name."""
    return arns.log_arn(caller.region, caller.account_id, name)


def known_log(engine: Engine, caller: Caller, right: str, name: str) -> Log | None:
    """The caller's log of that name, if this process knows it. None also for whoever may not:
    ``find_log`` refuses."""
    log = engine.logs.cached(caller.account_id, caller.region, name)
    if log is None or engine.authority is None or may(engine, caller, right, log):
        return log
    return None


async def find_log(engine: Engine, caller: Caller, right: str, name: str) -> Log:
    """The caller's log of that name. Raises AccessDenied and LogDoesNotExist."""
    check_right(engine, caller, right, log_arn(caller, name))
    if names.is_standard_queue_name(name):
        log = await engine.logs.find(caller.account_id, caller.region, name)
        if log is not None:
            return log
    raise LogDoesNotExist(name)
