"""HTTP/1.1 connections: this module reads requests one at a time, and uvicorn answers them.

``message_parsing`` reads heads and bodies instead of uvicorn's parser, which ends a message at
``Upgrade`` whatever its length, and adds trailers to the headers. Data behind a request is held
until the request is answered. A message with an unclear end closes the connection, so nothing
behind it is parsed.
"""

from __future__ import annotations

import logging
import socket
from asyncio import Transport
from collections import deque
from struct import pack
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from queuegate.gateway.faces.interface import ConnectionHandler, Request, Response
from queuegate.gateway.http.admission import Headers, Origins
from queuegate.gateway.http.connection_limits import LimitedConnection
from queuegate.gateway.http.message_parsing import (
    CONTROL_CHARACTER,
    BadMessage,
    RequestBody,
    RequestHead,
    RequestHeads,
    may_start_head,
)
from queuegate.gateway.log_lines import RateLimitedLogger
from queuegate.gateway.operations.access.caller import RequestOrigin

_log = logging.getLogger("queuegate.http")

CONNECTION = "queuegate.connection"
"""Key in the scope of a request: its ``HttpConnection``."""
PREPARED = "queuegate.prepared"
"""Key in the scope of a request that its face has answered inline: ``Request``, ``Response``."""

_MOST_HEAD_BYTES = 65_536
_MOST_HELD_BYTES = 1_048_576
_MOST_DROPPED_BYTES = 134_217_728
_MOST_DROPPED_OF_STRANGERS = 65_536
_LINGERING_AT_THE_END_SECONDS = 2.0

_bad_messages = RateLimitedLogger(10.0)


class _Parsed:
    """The parser interface that uvicorn reads, for the last head."""

    head: RequestHead

    def get_http_version(self) -> str:
        return self.head.version

    def get_method(self) -> bytes:
        return self.head.method

    def should_keep_alive(self) -> bool:
        return self.head.keep_alive

    def should_upgrade(self) -> bool:
        return False


class _AnswerTransport:
    """The transport of an answer. ``close`` lets the client read the answer first."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        # An answer that continues after its message was refused is discarded.
        if not self._connection.is_dropping():
            self._connection.transport.write(data)

    def close(self) -> None:
        self._connection.end()

    def is_closing(self) -> bool:
        return self._connection.transport.is_closing()


class _HandlerWriter:
    """The connection of a handler (``gateway.faces.interface.ConnectionWriter``)."""

    __slots__ = ("_connection",)

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        if not self._connection.is_dropping():
            self._connection.transport.write(data)

    def unsent_bytes(self) -> int:
        return self._connection.transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._connection.flow.pause_reading()

    def resume_reading(self) -> None:
        self._connection.flow.resume_reading()

    def hang_up_after(self, seconds: int) -> None:
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None:
            found = self._connection.transport.get_extra_info("socket")
            found.setsockopt(socket.IPPROTO_TCP, option, seconds * 1000)

    def end(self) -> None:
        self._connection.end_handler()

    def abort(self) -> None:
        self._connection.transport.abort()


class HttpConnection(LimitedConnection):
    """An HTTP connection. All connections of a process share ``heads`` and ``origins``."""

    heads: RequestHeads
    origins: Origins
    lingering_seconds = 30.0
    """Longest time to drop further data of the client after the last answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser: Any = _Parsed()
        self._answers: Any = _AnswerTransport(self)
        self._head_begun = bytearray()
        self._body: RequestBody | None = None
        self._exchange: Any = None
        """The ``Exchange`` or ``InlineRequest`` in flight, which needs no uvicorn."""
        self._closing = False
        """True: close after the answer to ``_exchange``."""
        self._unanswered = False
        """True while uvicorn has not answered the message that was read."""
        self._waits = False
        self._drains = False
        self._client_ended = False
        self._dropped_bytes = -1
        """Bytes dropped since the last answer; -1 before it."""
        self._most_dropped_bytes = _MOST_DROPPED_BYTES
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self.account_id = ""
        """Account of the next answer; empty: none."""
        self._prepared: tuple[Request, Response] | None = None
        """The next request and its answer, if its face has answered inline."""
        self._handler: ConnectionHandler | None = None
        """The handler of a connection that was taken over. The request stays unanswered, so data
        goes through ``_hold``, and other connections need no check."""

    # Transport callbacks

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request, unless there are too many connections."""
        super().connection_made(transport)
        if not transport.is_closing():
            self._begin_reading()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer what was received before the client ended its stream, except a receive. A client
        that has disconnected looks the same, and must not lease messages."""
        if self.scheme == "https":
            # TLS streams have no half-close: the transport closes.
            return None
        # Between an answer and the held data behind it, no request is busy for a moment.
        is_owing = self._is_busy() or bool(self._held)
        if self.is_dropping() or not is_owing or self._is_receiving():
            return None
        self._client_ended = True
        if not self._held:
            self._answer_last()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop held data and notify the handler."""
        self._drop_held()
        super().connection_lost(exc)
        if self._handler is not None:
            self._handler.lost()

    def shutdown(self) -> None:
        """Finish the request in flight, then close: the server drains."""
        self._drains = True
        if self.is_dropping():
            self.transport.close()
        elif self._handler is not None:
            self.lingering_seconds = _LINGERING_AT_THE_END_SECONDS
            self._handler.shutdown()
        elif self._exchange is not None:
            self._closing = True
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Tell the handler that the client reads too slowly."""
        super().pause_writing()
        if self._handler is not None:
            self._handler.pause()

    def resume_writing(self) -> None:
        """Tell the handler that the client has read nearly all data."""
        super().resume_writing()
        if self._handler is not None and not self.is_dropping():
            self._handler.resume()

    def share(self) -> str:
        """Return the fair share of the account that asked, or of its address."""
        return self.account_id or self.address_share()

    def least_read_bytes(self) -> float:
        """Return a lower limit for streams: their client may be slow, but not silent."""
        return super().least_read_bytes() if self._handler is None else 1.0

    def close_unread(self) -> None:
        """Tell the handler that the peer stopped reading."""
        if self._handler is not None:
            self._handler.unread()
        super().close_unread()

    # Answers

    def _is_busy(self) -> bool:
        """Return True if a complete request is unanswered: further data is held."""
        return self._exchange is not None or self._unanswered

    def _is_receiving(self) -> bool:
        """Return True if that request waits for messages."""
        exchange = self._exchange
        return self._waits if exchange is None else exchange.receiving is not None

    def _answer_last(self) -> None:
        """Close the connection after the current answer."""
        if self._exchange is None:
            self.cycle.keep_alive = False
        else:
            self._closing = True

    def wait(self) -> None:
        """Note that the request waits for messages. Close the connection if its client has ended
        its stream, or does so later: the client may have disconnected."""
        self._waits = True
        if self._client_ended:
            self.transport.close()

    def leave_unframed(self) -> None:
        """Omit body framing from the head of the answer: a handler writes the data behind it."""
        self.cycle.chunked_encoding = False

    def take_over(self, handler: ConnectionHandler) -> None:
        """Give the connection to a handler. The head of the answer is written."""
        self.cycle.response_complete = True
        # Connections of handlers may last for days, and are many: free the request.
        self.cycle = self.scope = self.headers = None  # type: ignore[assignment]
        self.wait()
        if self.transport.is_closing():
            handler.lost()
            return
        self._handler = handler
        handler.connection_made(_HandlerWriter(self))
        if self._held:
            data = b"".join(self._held)
            self._drop_held()
            self.flow.resume_reading()
            self._hold(data)
        if self._drains:
            # The server started to drain before the handler was set.
            self.shutdown()

    def end_handler(self) -> None:
        """Close after the data of the handler."""
        if not self.is_dropping() and not self.transport.is_closing():
            self._drop_rest()

    def on_response_complete(self) -> None:
        """Read the data held behind the request that uvicorn has answered."""
        super().on_response_complete()
        if self.is_dropping():
            return
        self._unanswered = self._waits = False
        if self._body is not None and self.expect_100_continue:
            # After a final answer, a client that sent Expect may omit its announced body.
            self.end()
        elif self._held:
            self.loop.call_soon(self._release_held)

    # Held data

    def _hold(self, data: bytes) -> None:
        """Hold data behind an unanswered request.

        Reading continues, to notice when the client of a receive disconnects. Above the limit,
        close the connection of a receive, and pause reading behind other requests.
        """
        if self.is_dropping():
            self._drop(data)
            return
        if self._handler is not None:
            self._handler.data_received(data)
            return
        self._held.append(data)
        self._held_bytes += len(data)
        share = self.address_share()
        self.traffic.hold(len(data), share)
        if self._held_bytes <= _MOST_HELD_BYTES and self.traffic.may_hold(share):
            return
        if self._is_receiving():
            self.transport.abort()
        else:
            self.flow.pause_reading()

    def _drop_held(self) -> None:
        self._held.clear()
        if self._held_bytes:
            self.traffic.hold(-self._held_bytes, self.address_share())
        self._held_bytes = 0

    def _release_held(self) -> None:
        """Read the data held behind the answered request. Newer data was appended until now."""
        if not self._held or self._is_busy() or self.transport.is_closing():
            return
        data = b"".join(self._held)
        self._drop_held()
        self.flow.resume_reading()
        self._read(data)
        if self._client_ended and not self._held:
            if not self._is_busy() or self._is_receiving():
                self.transport.close()
            else:
                self._answer_last()

    # Requests

    def _read(self, data: bytes) -> None:
        """Read data behind the last data."""
        self._unset_keepalive_if_required()
        try:
            while data and not self.is_dropping():
                data = self._read_head(data) if self._body is None else self._read_body(data)
                if data and self._unanswered:
                    self._hold(data)
                    return
        except BadMessage as bad:
            self._refuse(str(bad), bad.status)
        except httptools.HttpParserInvalidURLError:
            self._refuse("The target is not a path.", 400)

    def _read_head(self, data: bytes) -> bytes:
        """Take the head, or a part of it, from the data and return the rest."""
        if not self._reading_since:
            # Start the deadline at empty lines, too: they must not keep a connection open.
            self._begin_reading()
        begun = self._head_begun
        if not begun:
            # Older clients send an empty line behind a body.
            data = data.lstrip(b"\r\n")
            if not data:
                return b""
        before = len(begun)
        begun += data
        end = begun.find(b"\r\n\r\n", max(before - 3, 0))
        if not may_start_head(begun):
            raise BadMessage("This is not HTTP/1.1.")
        if max(end, 0) > _MOST_HEAD_BYTES or (end < 0 and len(begun) > _MOST_HEAD_BYTES):
            raise BadMessage(f"The head is longer than {_MOST_HEAD_BYTES} bytes.", 431)
        if end < 0:
            new = begun[max(before - 1, 0) :].removeprefix(b"\n")
            if new.count(b"\n") != new.count(b"\r\n"):
                raise BadMessage(CONTROL_CHARACTER)
            return b""
        head, rest = bytes(begun[:end]), bytes(begun[end + 4 :])
        begun.clear()
        self._begin(self.heads.parse(head))
        return rest

    def _begin(self, head: RequestHead) -> None:
        """Start uvicorn's answer."""
        self.parser.head = head
        self.on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        if self._prepared is not None:
            self.scope[PREPARED], self._prepared = self._prepared, None  # type: ignore[literal-required]
        self.account_id = ""
        self.url = head.target
        for name, value in head.headers:
            self.on_header(name, value)
        self.on_headers_complete()
        self.cycle.transport = self._answers
        self._body = RequestBody(head.length)
        if self._body.is_complete:
            self._complete()

    def _read_body(self, data: bytes) -> bytes:
        """Take data of the body and return the rest."""
        body = self._body
        assert body is not None
        content, rest = body.take(data)
        if content:
            self.on_body(content)
            self._count_body(len(content))
        if body.is_complete:
            self._complete()
        return rest

    def _complete(self) -> None:
        """Record the end of the message."""
        self._body = None
        self._reading_since = 0.0
        # The answer may have ended before the message.
        self._unanswered = not self.cycle.response_complete
        self.on_message_complete()

    # End of the connection

    def _refuse(self, text: str, status: int) -> None:
        """Answer an unreadable message and close: the next message cannot be located.

        If the message already has an answer in progress, signal a disconnect to it.
        """
        _bad_messages.warn(_log, "Invalid HTTP request from %s: %s", self.peer(), text)
        if self._body is None or not self.cycle.response_started:
            self._write_refusal(text, status)
        if self._body is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._drop_rest()

    def _write_refusal(self, text: str, status: int) -> None:
        content = text.encode()
        parts = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(
            b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (len(content), content)
        )
        self.transport.write(b"".join(parts))

    def origin(self, headers: Headers) -> RequestOrigin:
        """Return the origin of a request with these headers."""
        return self.origins.of(self.client, self.scheme or "http", headers)

    def break_off(self, *, is_reset: bool, is_half: bool) -> None:
        """End the connection before the end of the answer: by a reset, by half, or by a close."""
        self.cycle.disconnected = True
        if is_half:
            self._drop_rest()
            return
        found = self.transport.get_extra_info("socket")
        if is_reset and found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self.transport.close()

    def has_read_all(self) -> bool:
        """Return True if the current request was read to its end."""
        return self._body is None

    def limit_dropped_bytes(self) -> None:
        """Drop at most 64 KiB of further data, after an answer to an unauthenticated client."""
        self._most_dropped_bytes = _MOST_DROPPED_OF_STRANGERS

    def is_dropping(self) -> bool:
        return self._dropped_bytes >= 0

    def end(self) -> None:
        """Close after the last answer, once the client can have read it."""
        if self.is_dropping() or self.transport.is_closing():
            return
        if self._body is None and not self._held and not self._head_begun:
            self.transport.close()
        else:
            self._drop_rest()

    def _drop_rest(self) -> None:
        """End the stream, and drop received data until the client closes.

        Closing with unread data sends a reset, and a reset makes the client's system discard the
        answer.
        """
        if self._client_ended:
            self.transport.close()
            return
        self._dropped_bytes = 0
        self._unanswered = True
        self._body = None
        self._drop_held()
        self._head_begun.clear()
        seconds = self.lingering_seconds
        if self._most_dropped_bytes < _MOST_DROPPED_BYTES:
            seconds = min(seconds, _LINGERING_AT_THE_END_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            # TLS cannot half-close: the client notices the end only at the close.
            seconds = min(seconds, _LINGERING_AT_THE_END_SECONDS)
        self.flow.resume_reading()
        if self._reading_timer is not None:
            self._reading_timer.cancel()
        self._reading_timer = self.loop.call_later(seconds, self.transport.close)

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes <= self._most_dropped_bytes:
            return
        if self._most_dropped_bytes < _MOST_DROPPED_BYTES:
            # Do not abort: a reset could overtake the answer, and the close follows within 2 s.
            self.flow.pause_reading()
        else:
            self.transport.abort()
