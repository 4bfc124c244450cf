"""URLs of web hooks, also with a user and a password in them, for basic authentication.

AWS takes `https://user:password@host/path` (its page "Fanout Amazon SNS notifications to HTTPS
endpoints") and shows it as `https://user:****@host/path`.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

WEB = frozenset({"http", "https"})
"""The protocols of web hooks."""

_PASSWORD = re.compile(r"(https?://[^/?#@:]*):[^/?#@]*@")


def without_password(endpoint: str) -> str:
    """The endpoint as it may be shown and logged; what has no password comes back unchanged."""
    return _PASSWORD.sub(r"\1:****@", endpoint, count=1) if "@" in endpoint else endpoint


def is_basic(user_info: str) -> bool:
    """Whether what is before the `@` of a URL fits into the header of basic authentication.

    That has room for Latin-1 only, and ends the user at the first colon (RFC 7617).
    """
    user, _, password = user_info.partition(":")
    if not (user or password) or "@" in user_info:
        return False
    try:
        decoded = unquote(user, errors="strict"), unquote(password, errors="strict")
        "".join(decoded).encode("latin-1")
    except UnicodeError:
        return False
    return ":" not in decoded[0]
