"""Messages of a channel over a WebSocket, and acknowledgements the other way.

Each text frame is one JSON object. To the client: ``type`` is message, results (of what it
acknowledged or gave back) or error. From the client: ``ack`` and ``nack`` with the ``ack`` of
messages, ``credit`` for how many may be out from now on.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from queuegate.gateway.faces.channels.consuming import Tokens, results_of
from queuegate.gateway.faces.channels.pushing import (
    KEY_PROTOCOL,
    PROTOCOLS,
    Push,
    PushQuery,
    encode,
    shown,
)
from queuegate.gateway.faces.channels.refusals import status_of, text_of
from queuegate.gateway.faces.channels.words import channel_of
from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.explaining import explained
from queuegate.gateway.faces.json.refusals import Error
from queuegate.gateway.operations.access.authorization import check_found
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.channels.channel_consumers import give_back, start_acknowledging
from queuegate.gateway.operations.channels.consumer_registry import ConsumerEnding, PushedMessage
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
from queuegate.storage.errors import MalformedInput, Rejected, Unavailable
from queuegate.storage.model import Outcome, Queue

PROTOCOL = "queuegate"
"""The subprotocol that is agreed on when a client offers any."""

_MOST_BYTES = 65_536
"""Of what a client says at once."""
_MOST_UNDER_WAY = 64
_UNHEARD_BEATS = 2
_PING = frame(Opcode.PING, b"")
_LAST_WORDS = {
    ConsumerEnding.DRAINING: (CloseCode.GOING_AWAY, "This gateway stops. Connect again."),
    ConsumerEnding.RESUMED: (CloseCode.NORMAL_CLOSURE, "You came back on another connection."),
    ConsumerEnding.CHANNEL_GONE: (CloseCode.POLICY_VIOLATION, "The channel was deleted."),
    ConsumerEnding.KEY_GONE: (
        CloseCode.POLICY_VIOLATION,
        "Your key was revoked or has expired, or may not receive any more.",
    ),
    ConsumerEnding.FAILED: (CloseCode.INTERNAL_ERROR, "We encountered an internal error."),
}


class Command(Struct, forbid_unknown_fields=True):
    """What a client says."""

    ack: Tokens = []
    nack: Tokens = []
    delay: Annotated[int, Meta(ge=0, le=LIMITS.visibility_timeout_seconds)] = 0
    """Of ``nack``."""
    credit: Annotated[int, Meta(ge=0, le=LIMITS.pushed_credit)] | None = None


_decode = msgspec.json.Decoder(Command).decode


class Refused(Struct):
    """Why something that a client said was refused."""

    status: int
    error: str


class _Results:
    """Waits for acknowledgements."""

    __slots__ = ("_socket", "_tokens", "failed")

    def __init__(self, socket: Socket, tokens: list[str]) -> None:
        self._socket = socket
        self._tokens = tokens
        self.failed = socket.failed

    def done(self, outcomes: list[Outcome]) -> None:
        self._socket.became(self._tokens, outcomes, "acknowledged")


class Socket(Push):
    """One WebSocket."""

    __slots__ = ("_caller", "_held", "_reader", "_under_way", "_unheard")

    kind = "websocket"

    def __init__(self, call: Call, channel: Queue, query: PushQuery) -> None:
        super().__init__(call, channel, query, query.last_event_id)
        self._caller: Caller = call.caller
        self._reader: FrameReader | None = FrameReader(_MOST_BYTES)
        self._held = 0
        self._under_way = 0
        """Commands that are not answered."""
        self._unheard = 0

    # To the client

    def message(self, pushed: PushedMessage) -> bytes:
        """A frame."""
        event = pushed.event_id.encode()
        text = b'{"type":"message","event":"%b",%b' % (event, shown(pushed)[1:])
        return frame(Opcode.TEXT, text)

    def last_word(self, ending: ConsumerEnding) -> bytes:
        """A close frame."""
        self._reader = None
        return close_frame(*_LAST_WORDS[ending])

    def beat(self) -> None:
        """A ping, unless nothing came for several."""
        if self._is_paused:
            return
        if self._unheard >= _UNHEARD_BEATS and self._line is not None:
            self._line.abort()
            return
        self._unheard += 1
        self.write(_PING)

    def _say(self, kind: bytes, members: Struct) -> None:
        text = b'{"type":"%b",%b' % (kind, encode(members)[1:])
        self.write(frame(Opcode.TEXT, text))

    def _refuse(self, status: int, text: str) -> None:
        self._say(b"error", Refused(status, text))

    def _close(self, code: int, reason: str = "") -> None:
        """End it from here: nothing more is read."""
        self._reader = None
        self._consumer.lost(self.sent_bytes())
        self.close(close_frame(code, reason))

    # From the client

    def pause(self) -> None:
        """A client that does not read is not listened to, or our answers would pile up."""
        super().pause()
        if self._line is not None:
            self._line.pause_reading()

    def resume(self) -> None:
        """It reads again."""
        super().resume()
        self._read_on()

    def _read_on(self) -> None:
        if self._line is not None and not self._is_paused and self._under_way < _MOST_UNDER_WAY:
            self._line.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take whole messages; the rest waits for its end."""
        reader = self._reader
        if reader is None:
            return
        self._unheard = 0
        for incoming in reader.read(data):
            if isinstance(incoming, Violation):
                self._close(incoming.code, incoming.reason)
            else:
                self._take(incoming)
            if self._reader is None:
                return
        self._hold(reader.held_bytes)

    def _hold(self, size_bytes: int) -> None:
        """Count what came of a message that is not whole."""
        traffic = self.engine.series.traffic
        account_id = self._caller.account_id
        traffic.hold(size_bytes - self._held, account_id)
        self._held = size_bytes
        if size_bytes and not traffic.may_hold(account_id):
            self._close(CloseCode.TRY_AGAIN_LATER, "Too many bytes are under way.")

    def _take(self, incoming: Incoming) -> None:
        if incoming.opcode is Opcode.TEXT:
            self._command(incoming.payload)
        elif incoming.opcode is Opcode.PING:
            if not self._is_paused:
                self.write(frame(Opcode.PONG, incoming.payload))
        elif incoming.opcode is Opcode.BINARY:
            self._close(CloseCode.UNSUPPORTED_DATA, "Messages are texts in JSON.")
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
            self._refuse(400, "What you send must be a JSON object.")
            return
        if command.credit is not None:
            self._consumer.set_credit(command.credit)
        try:
            if command.ack:
                self._acknowledge(command.ack)
            if command.nack:
                self._give_back(command.nack, command.delay)
        except Rejected as refusal:
            self._refuse(status_of(refusal), text_of(refusal))

    def _acknowledge(self, tokens: list[str]) -> None:
        channel = self._consumer.channel
        check_found(self.engine, self._caller, "sqs:DeleteMessage", channel)
        self._begin()
        try:
            start_acknowledging(self.engine, channel, tokens, _Results(self, tokens))
        except Rejected as refusal:
            self.failed(refusal)

    def _give_back(self, tokens: list[str], delay_seconds: int) -> None:
        channel = self._consumer.channel
        check_found(self.engine, self._caller, "sqs:ChangeMessageVisibility", channel)
        self._begin()
        spawn(self._giving_back(channel, tokens, delay_seconds))

    async def _giving_back(self, channel: Queue, tokens: list[str], delay_seconds: int) -> None:
        try:
            outcomes = await give_back(self.engine, self._caller, channel, tokens, delay_seconds)
        except (Rejected, Unavailable) as error:
            self.failed(error)
        else:
            self.became(tokens, outcomes, "returned")

    def _begin(self) -> None:
        self._under_way += 1
        if self._under_way >= _MOST_UNDER_WAY and self._line is not None:
            self._line.pause_reading()

    def became(self, tokens: list[str], outcomes: list[Outcome], done: Any) -> None:
        """What became of messages."""
        self._answered()
        self._say(b"results", results_of(tokens, outcomes, done))

    def failed(self, error: BaseException) -> None:
        """Nothing became of them."""
        self._answered()
        if isinstance(error, Rejected):
            self._refuse(status_of(error), text_of(error))
        elif isinstance(error, Unavailable):
            self._refuse(503, f"{error} Try again in a moment.")
        else:
            self._close(CloseCode.INTERNAL_ERROR, "We encountered an internal error.")

    def _answered(self) -> None:
        self._under_way -= 1
        if self._under_way == _MOST_UNDER_WAY // 2:
            self._read_on()

    def lost(self) -> None:
        """What came of a message never ends."""
        self._reader = None
        self._hold(0)
        super().lost()


async def _open(call: Call) -> Answer:
    request, headers = call.request, call.request.headers
    query: PushQuery = call.query
    channel = await channel_of(call, query.channel)
    words = [word.lower() for word in request.listed(b"connection")]
    if "upgrade" not in words or headers.get("upgrade", "").lower() != "websocket":
        return _upgrade("This is a WebSocket: ask for an upgrade to it.")
    if headers.get("sec-websocket-version") != VERSION:
        return _upgrade(f"WebSockets are spoken in version {VERSION}.")
    accept = accept_key(headers.get("sec-websocket-key", ""))
    if accept is None:
        raise MalformedInput("Sec-WebSocket-Key must be 16 bytes in base64.")
    agreed = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-accept": accept}
    if PROTOCOL in request.listed(PROTOCOLS):
        agreed[PROTOCOLS.decode()] = PROTOCOL
    return Answer(101, Socket(call, channel, query), agreed)


def _upgrade(text: str) -> Answer:
    asked = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": VERSION}
    return Answer(426, Error(text), asked)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/messages/socket",
        "openSocket",
        "Have messages pushed over a WebSocket",
        'Each frame is a text in JSON. You get `{"type": "message", "event": …}` with the '
        "members that `pollMessages` shows, at most `credit` of them until you acknowledge, and "
        'you say `{"ack": […]}`, `{"nack": […], "delay": 0}` or `{"credit": 20}`. What became '
        'of them comes as `{"type": "results"}`, what was refused as `{"type": "error"}`. '
        f"Browsers offer the subprotocols `{PROTOCOL}` and `{KEY_PROTOCOL}` with their key.",
        "push",
        _open,
        (
            Answered(101, None, "Frames, for as long as you stay."),
            Answered(
                426,
                Error,
                "This takes a WebSocket.",
                {"error": "This takes a WebSocket: send Upgrade: websocket."},
            ),
        ),
        refusals=(404, 429),
        query=PushQuery,
        is_safe=False,
        right="sqs:ReceiveMessage",
    ),
)
