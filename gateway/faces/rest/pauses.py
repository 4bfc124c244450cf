"""Pauses of queues, of topics and of subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import Struct

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.rest.events import SubscriptionPath
from queuegate.gateway.faces.rest.queues import QueuePath, queue_of
from queuegate.gateway.faces.rest.topics import TopicPath, topic_of
from queuegate.gateway.operations.events import event_subscriptions
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.topics import topics


async def _change_queue(call: Call, is_paused: bool) -> None:
    await queues.set_paused(call.engine, await queue_of(call), is_paused=is_paused)


async def _change_topic(call: Call, is_paused: bool) -> None:
    await topics.set_paused(call.engine, await topic_of(call), is_paused=is_paused)


async def _change_subscription(call: Call, is_paused: bool) -> None:
    engine, caller, path = call.engine, call.caller, call.path
    await event_subscriptions.set_paused(engine, caller, path.pattern, path.id, is_paused=is_paused)


class _Pausable(NamedTuple):
    """One noun with its path, and the right that a pause of it needs."""

    noun: str
    tag: str
    place: str
    path_params: type[Struct]
    change: Callable[[Call, bool], Awaitable[None]]
    right: str
    resource: str
    effect: str


_PAUSABLE = (
    _Pausable(
        "queue",
        "queues",
        "/v1/queues/{name}",
        QueuePath,
        _change_queue,
        "sqs:SetQueueAttributes",
        "",
        "Receives and pushes of every API wait as if the queue were empty. Sends go on, and so do "
        "deletes and changes of visibility of messages in flight, moves and retention.",
    ),
    _Pausable(
        "topic",
        "topics",
        "/v1/topics/{name}",
        TopicPath,
        _change_topic,
        "sns:SetTopicAttributes",
        "",
        "Deliveries to the web hooks of all subscriptions are kept until the topic is resumed. "
        "Publishes go on, and so do copies in queues and logs.",
    ),
    _Pausable(
        "subscription",
        "events",
        "/v1/events/{pattern}/subscriptions/{id}",
        SubscriptionPath,
        _change_subscription,
        "sns:SetSubscriptionAttributes",
        "{pattern}",
        "Deliveries to its web hook are kept until it is resumed. A subscription without a web "
        "hook is refused: pause its queue instead.",
    ),
)


def _endpoint(one: _Pausable, method: str, verb: str, effect: str) -> Endpoint:
    async def change(call: Call) -> Answer:
        await one.change(call, method == "PUT")
        return Answer(204)

    return Endpoint(
        method,
        f"{one.place}/pause",
        f"{verb}{one.noun.capitalize()}",
        f"{verb.capitalize()} a {one.noun}",
        effect,
        one.tag,
        change,
        (Answered(204, None, "Done, or it was so before."),),
        path_params=one.path_params,
        right=one.right,
        resource=one.resource,
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    *[_endpoint(one, "PUT", "pause", one.effect) for one in _PAUSABLE],
    *[_endpoint(one, "DELETE", "resume", "What waits goes on at once.") for one in _PAUSABLE],
)
