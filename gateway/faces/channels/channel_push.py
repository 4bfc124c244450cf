"""Push of messages over Server-Sent Events and WebSockets, with a consumer behind each connection.

A WebSocket frame is one JSON object. To the client, ``type`` is message, results (of an ack or
nack) or error. From the client, ``ack`` and ``nack`` hold tokens, and ``credit`` is the maximum of
unacknowledged messages from now on.

Browsers cannot set headers on EventSource and WebSocket, so keys may arrive in the query or as a
subprotocol. The log has only the method and the path template of a request, so it holds no key.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from random import randint
from typing import Annotated, Any, ClassVar
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

from queuegate.gateway.faces.channels import channel_endpoints
from queuegate.gateway.faces.channels.channel_messages import Tokens, polled, results_of
from queuegate.gateway.faces.interface import ConnectionHandler, ConnectionWriter, Request
from queuegate.gateway.faces.json.decoding import explained
from queuegate.gateway.faces.json.json_endpoints import Answer, Call, Endpoints, Error, status_of
from queuegate.gateway.faces.json.json_fields import about
from queuegate.gateway.operations.access.authorization import check_found
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.channels.channel_consumers import (
    PushConsumer,
    nack,
    start_acknowledging,
)
from queuegate.gateway.operations.channels.consumer_registry import (
    ConsumerEnding,
    PushedMessage,
    read_event_id,
)
from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol.websocket_frames import (
    VERSION,
    CloseCode,
    FrameReader,
    Incoming,
    Opcode,
    Violation,
    accept_key,
    close_frame,
    frame,
)
from queuegate.storage.queue_model import Queue, ReceiptOutcome
from queuegate.storage.storage_errors import MalformedInput, Overloaded, Rejected, Unavailable

PROTOCOLS = b"sec-websocket-protocol"
"""The header with the subprotocols that a client offers."""
KEY_PROTOCOL = "key."
"""Prefix of a subprotocol that is a key."""

_MOST_PARAMETERS = 20
_UNACKNOWLEDGED_HEARTBEATS = 3

encode = msgspec.json.Encoder().encode


class PushQuery(Struct, forbid_unknown_fields=True):
    """A channel to push, and the limits of the push."""

    channel: channel_endpoints.ChannelName
    credit: Annotated[
        int,
        about("Maximum number of unacknowledged messages within their windows."),
        Meta(ge=1, le=LIMITS.pushed_credit),
    ] = 10
    window: Annotated[
        channel_endpoints.Window | None,
        about("Window of these messages. Absent: that of the channel."),
    ] = None
    last_event_id: Annotated[
        str,
        about(
            "The last event before the connection was lost. Later messages that are "
            "not acknowledged are redelivered at once.",
            max_length=100,
        ),
    ] = ""
    api_key: Annotated[str, about("The key, if the client cannot set the header X-Api-Key.")] = ""


def key_parameters(request: Request) -> Mapping[str, str]:
    """Return the key of a request from its query or subprotocols. Raises MalformedInput."""
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


class Push(ConnectionHandler):
    """A connection that sends the messages of one consumer."""

    __slots__ = ("_consumer", "_event", "_is_paused", "_writer", "_written", "address", "engine")

    kind: ClassVar[str]
    """The label of the wire in metrics."""

    def __init__(self, call: Call, channel: Queue, query: PushQuery, event: str) -> None:
        self.engine = call.engine
        self.address = call.request.origin.address
        self._consumer = PushConsumer(
            call.engine, channel, self, query.credit, query.window, caller=call.caller
        )
        self._event = read_event_id(event)
        self._writer: ConnectionWriter | None = None
        self._written = 0
        self._is_paused = False

    @abstractmethod
    def message(self, pushed: PushedMessage) -> bytes:
        """Encode one message."""

    @abstractmethod
    def final_bytes(self, ending: ConsumerEnding) -> bytes:
        """Return the bytes to send before the connection closes."""

    @abstractmethod
    def beat(self) -> None:
        """Send a heartbeat, and abort if the peer answers none."""

    # Calls of the server: ConnectionHandler

    def connection_made(self, writer: ConnectionWriter) -> None:
        """Start the consumer."""
        self._writer = writer
        self.engine.series.push.open_counts[self.kind] += 1
        writer.hang_up_after(_UNACKNOWLEDGED_HEARTBEATS * self.engine.rules.push_heartbeat_seconds)
        self._consumer.open(self._event)

    def pause(self) -> None:
        """Pause the consumer: the client reads slower than it writes."""
        self._is_paused = True
        self._consumer.pause()

    def resume(self) -> None:
        """Resume the consumer: the client has read nearly everything."""
        self._is_paused = False
        self._consumer.resume()

    def unread(self) -> None:
        """Release the messages that the client has not read."""
        self.engine.series.push.dropped_count += 1
        self._consumer.lost(self.sent_bytes())

    def shutdown(self) -> None:
        """End the consumer: the server drains."""
        self._consumer.end(ConsumerEnding.DRAINING)

    def lost(self) -> None:
        """Release the messages of the closed connection."""
        if self._writer is not None:
            self._writer = None
            self.engine.series.push.open_counts[self.kind] -= 1
        # The transport does not tell how many buffered bytes it has discarded.
        self._consumer.lost(self._written)

    # Calls of the consumer

    def write(self, data: bytes) -> None:
        """Write, if the client is connected."""
        if self._writer is not None:
            self._written += len(data)
            self._writer.write(data)

    def push(self, messages: list[PushedMessage]) -> list[int]:
        """Write messages. Returns the position of the end of each in the written bytes."""
        parts = [self.message(one) for one in messages]
        ends = []
        end = self._written
        for part in parts:
            end += len(part)
            ends.append(end)
        self.write(b"".join(parts))
        return ends

    def sent_bytes(self) -> int:
        """Return the number of written bytes that are sent, or certain to be sent."""
        if self._is_paused and self._writer is not None:
            return self._written - self._writer.unsent_bytes()
        return self._written

    def end(self, ending: ConsumerEnding) -> None:
        """Send the reason and close."""
        self.close(self.final_bytes(ending))

    def close(self, final_bytes: bytes) -> None:
        """Close after these bytes.

        Abort instead if the client does not read: the buffered messages may belong to another
        client by the time they arrive.
        """
        if self._writer is None:
            return
        if self._is_paused:
            self._writer.abort()
        else:
            self.write(final_bytes)
            self._writer.end()


def shown(pushed: PushedMessage) -> bytes:
    """Encode a message as a poll does, on one line."""
    text = encode(polled(pushed.message, pushed.until, pushed.token))
    if b"\n" in text or b"\r" in text:
        # The payload is the text of its sender, with newlines between values. JSON escapes newlines
        # within strings.
        text = text.replace(b"\r", b" ").replace(b"\n", b" ")
    return text


_RETRY_MS = 1000
# Spreads the reconnects of all clients of a gateway that drains.
_DRAINING_RETRY_MS = (100, 2000)
_BEAT = b":\n\n"
_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    # Stops nginx from buffering events.
    "x-accel-buffering": "no",
    "connection": "close",
}


class EventStream(Push):
    """One stream of Server-Sent Events."""

    __slots__ = ()

    kind = "sse"

    def message(self, pushed: PushedMessage) -> bytes:
        """Encode an event."""
        return b"id: %b\ndata: %b\n\n" % (pushed.event_id.encode(), shown(pushed))

    def final_bytes(self, ending: ConsumerEnding) -> bytes:
        """Return the reconnection time."""
        if ending is ConsumerEnding.DRAINING:
            return b"retry: %d\n\n" % randint(*_DRAINING_RETRY_MS)
        return _BEAT

    def connection_made(self, writer: ConnectionWriter) -> None:
        """Write at once, so that proxies pass the head on, and start the consumer."""
        writer.write(b"retry: %d\n\n" % _RETRY_MS)
        super().connection_made(writer)

    def data_received(self, data: bytes) -> None:
        """Ignore bytes: a client sends nothing after its request."""

    def beat(self) -> None:
        """Send a comment. The system closes the connection if it is not acknowledged."""
        if not self._is_paused:
            self.write(_BEAT)


endpoint = Endpoints("push")
SUBPROTOCOL = "queuegate"


@endpoint(
    "GET /v1/messages/stream",
    "sqs:ReceiveMessage",
    refusals=(404, 429),
    is_safe=False,
    shows={200: ": heartbeat\n\n"},
    media_type="text/event-stream",
)
async def stream_messages(call: Call, query: PushQuery) -> Answer[str]:
    """Receive messages as Server-Sent Events. The data of each event is one message in the form of
    `pollMessages`. At most `credit` messages are unacknowledged at a time. `acknowledgeMessages`,
    on any gateway, restores the credit. A client that reconnects with the header `Last-Event-ID`,
    as EventSource does, receives later unacknowledged messages at once. Returns 200: Events until
    the client disconnects."""
    channel = await channel_endpoints.channel_of(call, query.channel)
    event = call.request.headers.get("last-event-id") or query.last_event_id
    return Answer(200, EventStream(call, channel, query, event), _HEADERS)


_MOST_BYTES = 65_536
"""Maximum bytes of a message from a client."""
_MOST_UNANSWERED = 64
_MAX_MISSED_HEARTBEATS = 2
_PING = frame(Opcode.PING, b"")
_CLOSE_REASONS = {
    ConsumerEnding.DRAINING: (CloseCode.GOING_AWAY, "The gateway stops. Connect again."),
    ConsumerEnding.RESUMED: (CloseCode.NORMAL_CLOSURE, "The client resumed on another connection."),
    ConsumerEnding.CHANNEL_GONE: (CloseCode.POLICY_VIOLATION, "The channel was deleted."),
    ConsumerEnding.KEY_GONE: (
        CloseCode.POLICY_VIOLATION,
        "The key was revoked, has expired, or has no permission to receive.",
    ),
    ConsumerEnding.FAILED: (CloseCode.INTERNAL_ERROR, "We encountered an internal error."),
}


class Command(Struct, forbid_unknown_fields=True):
    """A command of a client."""

    ack: Tokens = []
    nack: Tokens = []
    delay: Annotated[int, Meta(ge=0, le=LIMITS.visibility_timeout_seconds)] = 0
    """Seconds until redelivery of the messages in ``nack``."""
    credit: Annotated[int, Meta(ge=0, le=LIMITS.pushed_credit)] | None = None


_decode = msgspec.json.Decoder(Command).decode


class SocketError(Struct):
    """The refusal of a command."""

    status: int
    error: str


class _AckReply:
    """Receives the reply to acknowledgements."""

    __slots__ = ("_socket", "_tokens", "failed")

    def __init__(self, socket: Socket, tokens: list[str]) -> None:
        self._socket = socket
        self._tokens = tokens
        self.failed = socket.failed

    def done(self, outcomes: list[ReceiptOutcome]) -> None:
        self._socket.send_results(self._tokens, outcomes, "acknowledged")


class Socket(Push):
    """One WebSocket."""

    __slots__ = ("_buffered", "_caller", "_missed_heartbeats", "_reader", "_unanswered")

    kind = "websocket"

    def __init__(self, call: Call, channel: Queue, query: PushQuery) -> None:
        super().__init__(call, channel, query, query.last_event_id)
        self._caller: Caller = call.caller
        self._reader: FrameReader | None = FrameReader(_MOST_BYTES)
        self._buffered = 0
        self._unanswered = 0
        """Number of unanswered commands."""
        self._missed_heartbeats = 0

    # To the client

    def message(self, pushed: PushedMessage) -> bytes:
        """Encode a text frame."""
        event = pushed.event_id.encode()
        text = b'{"type":"message","event":"%b",%b' % (event, shown(pushed)[1:])
        return frame(Opcode.TEXT, text)

    def final_bytes(self, ending: ConsumerEnding) -> bytes:
        """Return a close frame."""
        self._reader = None
        return close_frame(*_CLOSE_REASONS[ending])

    def beat(self) -> None:
        """Send a ping. Abort if several brought no bytes from the client."""
        if self._is_paused:
            return
        if self._missed_heartbeats >= _MAX_MISSED_HEARTBEATS and self._writer is not None:
            self._writer.abort()
            return
        self._missed_heartbeats += 1
        self.write(_PING)

    def _send(self, kind: bytes, members: Struct) -> None:
        text = b'{"type":"%b",%b' % (kind, encode(members)[1:])
        self.write(frame(Opcode.TEXT, text))

    def _refuse(self, status: int, text: str) -> None:
        self._send(b"error", SocketError(status, text))

    def _close(self, code: int, reason: str = "") -> None:
        """Close, and read nothing more."""
        self._reader = None
        self._consumer.lost(self.sent_bytes())
        self.close(close_frame(code, reason))

    # From the client

    def pause(self) -> None:
        """Pause reading, too, or the buffer of answers would grow."""
        super().pause()
        if self._writer is not None:
            self._writer.pause_reading()

    def resume(self) -> None:
        """Resume reading, too."""
        super().resume()
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._writer is not None and not self._is_paused and self._unanswered < _MOST_UNANSWERED:
            self._writer.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Handle whole messages, and buffer the rest."""
        reader = self._reader
        if reader is None:
            return
        self._missed_heartbeats = 0
        for incoming in reader.read(data):
            if isinstance(incoming, Violation):
                self._close(incoming.code, incoming.reason)
            else:
                self._handle(incoming)
            if self._reader is None:
                return
        self._count_buffered(reader.held_bytes)

    def _count_buffered(self, size_bytes: int) -> None:
        """Count the buffered bytes of an incomplete message."""
        traffic = self.engine.series.traffic
        account_id = self._caller.account_id
        traffic.hold(size_bytes - self._buffered, account_id)
        self._buffered = size_bytes
        if size_bytes and not traffic.may_hold(account_id):
            self._close(CloseCode.TRY_AGAIN_LATER, "Too many bytes are buffered.")

    def _handle(self, incoming: Incoming) -> None:
        if incoming.opcode is Opcode.TEXT:
            self._command(incoming.payload)
        elif incoming.opcode is Opcode.PING:
            if not self._is_paused:
                self.write(frame(Opcode.PONG, incoming.payload))
        elif incoming.opcode is Opcode.BINARY:
            self._close(CloseCode.UNSUPPORTED_DATA, "Send JSON in text frames.")
        elif incoming.opcode is Opcode.CLOSE:
            code = int.from_bytes(incoming.payload[:2], "big") or CloseCode.NORMAL_CLOSURE
            self._close(code)

    def _command(self, text: bytes) -> None:
        try:
            command = _decode(text)
        except msgspec.ValidationError as error:
            self._refuse(400, str(MalformedInput(explained(error, Command))))
            return
        except (msgspec.DecodeError, RecursionError):
            self._refuse(400, "A message must be a JSON object.")
            return
        if command.credit is not None:
            self._consumer.set_credit(command.credit)
        try:
            if command.ack:
                self._acknowledge(command.ack)
            if command.nack:
                self._return(command.nack, command.delay)
        except Rejected as refusal:
            self._refuse(status_of(refusal), channel_endpoints.text_of(refusal))

    def _acknowledge(self, tokens: list[str]) -> None:
        channel = self._consumer.channel
        check_found(self.engine, self._caller, "sqs:DeleteMessage", channel)
        self._start_command()
        try:
            start_acknowledging(self.engine, channel, tokens, _AckReply(self, tokens))
        except Rejected as refusal:
            self.failed(refusal)

    def _return(self, tokens: list[str], delay_seconds: int) -> None:
        channel = self._consumer.channel
        check_found(self.engine, self._caller, "sqs:ChangeMessageVisibility", channel)
        self._start_command()
        spawn(self._return_messages(channel, tokens, delay_seconds))

    async def _return_messages(self, channel: Queue, tokens: list[str], delay_seconds: int) -> None:
        try:
            outcomes = await nack(self.engine, self._caller, channel, tokens, delay_seconds)
        except (Rejected, Unavailable) as error:
            self.failed(error)
        else:
            self.send_results(tokens, outcomes, "returned")

    def _start_command(self) -> None:
        self._unanswered += 1
        if self._unanswered >= _MOST_UNANSWERED and self._writer is not None:
            self._writer.pause_reading()

    def send_results(self, tokens: list[str], outcomes: list[ReceiptOutcome], done: Any) -> None:
        """Send the results for messages."""
        self._answered()
        self._send(b"results", results_of(tokens, outcomes, done))

    def failed(self, error: BaseException) -> None:
        """Send the refusal of a command."""
        self._answered()
        if isinstance(error, Rejected):
            self._refuse(status_of(error), channel_endpoints.text_of(error))
        elif isinstance(error, Unavailable):
            if isinstance(error, Overloaded):
                self.engine.series.traffic.refused(str(error))
            self._refuse(503, f"{error} Try again in a moment.")
        else:
            self._close(CloseCode.INTERNAL_ERROR, "We encountered an internal error.")

    def _answered(self) -> None:
        self._unanswered -= 1
        if self._unanswered == _MOST_UNANSWERED // 2:
            self._resume_reading()

    def lost(self) -> None:
        """Release the buffer of an incomplete message, and the messages."""
        self._reader = None
        self._count_buffered(0)
        super().lost()


@endpoint(
    "GET /v1/messages/socket",
    "sqs:ReceiveMessage",
    refusals=(404, 429),
    is_safe=False,
    shows={426: {"error": "This takes a WebSocket: send Upgrade: websocket."}},
)
async def open_socket(call: Call, query: PushQuery) -> Answer[Error]:
    """Receive messages over a WebSocket. Frames are JSON texts. The gateway sends `{"type":
    "message", "event": …}` with the members of `pollMessages`, at most `credit` unacknowledged
    messages at a time. The client sends `{"ack": […]}`, `{"nack": […], "delay": 0}` or `{"credit":
    20}`. Results arrive as `{"type": "results"}`, refusals as `{"type": "error"}`. Browsers offer
    the subprotocols `queuegate` and `key.` with their key. Returns 101: Frames until the client
    disconnects. Returns 426: The request is no WebSocket upgrade."""
    request, headers = call.request, call.request.headers
    channel = await channel_endpoints.channel_of(call, query.channel)
    words = [word.lower() for word in request.listed(b"connection")]
    if "upgrade" not in words or headers.get("upgrade", "").lower() != "websocket":
        return _upgrade("This path is a WebSocket: send Upgrade: websocket.")
    if headers.get("sec-websocket-version") != VERSION:
        return _upgrade(f"The supported version of WebSocket is {VERSION}.")
    accept = accept_key(headers.get("sec-websocket-key", ""))
    if accept is None:
        raise MalformedInput("Sec-WebSocket-Key must be 16 bytes in base64.")
    agreed = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-accept": accept}
    if SUBPROTOCOL in request.listed(PROTOCOLS):
        agreed[PROTOCOLS.decode()] = SUBPROTOCOL
    return Answer(101, Socket(call, channel, query), agreed)


def _upgrade(text: str) -> Answer[Error]:
    asked = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": VERSION}
    return Answer(426, Error(text), asked)
