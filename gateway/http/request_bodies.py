"""Request bodies: their framing and content (RFC 9112 6 and 7)."""

from __future__ import annotations

import re

from queuegate.gateway.http.request_heads import BadMessage, check_lines

_MOST_TRAILER_BYTES = 16_384
_LONGEST_LINE = 4096
_MOST_FRAMING_BYTES = 65_536
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~\x80-\xff]*)?").fullmatch
_SIZE_LINE, _CONTENT, _CONTENT_END, _TRAILERS = range(4)


class Body:
    """The body of one message. ``length`` None: chunked.

    Trailers are read and dropped: only the head controls a request.
    """

    def __init__(self, length: int | None) -> None:
        self.is_complete = length == 0
        self._is_chunked = length is None
        self._left = length or 0
        self._state = _SIZE_LINE
        self._cut = b""
        self._framing_bytes = 0
        self._content_bytes = 0
        self._trailer_bytes = 0

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the content in data, and the data behind this message. Raises BadMessage."""
        if self._is_chunked:
            return self._take_chunks(data)
        left = self._left
        if len(data) < left:
            self._left = left - len(data)
            return data, b""
        self._left = 0
        self.is_complete = True
        return (data, b"") if len(data) == left else (data[:left], data[left:])

    def _take_chunks(self, data: bytes) -> tuple[bytes, bytes]:
        if self._cut:
            data = self._cut + data
            self._cut = b""
        parts: list[bytes] = []
        at, end = 0, len(data)
        while not self.is_complete and at < end:
            if self._state == _CONTENT:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._content_bytes += len(part)
                if not self._left:
                    self._state = _CONTENT_END
                continue
            line_end = data.find(b"\r\n", at, at + _LONGEST_LINE + 2)
            if line_end < 0:
                if end - at > _LONGEST_LINE:
                    raise BadMessage("A line between two chunks is too long.")
                self._cut = data[at:]
                break
            self._take_line(data[at:line_end])
            at = line_end + 2
        return b"".join(parts), data[at:] if self.is_complete else b""

    def _take_line(self, line: bytes) -> None:
        if self._state == _TRAILERS:
            self._take_trailer(line)
            return
        # Limits framing: chunks of one byte would cost a thousand times their content.
        self._framing_bytes += len(line) + 2
        if self._framing_bytes > _MOST_FRAMING_BYTES + self._content_bytes:
            raise BadMessage("The chunks are too small for what is around them.")
        if self._state == _CONTENT_END:
            if line:
                raise BadMessage("A chunk is longer than its size.")
            self._state = _SIZE_LINE
            return
        found = _SIZE(line)
        if found is None:
            raise BadMessage("A chunk does not begin with its size.")
        self._left = int(found[1], 16)
        self._state = _CONTENT if self._left else _TRAILERS

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.is_complete = True
            return
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > _MOST_TRAILER_BYTES:
            raise BadMessage("There is too much behind the last chunk.", 431)
        check_lines(line)
