"""What the two wires of push share: a connection with a consumer behind it.

Credentials may come where a browser can put them: EventSource and WebSocket send no headers. They
are in no log: what is logged of a request is its method and the template of its path.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

from queuegate.gateway.faces.channels.consuming import polled
from queuegate.gateway.faces.channels.words import ChannelName, Window
from queuegate.gateway.faces.json.endpoints import Call
from queuegate.gateway.faces.requests import Line, Request, Taker
from queuegate.gateway.operations.channels.channel_consumers import PushConsumer
from queuegate.gateway.operations.channels.consumer_registry import (
    ConsumerEnding,
    PushedMessage,
    read_event_id,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import MalformedInput
from queuegate.storage.model import Queue

PROTOCOLS = b"sec-websocket-protocol"
"""The header with the subprotocols that a WebSocket offers."""
KEY_PROTOCOL = "key."
"""What a subprotocol begins with that is a key."""

_MOST_PARAMETERS = 20
_BEATS_WITHOUT_AN_ANSWER = 3

encode = msgspec.json.Encoder().encode


class PushQuery(Struct, forbid_unknown_fields=True):
    """What to push."""

    channel: ChannelName
    credit: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMITS.pushed_credit,
            description="How many messages may be out: sent, not acknowledged, in their windows.",
        ),
    ] = 10
    window: Annotated[
        Window | None, Meta(description="Of these messages. Absent: the channel's.")
    ] = None
    last_event_id: Annotated[
        str,
        Meta(
            max_length=100,
            description="The last event that you saw before the connection broke: what was sent "
            "after it and not acknowledged comes again at once.",
        ),
    ] = ""
    api_key: Annotated[
        str, Meta(description="Your key, where the client cannot set the header X-Api-Key.")
    ] = ""


def key_parameters(request: Request) -> Mapping[str, str]:
    """The key of a request that could not have it in a header. Raises MalformedInput."""
    key = ""
    if b"api_key=" in request.query:
        if request.query.count(b"&") >= _MOST_PARAMETERS:
            raise MalformedInput(f"The query has more than {_MOST_PARAMETERS} parameters.")
        found = parse_qs(request.query.decode("latin-1"), errors="replace")
        key = found.get("api_key", [""])[-1]
    for protocol in request.listed(PROTOCOLS):
        if protocol.startswith(KEY_PROTOCOL):
            key = protocol.removeprefix(KEY_PROTOCOL)
    return {"api_key": key} if key else {}


class Push(Taker):
    """A connection to which the messages of one consumer go."""

    __slots__ = ("_consumer", "_event", "_is_paused", "_line", "_written", "engine")

    kind: ClassVar[str]
    """As metrics call the wire."""

    def __init__(self, call: Call, channel: Queue, query: PushQuery, event: str) -> None:
        self.engine = call.engine
        self._consumer = PushConsumer(
            call.engine, channel, self, query.credit, query.window, caller=call.caller
        )
        self._event = read_event_id(event)
        self._line: Line | None = None
        self._written = 0
        self._is_paused = False

    @abstractmethod
    def message(self, pushed: PushedMessage) -> bytes:
        """One message in JSON."""

    @abstractmethod
    def last_word(self, ending: ConsumerEnding) -> bytes:
        """What is said before the end."""

    @abstractmethod
    def beat(self) -> None:
        """Show the peer that we are there, and hang up if it is not."""

    # A taker

    def begin(self, line: Line) -> None:
        """The head of the answer is written."""
        self._line = line
        self.engine.series.push.open_counts[self.kind] += 1
        line.hang_up_after(_BEATS_WITHOUT_AN_ANSWER * self.engine.rules.push_heartbeat_seconds)
        self._consumer.open(self._event)

    def pause(self) -> None:
        """The client reads slower than we write."""
        self._is_paused = True
        self._consumer.pause()

    def resume(self) -> None:
        """It has read nearly all."""
        self._is_paused = False
        self._consumer.resume()

    def unread(self) -> None:
        """It has not read a byte for long."""
        self.engine.series.push.dropped_count += 1
        self._consumer.lost(self.sent_bytes())

    def shutdown(self) -> None:
        """The server drains."""
        self._consumer.end(ConsumerEnding.DRAINING)

    def lost(self) -> None:
        """The connection is no more."""
        if self._line is not None:
            self._line = None
            self.engine.series.push.open_counts[self.kind] -= 1
        # What the transport still had is lost, but nobody knows any more how much that was.
        self._consumer.lost(self._written)

    # An outlet

    def write(self, data: bytes) -> None:
        """Write, if there is somebody."""
        if self._line is not None:
            self._written += len(data)
            self._line.write(data)

    def push(self, messages: list[PushedMessage]) -> list[int]:
        """Write messages; where each ends."""
        parts = [self.message(one) for one in messages]
        ends = []
        end = self._written
        for part in parts:
            end += len(part)
            ends.append(end)
        self.write(b"".join(parts))
        return ends

    def sent_bytes(self) -> int:
        """How much of what was written has left us, or leaves us for sure."""
        if self._is_paused and self._line is not None:
            return self._written - self._line.unsent_bytes()
        return self._written

    def end(self, ending: ConsumerEnding) -> None:
        """Say why and close."""
        self.close(self.last_word(ending))

    def close(self, last_word: bytes) -> None:
        """Close behind this. A client that does not read would not get it, nor what lies before
        it, and that is somebody else's by then."""
        if self._line is None:
            return
        if self._is_paused:
            self._line.abort()
        else:
            self.write(last_word)
            self._line.end()


def shown(pushed: PushedMessage) -> bytes:
    """A message as a poll shows it, on one line: a payload is the text that its sender wrote."""
    text = encode(polled(pushed.message, pushed.until, pushed.token))
    if b"\n" in text or b"\r" in text:
        # Between values; in them they are escaped.
        text = text.replace(b"\r", b" ").replace(b"\n", b" ")
    return text
