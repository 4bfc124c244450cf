"""Trials of a message against the filter policies of a topic, with reasons for people.

The tests of the policies decide. The reasons come from the tests of their single keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from queuegate.gateway.operations.access.authorization import find_audience, own_topic
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.topics.events import TopicMessage, check_size, parts_of
from queuegate.gateway.operations.topics.fan_out import takes_copies
from queuegate.protocol.filter_conditions import (
    FALSE,
    PRESENT,
    TRUE,
    UNREADABLE,
    Found,
    compile_conditions,
)
from queuegate.protocol.filter_policies import (
    FilterPolicy,
    FilterSubject,
    prepare_attributes,
    prepare_body,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.topics.topic_cache import SubscriptionTarget


_MOST_VALUES = 5
_MOST_SORTED = 1_000
_LONGEST_VALUE = 200
_LONGEST_REASON = 2_000


class TriedSubscription(NamedTuple):
    """A subscription, and the reasons why it would not get the message."""

    target: SubscriptionTarget
    reasons: list[str]


async def try_message(
    engine: Engine, caller: Caller, right: str, new: TopicMessage, attributes: Values
) -> list[TriedSubscription]:
    """Test a message against the confirmed subscriptions of the topic and of patterns that match
    its name. Sends nothing. ``attributes`` are those of SNS, beside the headers. Raises NotFound
    and InvalidParameterValue."""
    parts = parts_of(new.message, new.headers)
    audience = await find_audience(engine, caller, right, own_topic(caller, new.topic_name))
    check_size(parts, audience.topic.maximum_message_bytes, "a message of this topic")
    subjects = {
        "MessageAttributes": prepare_attributes({**(parts.attributes or {}), **attributes}),
        "MessageBody": prepare_body(parts.text),
    }
    queues = await engine.queues.find_many({one.queue for one in audience.targets if one.queue})
    tried = []
    for target in audience.targets:
        policy = target.policy
        reasons = [] if policy is None else mismatches(policy, subjects[policy.scope])
        queue = None if target.queue is None else queues[target.queue]
        if target.queue is not None and queue is None:
            reasons.append("the queue does not exist")
        elif queue is not None and not takes_copies(engine, audience.topic, target, queue):
            reasons.append("the policy of the queue does not allow the topic to send")
        tried.append(TriedSubscription(target, reasons))
        await yield_to_loop()
    return tried


def mismatches(policy: FilterPolicy, subject: FilterSubject) -> list[str]:
    """Return a sentence for each key whose conditions reject the subject; none if it matches."""
    if policy.matches(subject):
        return []
    noun = "attribute" if policy.scope == "MessageAttributes" else "member"
    reasons = _mismatches(orjson.loads(policy.text), "", noun, subject)
    return [_cut(reason, _LONGEST_REASON) for reason in reasons]


def _mismatches(
    members: dict[str, Any], prefix: str, noun: str, subject: FilterSubject
) -> Iterator[str]:
    for key, value in members.items():
        path = prefix + key
        if key == "$or":
            branches = [[*_mismatches(one, prefix, noun, subject)] for one in value]
            if all(branches):
                yield "no branch of `$or` matches: " + "; or ".join(map(" and ".join, branches))
        elif isinstance(value, dict):
            yield from _mismatches(value, f"{path}.", noun, subject)
        elif not compile_conditions(value)(subject[path]):
            found = _described(subject[path])
            yield f"{noun} `{path}` {found}, and the policy wants {_json(value)}"


def _described(found: Found) -> str:
    if found is UNREADABLE:
        return "is not there, because the message is no JSON object"
    if not found:
        return "is absent"
    if found == PRESENT:
        return "has a value that no condition can test"
    texts = nsmallest(_MOST_VALUES, map(_json, islice(found, _MOST_SORTED)))
    more = f" or {len(found) - len(texts)} others" if len(found) > len(texts) else ""
    return f"is {' or '.join(texts)}{more}"


def _json(value: Any) -> str:
    if value is TRUE or value is FALSE:
        return "true" if value is TRUE else "false"
    return _cut(orjson.dumps(value).decode(), _LONGEST_VALUE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
