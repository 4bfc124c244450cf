"""SQS actions on queues as a whole (docs/contract/sqs.md 2.2, 2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sqs import queue_attributes
from queuegate.gateway.faces.aws.sqs.pages import last_of, page_size
from queuegate.gateway.faces.aws.sqs.redrive_policies import target_of, worded
from queuegate.gateway.faces.aws.sqs.tags import rules
from queuegate.gateway.operations.access import policies
from queuegate.gateway.operations.queues import queues
from queuegate.protocol import names
from queuegate.protocol.page_tokens import token_behind
from queuegate.protocol.policies import Kind
from queuegate.protocol.queue_urls import QueueAddress
from queuegate.storage.errors import (
    InvalidParameterValue,
    MissingParameter,
    QueueDoesNotExist,
    QueueNameExists,
    QueueNameInvalid,
)
from queuegate.storage.model import Queue

_ACCOUNT = re.compile(r"[0-9]{12}")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,80}")


async def create_queue(call: Call) -> Members:
    """The new queue, or the existing one when every attribute of the request has its value there.

    Tags of an existing queue are neither compared nor changed.
    """
    members = call.members
    given, tags = members.get("Attributes") or {}, members.get("tags") or {}
    name = _checked_name(members.get("QueueName"), given)
    wanted = queue_attributes.normalise(given, is_fifo=queues.is_fifo_name(name))
    attributes = queue_attributes.merge({}, wanted)
    of_queue = rules(name)
    of_queue.check_count(len(tags))
    request = queues.CreateQueue(
        name,
        attributes,
        of_queue.checked(tags.items()),
        target_of(attributes),
        blocked_seconds=call.engine.rules.queue_recreate_seconds,
    )
    with worded(given):
        queue, is_new = await queues.create_queue(call.engine, call.caller, request)
    differs = None if is_new else queue_attributes.first_difference(queue, wanted)
    if differs is not None:
        raise QueueNameExists(differs)
    if is_new:
        policies.warn_of(given.get("Policy"), Kind.RESOURCE, queue.arn)
    return {"QueueUrl": _url(call, queue)}


def _checked_name(name: str | None, attributes: Mapping[str, str]) -> str:
    if name is None:
        raise MissingParameter("QueueName")
    is_fifo = attributes.get("FifoQueue", "").lower() == "true"
    if is_fifo != name.endswith(names.FIFO_SUFFIX):
        raise QueueNameInvalid(name, is_fifo=True)
    return name


def _url(call: Call, queue: Queue) -> str:
    return call.queue_url(queue.region, queue.account_id, queue.name)


async def get_queue_url(call: Call) -> Members:
    name = call.members.get("QueueName")
    if not name:
        raise InvalidParameterValue(
            "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
        )
    account_id = call.members.get("QueueOwnerAWSAccountId") or call.caller.account_id
    known = names.is_standard_queue_name(name) or names.is_fifo_queue_name(name)
    if not known or _ACCOUNT.fullmatch(account_id) is None:
        raise QueueDoesNotExist
    return {"QueueUrl": _url(call, await call.find(QueueAddress(account_id, name)))}


async def list_queues(call: Call) -> Members:
    """Live queues by name, in byte order. Without MaxResults there is no next page."""
    caller = call.caller
    max_results = call.members.get("MaxResults")
    size = page_size(max_results, AWS.queues_page)
    after = last_of("queues", call.members.get("NextToken"))
    prefix = call.members.get("QueueNamePrefix") or ""
    if _PREFIX.fullmatch(prefix) is None:
        return {"QueueUrls": None, "NextToken": None}
    found, has_more = await queues.list_names(
        call.engine, caller, prefix=prefix, after=after, limit=size
    )
    token = None
    if max_results is not None and has_more:
        token = token_behind("queues", found[-1])
    return {
        "QueueUrls": _urls(call, caller.region, caller.account_id, found),
        "NextToken": token,
    }


def _urls(call: Call, region: str, account_id: str, names_: Sequence[str]) -> list[str] | None:
    return [call.queue_url(region, account_id, name) for name in names_] or None


async def list_dead_letter_source_queues(call: Call) -> Members:
    """The queues whose redrive policy names this queue, oldest first."""
    queue = await call.queue()
    max_results = call.members.get("MaxResults")
    size = page_size(max_results, AWS.queues_page)
    last = last_of("sources", call.members.get("NextToken")) or "0"
    if not last.isdigit() or len(last) > 9:
        raise InvalidParameterValue("Invalid or expired next token.")
    found, has_more = await queues.list_dead_letter_sources(
        call.engine, call.caller, queue, after_queue_id=int(last), limit=size
    )
    token = None
    if max_results is not None and has_more:
        token = token_behind("sources", str(found[-1].queue_id))
    sources = [source.name for source in found]
    return {"queueUrls": _urls(call, queue.region, queue.account_id, sources), "NextToken": token}


async def delete_queue(call: Call) -> None:
    await queues.delete_queue(call.engine, call.caller, await call.queue())


async def purge_queue(call: Call) -> None:
    """Refuses a second purge within 60 s although we could do it: SQS refuses, and clients rely on
    it (docs/contract/sqs.md 2.1)."""
    seconds = call.engine.rules.purge_interval_seconds
    queue = await call.queue()
    await queues.purge_queue(call.engine, call.caller, queue, interval_seconds=seconds)


async def get_queue_attributes(call: Call) -> Members:
    """The attributes that were asked for and that the queue has; without names none."""
    queue = await call.queue()
    wanted = queue_attributes.wanted_names(call.members.get("AttributeNames") or ())
    counts = None
    if queue_attributes.need_counts(wanted):
        queue, counts = await queues.count(call.engine, call.caller, queue)
    else:
        queue = await queues.look(call.engine, call.caller, queue)
    return {"Attributes": queue_attributes.read(queue, wanted, counts) or None}


async def set_queue_attributes(call: Call) -> None:
    """Change attributes at once and all together; "" unsets those that can be unset."""
    queue = await call.queue()
    given = call.members.get("Attributes")
    if given is None:
        raise MissingParameter("Attributes")
    changes = queue_attributes.normalise(given, is_fifo=queue.is_fifo)
    with worded(given):
        await queues.change_attributes(
            call.engine,
            call.caller,
            queue,
            lambda attributes: queue_attributes.merge(attributes, changes),
            dead_letter_arn=target_of(changes),
        )
    policies.warn_of(given.get("Policy"), Kind.RESOURCE, queue.arn)


BINDINGS: dict[str, Binding] = {
    "CreateQueue": create_queue,
    "GetQueueUrl": get_queue_url,
    "ListQueues": list_queues,
    "ListDeadLetterSourceQueues": list_dead_letter_source_queues,
    "DeleteQueue": delete_queue,
    "PurgeQueue": purge_queue,
    "GetQueueAttributes": get_queue_attributes,
    "SetQueueAttributes": set_queue_attributes,
}
