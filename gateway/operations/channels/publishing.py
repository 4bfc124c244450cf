"""Publishing to channels: one message, or many over several channels."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access import SEND
from queuegate.gateway.operations.channels.channels import find_channel
from queuegate.gateway.operations.queues.json_messages import attributes_of, body_of
from queuegate.gateway.operations.queues.priorities import queue_for
from queuegate.gateway.operations.queues.sending import Sending, checked, send
from queuegate.gateway.operations.replies import answered
from queuegate.gateway.operations.turns import give_way
from queuegate.storage.errors import Rejected, Unavailable
from queuegate.storage.model import NewMessage

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.model import Queue, SentMessage

_HOW = Sending(wants_sequences=True)
_MESSAGES_AT_ONCE = 16


class Publication(NamedTuple):
    """A message for a channel. ``payload`` and headers are texts of JSON."""

    channel: str
    payload: bytes
    headers: Mapping[str, bytes] | None = None
    priority: int = 0
    ttl_seconds: int | None = None
    delay_seconds: int | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


class Published(NamedTuple):
    """A message that is on disk. Its number is what tells it apart in its channel."""

    number: int
    message_id: str


Outcome = Published | Rejected | Unavailable


class _Part:
    """What goes to one channel, as it is when these messages are in it."""

    def __init__(self, channel: Queue) -> None:
        self.channel = channel
        self.places: list[int] = []
        self.messages: list[NewMessage] = []
        self.size_bytes = 0


async def publish_one(engine: Engine, caller: Caller, publication: Publication) -> Published:
    """Publish a message. Raises what is wrong with it."""
    await engine.rates.take(caller, 1)
    channel = await find_channel(engine, caller, SEND, publication.channel)
    [sent] = await answered(start_publishing, engine, caller, channel, publication)
    return published(sent)


def start_publishing(
    engine: Engine,
    caller: Caller,
    channel: Queue,
    publication: Publication,
    reply: Reply[list[SentMessage]],
) -> None:
    """Publish a message, whose permit was taken, to its channel; ``published`` of what is replied.

    Raises what is wrong with the message.
    """
    message, size_bytes = _checked(engine, channel, publication)
    send(engine, caller, queue_for(channel, message), [message], size_bytes, reply, _HOW)


async def publish(
    engine: Engine, caller: Caller, publications: Sequence[Publication]
) -> list[Outcome]:
    """Publish messages; each has an outcome of its own, in their order.

    Nothing at all is published when the caller may not publish to one of the channels, or one
    cannot be called so: that is raised. A message that cannot be sent is left out; all others for
    its channel are sent together or not at all. Raises TooManyRequests: each of them counts.
    """
    await engine.rates.take(caller, len(publications))
    names = dict.fromkeys([one.channel for one in publications])
    parts = {name: _Part(await find_channel(engine, caller, SEND, name)) for name in names}
    outcomes: dict[int, Outcome] = {}
    for place, publication in enumerate(publications):
        try:
            _add(engine, parts[publication.channel], place, publication)
        except Rejected as refusal:
            outcomes[place] = refusal
        if place % _MESSAGES_AT_ONCE == _MESSAGES_AT_ONCE - 1:
            await give_way()
    sent = [_send(engine, caller, part) for part in parts.values() if part.places]
    for some in await asyncio.gather(*sent):
        outcomes.update(some)
    return [outcomes[place] for place in range(len(publications))]


def _add(engine: Engine, part: _Part, place: int, new: Publication) -> None:
    """Check a message, and put it with the others for its channel."""
    message, size_bytes = _checked(engine, part.channel, new)
    part.channel = queue_for(part.channel, message)
    part.messages.append(message)
    part.places.append(place)
    part.size_bytes += size_bytes


def _checked(engine: Engine, channel: Queue, new: Publication) -> tuple[NewMessage, int]:
    """The message of a publication, and what it counts."""
    attributes, attribute_bytes = attributes_of(new.headers)
    message = NewMessage(
        body_of(new.payload),
        attributes,
        delay_seconds=new.delay_seconds,
        group_id=new.group_id,
        deduplication_id=new.deduplication_id,
        priority=new.priority or None,
        ttl_seconds=new.ttl_seconds,
    )
    return message, len(checked(engine, channel, message, attribute_bytes)) + attribute_bytes


async def _send(engine: Engine, caller: Caller, part: _Part) -> list[tuple[int, Outcome]]:
    try:
        sent: list[SentMessage] = await answered(_submit, engine, caller, part)
    except (Rejected, Unavailable) as error:
        return [(place, error) for place in part.places]
    return [(place, published(one)) for place, one in zip(part.places, sent, strict=True)]


def published(sent: SentMessage) -> Published:
    """A message that was sent."""
    return Published(sent.sequence or 0, sent.message_id)


def _submit(engine: Engine, caller: Caller, part: _Part, reply: Reply[list[SentMessage]]) -> None:
    send(engine, caller, part.channel, part.messages, part.size_bytes, reply, _HOW)
