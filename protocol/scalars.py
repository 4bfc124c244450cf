"""Text to values, for both wires. Each function raises Malformed and nothing else."""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from datetime import UTC, datetime

from queuegate.protocol.errors import Malformed
from queuegate.protocol.shapes import ScalarKind

# \d also matches the digits of every other script, and int() takes "1_0": hence our own pattern.
# The length bound keeps int() linear.
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_LIMITS: dict[ScalarKind, int] = {"integer": 2**31, "long": 2**63}
_WHITESPACE = b" \t\r\n"


def parse_integer(kind: ScalarKind, value: str | int) -> int:
    """A decimal number that fits in 32 ("integer") or 64 ("long") bits."""
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise Malformed(f"STRING_VALUE can not be converted to {_article(kind)}")
        value = int(value)
    limit = _LIMITS[kind]
    if not -limit <= value < limit:
        raise Malformed(f"NUMBER_VALUE is out of range for {_article(kind)}")
    return value


def parse_boolean(text: str) -> bool:
    """`true` or `false` in any case."""
    lowered = text.lower()
    if lowered == "true":
        return True
    if lowered == "false":
        return False
    raise Malformed("STRING_VALUE can not be converted to a Boolean")


def parse_blob(text: str) -> bytes:
    """Standard base64 with its padding; line breaks and spaces, which tools insert, are ignored."""
    try:
        # Of texts it takes ten times as long.
        return a2b_base64(text.encode("ascii").translate(None, _WHITESPACE), strict_mode=True)
    except (Base64Error, ValueError):
        raise Malformed("STRING_VALUE can not be converted to a Blob") from None


def parse_timestamp(text: str) -> datetime:
    """ISO 8601, or seconds since the epoch. Without a time zone it is UTC."""
    try:
        if _INTEGER.fullmatch(text):
            return datetime.fromtimestamp(int(text), UTC)
        instant = datetime.fromisoformat(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise Malformed("STRING_VALUE can not be converted to a Timestamp") from None


def _article(kind: ScalarKind) -> str:
    return "an Integer" if kind == "integer" else "a Long"
