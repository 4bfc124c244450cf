"""Faults on purpose in requests: names that rules are compared with, and the end of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from queuegate.gateway.faces.interface import Request
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.faults import FaultTarget
from queuegate.storage.storage_errors import InjectedFault

_MEMBERS = ("QueueUrl", "QueueName", "TopicArn", "TargetArn", "ResourceArn", "SubscriptionArn",
            "Name")  # fmt: skip
_FIELDS = ("name", "queue_name", "queue", "topic", "channel", "log")
_BEFORE_THE_WORK = ("drop", "half_close")
_PARTS_OF_ARNS = 6


async def meet(engine: Engine, request: Request, face: str, operation: str, about: Any) -> None:
    """Apply the rules to a request of a known caller. ``operation``: a service, a colon and an
    action. ``about``: the decoded request. Raises InjectedFault, also to end a request that gets no
    answer, and sets ``Request.ending``."""
    service, _, action = operation.partition(":")
    faults, caller = engine.faults, request.caller
    if faults is None or caller is None or not action:
        return
    target = FaultTarget(
        service, action, frozenset(names_in(about)), caller.account_id, caller.region, face
    )
    request.ending = await faults.meet(target)
    if request.ending in _BEFORE_THE_WORK:
        raise InjectedFault("ServiceUnavailable", 503)


def names_in(about: Any) -> Iterator[str]:
    """Yield the names of queues and topics in a request."""
    members = getattr(about, "members", None)
    if members is not None:
        for member in _MEMBERS:
            value = members.get(member)
            if isinstance(value, str):
                parts = value.split(":", _PARTS_OF_ARNS)
                is_arn = parts[0] == "arn" and len(parts) >= _PARTS_OF_ARNS
                yield parts[5] if is_arn else value.rpartition("/")[2]
        if about.detected.path_queue is not None:
            yield about.detected.path_queue.name
        return
    if isinstance(about.path, Struct):
        yield from (
            value for value in structs.asdict(about.path).values() if isinstance(value, str)
        )
    for part in (about.query, about.body):
        for name in _FIELDS:
            value = getattr(part, name, None)
            if isinstance(value, str):
                yield value
