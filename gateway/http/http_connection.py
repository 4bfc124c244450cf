"""HTTP/1.1 connections: reads one request at a time, asks its face, and writes the answer.

``message_parsing`` reads heads and bodies instead of uvicorn's parser, which ends a message at
``Upgrade`` whatever its length, and adds trailers to the headers. Data behind a request is held
until the request is answered. A message with an unclear end closes the connection, so nothing
behind it is parsed. The listener and the server's life are uvicorn's.

A connection is in one of these states:

| State | Condition | Received data | Ends with |
| --- | --- | --- | --- |
| idle | none of the others | starts a request | a request, or the keep-alive timeout |
| reading | ``_head_begun``, ``_body`` | belongs to the request | its last byte |
| hot request | ``_exchange``, an ``Exchange`` | is held | its ``done`` or ``failed`` |
| other request | ``_exchange``, a ``PendingRequest`` | is held | the answer of its face |
| behind | ``_held`` | is held, too | the answer to the request before |
| taken over | ``_handler`` | belongs to the handler | a disconnect, or ``end`` |
| ending | ``is_dropping`` | is dropped | a disconnect, or a timeout |

``_closing`` closes the connection after the answer. A disconnect ends each state: long polls and
streams are cancelled, received messages are released, and later answers are discarded.
"""

from __future__ import annotations

import logging
import socket
from asyncio import Transport
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from struct import pack
from typing import Any, TypeVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from queuegate.gateway.faces.interface import ConnectionHandler, Headers, Response
from queuegate.gateway.http.app import WITHOUT_LENGTH, App, PendingRequest
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
from queuegate.gateway.operations.runtime.background_tasks import spawn

_log = logging.getLogger("queuegate.http")

_MOST_HEAD_BYTES = 65_536
_MOST_HELD_BYTES = 1_048_576
_MOST_DROPPED_BYTES = 134_217_728
_MOST_DROPPED_OF_STRANGERS = 65_536
_LINGERING_AT_THE_END_SECONDS = 2.0
_SHORT_BYTES = 16_384
"""Shorter bodies that arrive with their head count for no fair share."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = (b"connection", b"close")
_PLAIN = (b"content-type", b"text/plain; charset=utf-8")

Found = TypeVar("Found")

_bad_messages = RateLimitedLogger(60.0)


class HttpConnection(LimitedConnection):
    """An HTTP connection, and the ``ConnectionWriter`` of its handler.

    All connections of a process share ``faces`` and ``heads``.
    """

    faces: App
    heads: RequestHeads
    lingering_seconds = 30.0
    """Longest time to drop further data of the client after the last answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser = None  # type: ignore[assignment]
        self._head_begun = bytearray()
        self._body: RequestBody | None = None
        self._pending: PendingRequest | None = None
        """The request whose body is read; None: the body is dropped, behind an early answer."""
        self._exchange: Any = None
        """The ``Exchange`` or ``PendingRequest`` that is answered."""
        self._closing = False
        """True: close after the answer to the request."""
        self._takes_no_more = False
        """True: a handler has the connection, or further data is dropped."""
        self._drains = False
        self._client_ended = False
        self._dropped_bytes = -1
        """Bytes dropped since the last answer; -1 before it."""
        self._most_dropped_bytes = _MOST_DROPPED_BYTES
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._account_id = ""
        """Account of the handler; empty: none."""
        self._handler: ConnectionHandler | None = None
        """The handler of a connection that was taken over."""
        self._active_at = 0.0
        """The time of the last answer."""
        self._defaults: object = None
        self._common_lines = b""

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
        # Between an answer and the held data behind it, there is no exchange for a moment.
        is_owing = self._exchange is not None or bool(self._held)
        if not is_owing or self._is_receiving():
            return None
        self._client_ended = True
        self._closing = self._closing or not self._held
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop held data and notify the handler."""
        self._drop_held()
        super().connection_lost(exc)
        if self._handler is not None:
            self._handler.lost()
        if self._pending is not None:
            self._pending.cancel()

    def shutdown(self) -> None:
        """Finish the request in flight, then close: the server drains."""
        self._drains = True
        self.lingering_seconds = _LINGERING_AT_THE_END_SECONDS
        if self.is_dropping():
            self.transport.close()
        elif self._handler is not None:
            self._handler.shutdown()
        elif self._exchange is not None or self._pending is not None:
            self._closing = True
        else:
            self.transport.close()

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
        return self._account_id or self.address_share()

    def least_read_bytes(self) -> float:
        """Return a lower limit for streams: their client may be slow, but not silent."""
        return super().least_read_bytes() if self._handler is None else 1.0

    def close_unread(self) -> None:
        """Tell the handler that the peer stopped reading."""
        if self._handler is not None:
            self._handler.unread()
        super().close_unread()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. One timer serves many requests."""
        self.timeout_keep_alive_task = None
        left = self._active_at + self.timeout_keep_alive - self.loop.time()
        if self._exchange is not None or left > 0.0:
            self._arm(max(left, 1.0))
        else:
            super().timeout_keep_alive_handler()

    def _arm(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _is_receiving(self) -> bool:
        """Return True if the request waits for messages, or its answer is a stream."""
        return self._exchange is not None and self._exchange.receiving is not None

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
        is_free = self._exchange is None and not self._takes_no_more
        if not self._held or not is_free or self.transport.is_closing():
            return
        data = b"".join(self._held)
        self._drop_held()
        self.flow.resume_reading()
        self._read(data)
        if self._client_ended and not self._held:
            if self._exchange is None or self._is_receiving():
                self.transport.close()
            else:
                self._closing = True

    # Requests

    def _read(self, data: bytes) -> None:
        """Read data behind the last data."""
        try:
            while data and not self.is_dropping():
                data = self._read_head(data) if self._body is None else self._read_body(data)
                if data and self._exchange is not None:
                    self._hold(data)
                    return
        except BadMessage as bad:
            self._refuse(str(bad), bad.status)
        if self._body is not None or self._head_begun:
            # Reading has a deadline of its own.
            self._unset_keepalive_if_required()

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
            end = data.find(b"\r\n\r\n")
            if 0 <= end <= _MOST_HEAD_BYTES and may_start_head(data):
                return self._begin(self.heads.parse(data[:end]), data[end + 4 :])
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
        return self._begin(self.heads.parse(head), rest)

    def _begin(self, head: RequestHead, rest: bytes) -> bytes:
        """Start the request of a head, and return the data behind its body if that is complete."""
        length, body = head.fields.length, None
        if length is not None and length <= len(rest):
            body, rest = rest[:length], rest[length:]
            self._reading_since = 0.0
        else:
            self._body = RequestBody(length)
        is_short = body is not None and len(body) <= _SHORT_BYTES
        ends = self.client, self.scheme or "http", self.server
        pending = self.faces.receive(head, *ends, is_short=is_short)
        self._closing = not head.keep_alive
        if pending.mount.face is not None or pending.response is not None:
            self._expect(pending, body)
        else:
            self._exchange = pending
            opening = self._work(
                pending, pending.mount.open(), lambda _: self._opened(pending, body)
            )
            pending.work = self.loop.create_task(opening)
        return rest

    def _opened(self, pending: PendingRequest, body: bytes | None) -> None:
        """Continue behind a head whose face was not open."""
        if self._exchange is not pending:
            pending.end()
            return
        self._exchange = None
        self._expect(pending, body)
        self._release_held()

    def _expect(self, pending: PendingRequest, body: bytes | None) -> None:
        """Answer a request with a complete body, or read the body unless the head is enough."""
        if body is not None:
            if not pending.check_head():
                pending.take(body, is_last=True)
            self._ask(pending)
        elif pending.check_head() or pending.check_account():
            self._ask(pending)
        else:
            self._pending = pending
            if pending.expects_continue:
                self.transport.write(_CONTINUE)

    def _read_body(self, data: bytes) -> bytes:
        """Take data of the body and return the rest."""
        body, pending = self._body, self._pending
        assert body is not None
        content, rest = body.take(data)
        if content:
            self._count_body(len(content))
        if body.is_complete:
            self._body = None
            self._reading_since = 0.0
        is_last = body.is_complete
        if pending is not None and (content or is_last) and pending.take(content, is_last=is_last):
            self._ask(pending)
        return rest

    # Answers

    def _ask(self, pending: PendingRequest) -> None:
        """Answer a request: at once if its head or its length is refused, else by its face."""
        self._pending = None
        self._exchange = pending
        if pending.response is not None:
            self._respond(pending, pending.response)
            return
        request, face, tracing = pending.request, pending.face, self.faces.tracing
        context = None if tracing is None else tracing.context(request.span)
        respond = partial(self._respond, pending)
        if context is None:
            begun = face.try_start(request, respond)
        else:
            begun = context.run(face.try_start, request, respond)
        if begun is True:
            return
        if not begun:
            asking = self._work(pending, face.answer(request), respond)
            begun = self.loop.create_task(asking, context=context)
        pending.work = begun
        if face.may_wait(request):
            pending.receiving = pending

    async def _work(
        self, pending: PendingRequest, work: Awaitable[Found], done: Callable[[Found], None]
    ) -> None:
        """Pass the result of the work on. Close without an answer after an error."""
        try:
            done(await work)
        except BaseException:
            self.transport.close()
            pending.end()
            raise

    def _respond(self, pending: PendingRequest, response: Response) -> None:
        """Write the answer of a face, after the delay of a wrong signature."""
        seconds = pending.hold(response)
        if seconds:
            pending.receiving = pending
            pending.work = self.loop.call_later(seconds, self._write, pending, response)
        elif self.flow.write_paused:
            # The client has not read the answer before.
            draining = self._work(
                pending, self.flow.drain(), lambda _: self._write(pending, response)
            )
            pending.work = self.loop.create_task(draining)
        else:
            self._write(pending, response)

    def _write(self, pending: PendingRequest, response: Response) -> None:
        """Write an answer, or begin to, if its client is still connected."""
        pending.complete(response)
        body, request = response.body, pending.request
        if request.is_cut:
            self._most_dropped_bytes = _MOST_DROPPED_OF_STRANGERS
        if self._exchange is not pending or request.ending:
            self._leave_unsent(pending, response)
        elif isinstance(body, bytes):
            length = None if response.status in WITHOUT_LENGTH else len(body)
            shown = b"" if request.method == "HEAD" else body
            self._write_answer(response.status, response.headers, shown, length)
            self._written(pending)
        elif isinstance(body, ConnectionHandler):
            self._take_over(pending, response, body)
        else:
            self._write_parts(pending, response, body)

    def _leave_unsent(self, pending: PendingRequest, response: Response) -> None:
        """End a request whose client has disconnected, or whose answer a fault on purpose ends."""
        body = response.body
        if isinstance(body, ConnectionHandler):
            body.lost()
        elif not isinstance(body, bytes):
            # It may count bytes already.
            spawn(body.aclose())
        if self._exchange is pending:
            self._break_off(pending, pending.request.ending, response)
        else:
            pending.end()

    def _written(self, pending: PendingRequest) -> None:
        """End a request behind its answer."""
        pending.end()
        if self._body is not None and pending.expects_continue:
            # After a final answer, a client that sent Expect may omit its announced body.
            self._closing = True
        self._be_idle()

    def _write_parts(
        self, pending: PendingRequest, response: Response, parts: AsyncGenerator[bytes, None]
    ) -> None:
        """Begin to write an answer in parts. A client of HTTP/1.0 reads it up to the close."""
        headers = response.headers
        is_chunked = pending.head.version == "1.1" and all(
            name != b"content-length" for name, _ in headers
        )
        if pending.request.method == "HEAD":
            spawn(parts.aclose())
            self._write_answer(response.status, headers, b"", None)
            self._written(pending)
            return
        if is_chunked:
            headers = [*headers, (b"transfer-encoding", b"chunked")]
        self._write_answer(response.status, headers, b"", None)
        pending.receiving = pending
        stream = self._stream(parts, is_chunked=is_chunked)
        work = self.loop.create_task(self._work(pending, stream, lambda _: self._written(pending)))
        pending.work = work
        # The server cancels these tasks at the end of its drain.
        self.tasks.add(work)
        work.add_done_callback(self.tasks.discard)
        if self._client_ended:
            # The client may have disconnected.
            self.transport.close()

    async def _stream(self, parts: AsyncGenerator[bytes, None], *, is_chunked: bool) -> None:
        async with aclosing(parts):
            async for part in parts:
                await self.flow.drain()
                if part:
                    framed = b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part
                    self.transport.write(framed)
        await self.flow.drain()
        if is_chunked:
            self.transport.write(b"0\r\n\r\n")

    def _take_over(
        self, pending: PendingRequest, response: Response, handler: ConnectionHandler
    ) -> None:
        """Give the connection to a handler, behind the head of the answer.

        Connections of handlers may last for days, and are many: keep no request.
        """
        self._write_answer(response.status, response.headers, b"", None)
        pending.end()
        self._exchange = None
        self._takes_no_more = True
        self._unset_keepalive_if_required()
        if self._client_ended:
            self.transport.close()
        if self.transport.is_closing():
            handler.lost()
            return
        caller = pending.request.caller
        self._account_id = "" if caller is None else caller.account_id
        self._handler = handler
        handler.connection_made(self)
        if self._held:
            data = b"".join(self._held)
            self._drop_held()
            self.flow.resume_reading()
            self._hold(data)
        if self._drains:
            # The server started to drain before the handler was set.
            self.shutdown()

    def write(self, data: bytes) -> None:
        """Write data of the handler."""
        if not self.is_dropping():
            self.transport.write(data)

    def unsent_bytes(self) -> int:
        """Return the size of the write buffer."""
        return self.transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        self.flow.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again."""
        self.flow.resume_reading()

    def hang_up_after(self, seconds: int) -> None:
        """Close the connection if the peer acknowledges nothing for so long, where Linux can."""
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None:
            found = self.transport.get_extra_info("socket")
            found.setsockopt(socket.IPPROTO_TCP, option, seconds * 1000)

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    def _break_off(self, pending: PendingRequest, ending: str, response: Response) -> None:
        """End the connection in place of the answer, or within it: a fault on purpose."""
        body = response.body
        if ending == "truncate" and isinstance(body, bytes):
            part = body[: len(body) // 2]
            self._write_answer(response.status, response.headers, part, len(body) + 1)
        pending.end()
        self._exchange = None
        if ending == "half_close":
            self._drop_rest()
            return
        found = self.transport.get_extra_info("socket")
        if ending == "drop" and found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self.transport.close()

    def _write_answer(self, status: int, headers: Headers, body: bytes, length: int | None) -> None:
        """Write a head and a body. ``length``: its Content-Length, if it has one."""
        if self._defaults is not self.server_state.default_headers:
            self._render_defaults()
        parts = [STATUS_LINE[status], self._common_lines]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if length is not None:
            parts.append(b"content-length: %d\r\n" % length)
        if _CLOSE in headers:
            self._closing = True
        elif self._closing:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", body)
        self.transport.write(b"".join(parts))

    def _render_defaults(self) -> None:
        """Render the headers that all answers of this second share."""
        defaults = self._defaults = self.server_state.default_headers
        self._common_lines = b"".join([b"%b: %b\r\n" % header for header in defaults])

    def _be_idle(self) -> None:
        """Wait for the next request after a written answer."""
        self._exchange = None
        self.server_state.total_requests += 1
        if self._closing:
            self.end()
            return
        self._active_at = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._arm(self.timeout_keep_alive)
        if self._held:
            # Not within the answer to the request before: a long pipeline would recurse.
            self.loop.call_soon(self._release_held)

    # End of the connection

    def _refuse(self, text: str, status: int) -> None:
        """Answer an unreadable message and close: the next message cannot be located."""
        _bad_messages.warn(_log, "Invalid HTTP request from %s: %s", self.peer(), text)
        if self._body is None or self._pending is not None:
            # Otherwise the message has an answer.
            self._closing = True
            content = text.encode()
            self._write_answer(status, [_PLAIN], content, len(content))
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._drop_rest()

    def is_dropping(self) -> bool:
        return self._dropped_bytes >= 0

    def end(self) -> None:
        """Close after the last answer, once the client can have read it."""
        if self.is_dropping() or self.transport.is_closing():
            return
        is_read = self._body is None and not self._held and not self._head_begun
        if is_read and self._handler is None:
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
        self._takes_no_more = True
        self._unset_keepalive_if_required()
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
