"""Tokens of listings, as AWS has them: they say behind what the next page begins."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from queuegate.protocol.errors import Malformed

_MOST_CHARACTERS = 256


def token_behind(listing: str, last: str) -> str:
    """An opaque token: the next page of `listing` begins behind `last`. ASCII texts only."""
    return urlsafe_b64encode(f"{listing}:{last}".encode("ascii")).decode("ascii")


def last_of(listing: str, token: str | None) -> str | None:
    """What `token_behind` was given; None without a token. Raises Malformed."""
    if not token:
        return None
    invalid = Malformed("Invalid or expired next token.")
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
