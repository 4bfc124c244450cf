"""Pages of listings: tokens that say behind what the next page begins."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from storage.errors import InvalidParameter, InvalidParameterValue

_MOST_CHARACTERS = 256
_MOST_DIGITS = 18


def token_behind(listing: str, last: str) -> str:
    """An opaque token: the next page of ``listing`` begins behind ``last``. ASCII texts only."""
    return urlsafe_b64encode(f"{listing}:{last}".encode("ascii")).decode("ascii")


def last_of(listing: str, token: str | None) -> str | None:
    """What ``token_behind`` was given; None without a token. Raises InvalidParameterValue."""
    if not token:
        return None
    invalid = InvalidParameterValue("Invalid or expired next token.")
    if len(token) > _MOST_CHARACTERS:
        raise invalid
    try:
        text = urlsafe_b64decode(token.encode("ascii")).decode("ascii")
    except (ValueError, binascii.Error):
        raise invalid from None
    found, _, last = text.partition(":")
    if found != listing or not last or not last.isprintable():
        raise invalid
    return last


def sns_last_of(listing: str, token: str | None) -> str | None:
    """``last_of`` for listings of SNS. Raises InvalidParameter."""
    try:
        return last_of(listing, token)
    except InvalidParameterValue:
        raise InvalidParameter("NextToken") from None


def position_behind(listing: str, token: str | None) -> int:
    """For listings of SNS in order of a number: the last one seen, 0 without a token.

    Raises InvalidParameter.
    """
    last = sns_last_of(listing, token) or "0"
    if len(last) > _MOST_DIGITS or not (last.isascii() and last.isdigit()):
        raise InvalidParameter("NextToken")
    return int(last)
