"""The head of a request on the fast path: the few headers that count, or that it is unusual.

Whatever uvicorn's parser might refuse counts as unusual, so that it alone decides what HTTP is.
"""

from __future__ import annotations

import re

_MOST_HEADERS = 64
_MOST_NAMES = 4096
_LONGEST_NAME = 64

# Headers that change how a message is read or answered: whoever sends one takes the long way.
_UNUSUAL = frozenset(
    {
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"connection",
        b"content-encoding",
        b"te",
        b"trailer",
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
        b"x-forwarded-proto",
    }
)
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
# Everything below the space but TAB, and DEL: of these only the line ends may be in a head.
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x09})

_OTHER = b""
_STRANGE = b"?"


def forwarded_scheme(value: str) -> str:
    """What the client spoke, from X-Forwarded-Proto: of a list what the first proxy heard. "" for
    what is no scheme of ours."""
    scheme = value.partition(",")[0].strip().lower()
    return scheme if scheme in ("http", "https") else ""


class RequestHeads:
    """Reads heads. Header names as clients write them are judged once a spelling.

    ``more`` are needed headers besides those that always are.
    """

    def __init__(self, more: frozenset[bytes] = frozenset()) -> None:
        self._needed = _NEEDED | more
        self._kinds: dict[bytes, bytes] = {}

    def read(self, head: bytes) -> dict[bytes, bytes] | None:
        """The needed headers, from what is between the request line and the empty line.

        None: something is unusual, or the Host is missing.
        """
        lines = head.split(b"\r\n")
        count = len(lines)
        if (
            count > _MOST_HEADERS
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

    def _kind(self, name: bytes) -> bytes:
        lower = name.lower()
        if lower in self._needed:
            kind = lower
        elif lower in _UNUSUAL or _TOKEN(name) is None:
            kind = _STRANGE
        else:
            kind = _OTHER
        if len(name) <= _LONGEST_NAME and len(self._kinds) < _MOST_NAMES:
            self._kinds[name] = kind
        return kind
