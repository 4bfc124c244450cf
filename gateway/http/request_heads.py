"""The head of a request, read in one way for everybody.

``parse`` reads any head and refuses what two readers could understand differently. ``read`` is its
short form for the fast path: the few headers that count there, or None, and then ``parse`` decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_MOST_FAST_HEADERS = 64
_MOST_HEADERS = 256
_MOST_NAMES = 4096
_LONGEST_NAME = 64
_LENGTH_DIGITS = 19
_MOST_LINES = 256
_LONGEST_LINES = 1024

# Headers that change how a message is read or answered, or whether it is: whoever sends one takes
# the long way.
_UNUSUAL = frozenset(
    {
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"connection",
        b"content-encoding",
        b"te",
        b"trailer",
        b"origin",
        b"sec-fetch-site",
    }
)
_NEEDED = frozenset(
    {
        b"host",
        b"x-amz-target",
        b"content-length",
        b"content-type",
        b"authorization",
        b"x-amzn-trace-id",
    }
)
# Of these two would mean two things: one to whoever takes the first, one to whoever takes the last.
_ONCE = frozenset(
    {
        b"host",
        b"transfer-encoding",
        b"content-length",
        b"content-type",
        b"authorization",
        b"x-amz-target",
        b"expect",
        b"origin",
        b"sec-fetch-site",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
    }
)
# Those of HTTP and WebDAV: faces refuse in their own words what they have no use for, and metrics
# have a label for each.
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
# Everything below the space but TAB, and DEL: of these only the line ends may be in a head.
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x09})
_BLANKS = b" \t"

CONTROL_CHARACTER = "The request has a control character where none may be."

_OTHER = b""
_STRANGE = b"?"


class BadMessage(Exception):
    """The message cannot be read in one way only, or is out of all proportion."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Head(NamedTuple):
    """A request without its body."""

    method: bytes
    target: bytes
    """Path and query, as they came."""
    version: str
    """1.0 or 1.1."""
    headers: list[tuple[bytes, bytes]]
    """Names in lower case, values without blanks around them."""
    length: int | None
    """Of the body, in bytes; None: it comes in chunks."""
    keep_alive: bool


def is_authority(text: str) -> bool:
    """Whether this is a host, with or without port, as the header Host may have it."""
    return _HOST(text.encode("latin-1", "replace")) is not None


def authority_name(authority: str) -> str:
    """The name in host[:port], in lower case and without a final dot."""
    if authority.startswith("["):
        return authority.partition("]")[0].lower() + "]"
    return authority.partition(":")[0].lower().rstrip(".")


def may_begin_head(data: bytes | bytearray) -> bool:
    """Whether a request may begin like this: who speaks something else need not wait for a head
    to end that never will."""
    return _FIRST_WORD(data[:_LONGEST_FIRST_WORD]) is not None


def check_lines(lines: bytes) -> None:
    """Check the lines of a head or of trailers, without the empty one: BadMessage."""
    ends = lines.count(b"\r\n")
    if len(lines.translate(None, _CONTROLS)) != len(lines) - 2 * ends:
        raise BadMessage(CONTROL_CHARACTER)


class Lines(NamedTuple):
    """The headers of a request that has nothing unusual about it. They are shared."""

    headers: list[tuple[bytes, bytes]]
    named: Mapping[str, str]
    """The last of each name."""
    host: bytes
    length: int


class RequestHeads:
    """Reads heads. Header names as clients write them are judged once a spelling.

    ``more`` are needed headers besides those that always are.
    """

    def __init__(self, more: frozenset[bytes] = frozenset()) -> None:
        self._needed = _NEEDED | more
        self._kinds: dict[bytes, bytes] = {}
        self._lines: dict[bytes, Lines] = {}
        self._asked: dict[bytes, tuple[bytes, bytes]] = {}

    def read(self, head: bytes) -> dict[bytes, bytes] | None:
        """The needed headers, from what is between the request line and the empty line.

        None: something is unusual, or the Host is missing.
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

    def parse(self, head: bytes) -> Head:
        """All of a head, from the request line on, without the empty line at its end.

        Raises BadMessage. Upgrade is ignored, as RFC 9110 7.8 allows: the body belongs to the
        message as always, and only a face may take the connection over behind it.
        """
        check_lines(head)
        line, _, rest = head.partition(b"\r\n")
        headers, once = self._headers(rest)
        method, target, version = _request_line(line)
        host = once.get(b"host")
        if host is None:
            if version == "1.1":
                raise BadMessage("The request has no header Host.")
        elif _HOST(host) is None:
            raise BadMessage("The header Host names no host.")
        if not target.startswith(b"/"):
            target = _path_of(target, host)
        connection = {
            word.strip().lower()
            for name, value in headers
            if name == b"connection"
            for word in value.split(b",")
        }
        keep_alive = version == "1.1" and b"close" not in connection
        return Head(method, target, version, headers, _length(once, version), keep_alive)

    def common(self, head: bytes) -> tuple[bytes, bytes, Lines] | None:
        """Method, target and headers for the short way; None: something is unusual, or refused.

        A client sends the same headers all day: they are parsed once a spelling.
        """
        line, _, rest = head.partition(b"\r\n")
        lines = self._lines.get(rest)
        if lines is None:
            lines = self._common_lines(head)
            if lines is None:
                return None
            if len(rest) <= _LONGEST_LINES:
                if len(self._lines) >= _MOST_LINES:
                    self._lines.clear()
                self._lines[rest] = lines
        asked = self._asked.get(line) or self._common_line(line)
        return None if asked is None else (*asked, lines)

    def _common_line(self, line: bytes) -> tuple[bytes, bytes] | None:
        """Method and target. Many requests of a client begin alike, too."""
        try:
            method, target, version = _request_line(line)
        except BadMessage:
            return None
        # Of a fragment, which no client sends, uvicorn knows that it is no part of the path.
        if version != "1.1" or not target.startswith(b"/") or b"#" in target:
            return None
        if len(line) <= _LONGEST_LINES:
            if len(self._asked) >= _MOST_LINES:
                self._asked.clear()
            self._asked[line] = method, target
        return method, target

    def _common_lines(self, head: bytes) -> Lines | None:
        try:
            found = self.parse(head)
        except BadMessage:
            return None
        for name, value in found.headers:
            if name in _UNUSUAL and (name != b"connection" or value.lower() != b"keep-alive"):
                return None
        named = {name.decode("latin-1"): v.decode("latin-1") for name, v in found.headers}
        host = dict(found.headers).get(b"host")
        if host is None or found.length is None:
            return None
        return Lines(found.headers, named, host, found.length)

    def _headers(self, text: bytes) -> tuple[list[tuple[bytes, bytes]], dict[bytes, bytes]]:
        """All headers, and those that may be there once."""
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
            if len(self._kinds) >= _MOST_NAMES:
                # Whatever somebody made up has to make room for what clients send all day.
                self._kinds.clear()
            self._kinds[name] = kind
        return kind


def _request_line(line: bytes) -> tuple[bytes, bytes, str]:
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
    return method, target, version[-3:].decode()


def _path_of(target: bytes, host: bytes | None) -> bytes:
    """The path of a target with scheme and host, which proxies may send: Host must agree."""
    found = _ABSOLUTE(target)
    if found is None or host is None or found[1].lower() != host.lower():
        raise BadMessage("The target names another host than the header Host.")
    path = found[2] or b""
    return path if path.startswith(b"/") else b"/" + path


def _length(once: dict[bytes, bytes], version: str) -> int | None:
    coding = once.get(b"transfer-encoding")
    length = once.get(b"content-length")
    if coding is not None:
        if length is not None or version != "1.1" or coding.lower() != b"chunked":
            raise BadMessage("Transfer-Encoding can only be chunked here, and alone.")
        return None
    if length is None:
        return 0
    if not length.isdigit() or len(length) > _LENGTH_DIGITS:
        raise BadMessage("Content-Length is not a number of bytes.")
    return int(length)
