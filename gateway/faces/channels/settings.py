"""Channels as a whole: their settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.channels.words import ChannelName, Window, existing_channel_of
from queuegate.gateway.faces.json.endpoints import PAGED, Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.listing import ListQuery, page_of_queues
from queuegate.gateway.operations.channels.channels import ChannelSettings, set_up, settings_of
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import arns
from queuegate.storage.model import Queue

_TAG = "channels"

Deliveries = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.deliveries,
        description="A message that was handed out so often and never acknowledged is a dead "
        "letter. Null: never.",
    ),
]
Size = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.queue_size,
        description="Messages that it holds at most; more are refused with 429. It stays with "
        "that. Null: any number.",
    ),
]


class ChannelPath(Struct, forbid_unknown_fields=True):
    """Which channel."""

    name: ChannelName


class Settings(Struct, forbid_unknown_fields=True):
    """What to set; what is absent stays as it is."""

    ack_window: Window | UnsetType = UNSET
    max_deliveries: Deliveries | UnsetType | None = UNSET
    size: Size | UnsetType | None = UNSET


class Channel(Struct):
    """A channel."""

    name: str
    ack_window: Annotated[int, Meta(ge=0, description="Seconds to acknowledge a message in.")]
    max_deliveries: Deliveries | None
    size: Size | None
    dead_letter_queue: Annotated[
        str | None, Meta(description="Null: there was no dead letter yet.")
    ]
    fifo: Annotated[bool, Meta(description="In order within groups, and without priorities.")]


class Channels(Struct):
    """Channels, by name in byte order."""

    channels: list[Channel]


def _shown(queue: Queue) -> Channel:
    settings = settings_of(queue)
    arn = queue.dead_letter_arn
    return Channel(
        queue.name,
        settings.ack_window_seconds,
        settings.max_deliveries,
        settings.most_messages,
        None if arn is None else arns.parse_queue(arn).resource,
        queue.kind.has_groups,
    )


async def _list(call: Call) -> Answer:
    found, headers = await page_of_queues(call, "/v1/channels")
    return Answer(200, Channels([_shown(queue) for queue in found]), headers)


async def _look(call: Call) -> Answer:
    return Answer(200, _shown(await existing_channel_of(call, call.path.name)))


async def _set(call: Call) -> Answer:
    given: Settings = call.body

    def change(before: ChannelSettings) -> ChannelSettings:
        window, deliveries, size = given.ack_window, given.max_deliveries, given.size
        return ChannelSettings(
            before.ack_window_seconds if window is UNSET else window,
            before.max_deliveries if deliveries is UNSET else deliveries,
            before.most_messages if size is UNSET else size,
        )

    queue, is_new = await set_up(call.engine, call.caller, call.right, call.path.name, change)
    return Answer(201 if is_new else 200, _shown(queue))


EXAMPLE = {
    "name": "alerts",
    "ack_window": 30,
    "max_deliveries": 5,
    "size": None,
    "dead_letter_queue": "alerts-dead-letters",
    "fifo": False,
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/channels",
        "listChannels",
        "List channels",
        "Every queue is one. When there are more, the header Link leads to them.",
        _TAG,
        _list,
        (Answered(200, Channels, "Channels.", {"channels": [EXAMPLE]}, headers=PAGED),),
        query=ListQuery,
        refusals=(),
        right="sqs:ListQueues",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/v1/channels/{name}",
        "getChannel",
        "Look at a channel",
        "Its settings. `GET /v1/metrics` has its numbers.",
        _TAG,
        _look,
        (Answered(200, Channel, "The channel.", EXAMPLE),),
        path_params=ChannelPath,
        right="sqs:GetQueueAttributes",
    ),
    Endpoint(
        "PUT",
        "/v1/channels/{name}",
        "setUpChannel",
        "Make a channel, or change its settings",
        "A window holds for what is handed out from then on. 409 when it is there in another size. "
        "`DELETE /v1/queues/{name}` deletes a channel.",
        _TAG,
        _set,
        (
            Answered(200, Channel, "The channel as it is now.", EXAMPLE),
            Answered(201, Channel, "The channel, which is new.", EXAMPLE),
        ),
        refusals=(404, 409),
        path_params=ChannelPath,
        body=Settings,
        example={"ack_window": 30, "max_deliveries": 5},
        right="sqs:SetQueueAttributes",
    ),
)
