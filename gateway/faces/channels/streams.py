"""Messages of a channel as Server-Sent Events: what EventSource reads in a browser."""

from __future__ import annotations

from random import randint

from queuegate.gateway.faces.channels.pushing import Push, PushQuery, shown
from queuegate.gateway.faces.channels.words import channel_of
from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.requests import Line
from queuegate.gateway.operations.channels.consumer_registry import ConsumerEnding, PushedMessage

_RETRY_MS = 1000
# When a gateway drains all of its clients come back at once, unless each is told something else.
_DRAINING_RETRY_MS = (100, 2000)
_BEAT = b":\n\n"
_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    # nginx would collect events until there are enough of them.
    "x-accel-buffering": "no",
    "connection": "close",
}


class EventStream(Push):
    """One stream of events. It ends with its connection."""

    __slots__ = ()

    kind = "sse"

    def message(self, pushed: PushedMessage) -> bytes:
        """An event."""
        return b"id: %b\ndata: %b\n\n" % (pushed.event_id.encode(), shown(pushed))

    def last_word(self, ending: ConsumerEnding) -> bytes:
        """When to come back."""
        if ending is ConsumerEnding.DRAINING:
            return b"retry: %d\n\n" % randint(*_DRAINING_RETRY_MS)
        return _BEAT

    def begin(self, line: Line) -> None:
        """Something comes at once, so that proxies hand on the head."""
        line.write(b"retry: %d\n\n" % _RETRY_MS)
        super().begin(line)

    def data_received(self, data: bytes) -> None:
        """Nothing is expected."""

    def beat(self) -> None:
        """A comment. Whether it arrives is what the system notices."""
        if not self._is_paused:
            self.write(_BEAT)


async def _stream(call: Call) -> Answer:
    query: PushQuery = call.query
    channel = await channel_of(call, query.channel)
    event = call.request.headers.get("last-event-id") or query.last_event_id
    return Answer(200, EventStream(call, channel, query, event), _HEADERS)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/messages/stream",
        "streamMessages",
        "Have messages pushed as events",
        "Server-Sent Events: the data of each is one message as `pollMessages` shows it. At most "
        "`credit` of them are out at a time; `acknowledgeMessages` gives the credit back, on "
        "whichever gateway it arrives. A client that comes back with the header `Last-Event-ID`, "
        "as EventSource does, gets at once what was sent after that event and not acknowledged.",
        "push",
        _stream,
        (
            Answered(
                200,
                str,
                "Events, for as long as you stay.",
                ": heartbeat\n\n",
                media_type="text/event-stream",
            ),
        ),
        refusals=(404, 429),
        query=PushQuery,
        is_safe=False,
        right="sqs:ReceiveMessage",
    ),
)
