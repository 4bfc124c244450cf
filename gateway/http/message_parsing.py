"""Request heads and bodies, read in one way for all faces (RFC 9112).

``parse`` reads any head and refuses what two readers could understand differently. ``read`` is a
short form for the fast path: it returns the few headers needed there, or None, and then ``parse``
decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

_MOST_FAST_HEADERS = 64
_MOST_HEADERS = 256
_MOST_NAMES = 4096
_LONGEST_NAME = 64
_LENGTH_DIGITS = 19
_MOST_LINES = 256
_LONGEST_LINES = 1024

# Headers that change how a message is read or answered, or whether. Their requests take no fast
# path.
_UNUSUAL = frozenset(
    b"transfer-encoding expect upgrade connection content-encoding te trailer origin "
    b"sec-fetch-site".split()
)
_NEEDED = frozenset(
    b"host x-amz-target content-length content-type authorization x-amzn-trace-id".split()
)
# Headers that must not repeat: one reader would take the first, another one the last.
_ONCE = frozenset(
    b"host transfer-encoding content-length content-type authorization x-amz-target expect origin "
    b"sec-fetch-site sec-fetch-mode sec-fetch-dest".split()
)
# Methods of HTTP and WebDAV. Faces refuse unused methods with their own errors, and metrics have
# a label for each.
_METHODS = frozenset(
    b"GET HEAD POST PUT PATCH DELETE OPTIONS TRACE QUERY "
    b"PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK SEARCH REPORT".split()
)
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_PATH = re.compile(rb"/[!-~]*").fullmatch
_ABSOLUTE = re.compile(rb"https?://([^/?#]+)(/[!-~]*)?", re.IGNORECASE).fullmatch
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,255})(?::[0-9]{1,5})?").fullmatch
_FIRST_WORD = re.compile(rb"[A-Z]{1,9}(?: |\Z)").match
_LONGEST_FIRST_WORD = 10
# Control characters except TAB. In a head only line ends may have them.
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x09})
_BLANKS = b" \t"

_ONLY_CHUNKED = "Transfer-Encoding can only be chunked here, and alone."
CONTROL_CHARACTER = "The request has a control character where none may be."

_OTHER = b""
_STRANGE = b"?"

_MOST_TRAILER_BYTES = 16_384
_LONGEST_LINE = 4096
_MOST_FRAMING_BYTES = 65_536
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~\x80-\xff]*)?").fullmatch
_SIZE_LINE, _CONTENT, _CONTENT_END, _TRAILERS = range(4)

Value = TypeVar("Value")


class BadMessage(Exception):
    """The message is ambiguous or exceeds a limit."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class HeaderFields(NamedTuple):
    """The header fields of a request. Requests with the same fields share them."""

    raw: list[tuple[bytes, bytes]]
    """Names in lower case, values without surrounding blanks."""
    named: Mapping[str, str]
    """The last value of each name."""
    host: bytes | None
    length: int | None
    """Length of the body in bytes; None: chunked."""
    closes: bool
    """True with ``Connection: close``."""


class RequestHead(NamedTuple):
    """The head of a request."""

    method: str
    target: bytes
    """Path and query, undecoded, without a fragment."""
    fields: HeaderFields
    version: str = "1.1"
    """1.0 or 1.1."""
    keep_alive: bool = True


def is_authority(text: str) -> bool:
    """Return True for a host, with or without port, as in a Host header."""
    return _HOST(text.encode("latin-1", "replace")) is not None


def authority_name(authority: str) -> str:
    """Return the name in host[:port], in lower case and without a final dot."""
    if authority.startswith("["):
        return authority.partition("]")[0].lower() + "]"
    return authority.partition(":")[0].lower().rstrip(".")


def may_start_head(data: bytes | bytearray) -> bool:
    """Return True if a request may start like this. Clients of another protocol are refused at
    once, without waiting for the end of a head."""
    return _FIRST_WORD(data[:_LONGEST_FIRST_WORD]) is not None


def check_lines(lines: bytes) -> None:
    """Check the lines of a head or of trailers, without the empty one. Raise BadMessage."""
    ends = lines.count(b"\r\n")
    if len(lines.translate(None, _CONTROLS)) != len(lines) - 2 * ends:
        raise BadMessage(CONTROL_CHARACTER)


class RequestHeads:
    """Reads heads. Classifies each spelling of a header name once.

    ``more`` are needed headers in addition to the constant ones.
    """

    def __init__(self, more: frozenset[bytes] = frozenset()) -> None:
        self._needed = _NEEDED | more
        self._kinds: dict[bytes, bytes] = {}
        self._fields: dict[bytes, HeaderFields] = {}
        self._lines: dict[bytes, tuple[str, bytes, str]] = {}

    def read(self, head: bytes) -> dict[bytes, bytes] | None:
        """Return the needed headers, from the lines between request line and empty line.

        None: the request is unusual, or the Host is missing.
        """
        lines = head.split(b"\r\n")
        count = len(lines)
        if (
            count > _MOST_FAST_HEADERS
            or len(head.translate(None, _CONTROLS)) != len(head) - 2 * count + 2
        ):
            return None
        found: dict[bytes, bytes] = {}
        kinds = self._kinds
        for line in lines:
            name, colon, value = line.partition(b":")
            kind = kinds.get(name)
            if kind is None:
                kind = self._kind(name)
            if not colon:
                return None
            if not kind:
                continue
            if kind == _STRANGE:
                if name.lower() == b"connection" and value.strip().lower() == b"keep-alive":
                    continue
                return None
            if kind in found:
                return None
            found[kind] = value.strip()
        return found if b"host" in found else None

    def parse(self, head: bytes) -> RequestHead:
        """Parse a whole head, from the request line on, without the empty line at its end.

        Raises BadMessage. Upgrade is ignored, as RFC 9110 7.8 allows: the body belongs to the
        message, and only a face may take over the connection behind it.
        """
        line, _, rest = head.partition(b"\r\n")
        # Clients repeat their request lines and headers, so each spelling is parsed once.
        fields = self._fields.get(rest) or self._parse_fields(rest)
        method, target, version = self._lines.get(line) or self._parse_line(line)
        is_new = version == "1.1"
        if fields.host is None and is_new:
            raise BadMessage("The request has no header Host.")
        if fields.length is None and not is_new:
            raise BadMessage(_ONLY_CHUNKED)
        if not target.startswith(b"/"):
            target = _path_of(target, fields.host)
        return RequestHead(method, target, fields, version, is_new and not fields.closes)

    def _parse_line(self, line: bytes) -> tuple[str, bytes, str]:
        check_lines(line)
        found = _request_line(line)
        if len(line) <= _LONGEST_LINES:
            _keep(self._lines, _MOST_LINES, line, found)
        return found

    def _parse_fields(self, text: bytes) -> HeaderFields:
        check_lines(text)
        raw, once = self._headers(text)
        host = once.get(b"host")
        if host is not None and _HOST(host) is None:
            raise BadMessage("The header Host names no host.")
        connection = {
            word.strip().lower()
            for name, value in raw
            if name == b"connection"
            for word in value.split(b",")
        }
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        fields = HeaderFields(raw, named, host, _length(once), b"close" in connection)
        if len(text) <= _LONGEST_LINES:
            _keep(self._fields, _MOST_LINES, text, fields)
        return fields

    def _headers(self, text: bytes) -> tuple[list[tuple[bytes, bytes]], dict[bytes, bytes]]:
        """Return all headers, and those that may occur once."""
        headers: list[tuple[bytes, bytes]] = []
        once: dict[bytes, bytes] = {}
        lines = text.split(b"\r\n") if text else []
        if len(lines) > _MOST_HEADERS:
            raise BadMessage(f"The request has more than {_MOST_HEADERS} headers.", 431)
        for line in lines:
            name, colon, value = line.partition(b":")
            kind = self._kinds.get(name)
            if kind is None:
                kind = self._kind(name)
            if not colon or (kind == _STRANGE and _TOKEN(name) is None):
                raise BadMessage("A line of the head is no header.")
            name, value = name.lower(), value.strip(_BLANKS)
            if name in _ONCE:
                if name in once:
                    raise BadMessage(f"The header {name.decode()} is there twice.")
                once[name] = value
            headers.append((name, value))
        return headers, once

    def _kind(self, name: bytes) -> bytes:
        lower = name.lower()
        if lower in self._needed:
            kind = lower
        else:
            kind = _STRANGE if lower in _UNUSUAL or _TOKEN(name) is None else _OTHER
        if len(name) <= _LONGEST_NAME:
            _keep(self._kinds, _MOST_NAMES, name, kind)
        return kind


def _keep(cache: dict[bytes, Value], most: int, key: bytes, value: Value) -> None:
    """Keep a value. A full cache is cleared: made-up keys must not displace common ones."""
    if len(cache) >= most:
        cache.clear()
    cache[key] = value


def _request_line(line: bytes) -> tuple[str, bytes, str]:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise BadMessage("The first line is not a method, a target and a version.")
    method, target, version = parts
    if method not in _METHODS:
        raise BadMessage("The method is not one that is known here.")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadMessage("The version is not HTTP/1.1 or HTTP/1.0.")
    if _PATH(target) is None and _ABSOLUTE(target) is None:
        raise BadMessage("The target is not a path.")
    return method.decode(), target.partition(b"#")[0], version[-3:].decode()


def _path_of(target: bytes, host: bytes | None) -> bytes:
    """Return the path of an absolute target, which proxies may send. The Host must agree."""
    found = _ABSOLUTE(target)
    if found is None or host is None or found[1].lower() != host.lower():
        raise BadMessage("The target names another host than the header Host.")
    path = found[2] or b""
    return path if path.startswith(b"/") else b"/" + path


def _length(once: dict[bytes, bytes]) -> int | None:
    coding = once.get(b"transfer-encoding")
    length = once.get(b"content-length")
    if coding is not None:
        if length is not None or coding.lower() != b"chunked":
            raise BadMessage(_ONLY_CHUNKED)
        return None
    if length is None:
        return 0
    if not length.isdigit() or len(length) > _LENGTH_DIGITS:
        raise BadMessage("Content-Length is not a number of bytes.")
    return int(length)


class RequestBody:
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
