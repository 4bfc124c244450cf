"""URLs of web hooks: which we would post to (docs/contract/sns.md 3.4)."""

from __future__ import annotations

import re
import socket
from urllib.parse import SplitResult, urlsplit

from queuegate.gateway.operations.limits import LIMITS
from queuegate.protocol.addresses import is_private
from queuegate.protocol.endpoint_urls import is_basic
from queuegate.storage.errors import AuthorizationError, WebHookRefused

# What a URL may be made of (RFC 3986); everything else comes escaped.
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
# In brackets an IPv6 address only: what else the grammar has for them, nobody can look up.
_HOST_AND_PORT = re.compile(
    r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]{1,44}\])(:[0-9]{0,5})?"
)


def check_web_hook(protocol: str, endpoint: str, *, allow_private: bool) -> None:
    """Refuse what is no URL, or not of that protocol, or leads to us or a neighbour.

    Whether somebody answers there does not matter. Raises WebHookRefused, AuthorizationError.
    """
    if len(endpoint) > LIMITS.endpoint_length or not endpoint.isprintable():
        # A lone surrogate is not printable, either.
        raise WebHookRefused("Endpoint")
    if not endpoint.startswith(f"{protocol}://"):
        raise WebHookRefused("Endpoint must match the specified protocol")
    url = _split(endpoint)
    host = None if url is None else url.hostname
    if not host:
        raise WebHookRefused("Endpoint")
    if not allow_private and _is_inside(host):
        raise AuthorizationError("Not authorized to subscribe internal endpoints")


def _split(endpoint: str) -> SplitResult | None:
    """The parts of a URL; None when it has odd ones. There may be one `@` before the host: with
    more, programs do not agree on where it begins."""
    if _URL.fullmatch(endpoint) is None:
        return None
    try:
        url = urlsplit(endpoint)
        has_port = url.port != 0
    except ValueError:
        return None
    user_info, at, host_and_port = url.netloc.rpartition("@")
    is_odd = _HOST_AND_PORT.fullmatch(host_and_port) is None or (at and not is_basic(user_info))
    return url if has_port and not is_odd else None


def _is_inside(host: str) -> bool:
    """Whether a host names us or a neighbour, as far as the name itself says so: it is looked up
    when something is delivered."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if ":" in name:
        return is_private(name)
    try:
        # Takes every form that a resolver does: 127.1, 0x7f000001, 2130706433.
        address = socket.inet_ntoa(socket.inet_aton(name))
    except OSError:
        return False
    return is_private(address)
