"""Pages of listings of SNS: behind what the next one begins."""

from __future__ import annotations

from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
)
from queuegate.protocol import page_tokens
from queuegate.protocol.errors import Malformed

_MOST_DIGITS = 18


def last_of(listing: str, token: str | None) -> str:
    """What the token was made of; "" without one. Raises InvalidParameter."""
    try:
        return page_tokens.last_of(listing, token) or ""
    except Malformed:
        raise InvalidParameter("NextToken") from None


def position_behind(listing: str, token: str | None) -> int:
    """The same of listings in order of a number: the last one seen, 0 without a token."""
    last = last_of(listing, token) or "0"
    if len(last) > _MOST_DIGITS or not (last.isascii() and last.isdigit()):
        raise InvalidParameter("NextToken")
    return int(last)
