"""URLs of web hooks, and the IP addresses that are not on the public internet.

AWS accepts a user and a password in `https://user:password@host/path` (its page "Fanout Amazon SNS
notifications to HTTPS endpoints") and shows `https://user:****@host/path`.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote

WEB = frozenset({"http", "https"})
"""Protocols of web hooks."""

_PASSWORD = re.compile(r"(https?://[^/?#@:]*):[^/?#@]*@")


def without_password(endpoint: str) -> str:
    """Return the endpoint for display and logs, with the password masked."""
    return _PASSWORD.sub(r"\1:****@", endpoint, count=1) if "@" in endpoint else endpoint


def is_basic(user_info: str) -> bool:
    """Return True if the user info of a URL fits into the header of basic authentication. The
    header allows Latin-1 only and ends the user at the first colon (RFC 7617)."""
    user, _, password = user_info.partition(":")
    if not (user or password) or "@" in user_info:
        return False
    try:
        decoded = unquote(user, errors="strict"), unquote(password, errors="strict")
        "".join(decoded).encode("latin-1")
    except UnicodeError:
        return False
    return ":" not in decoded[0]


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
# All routed addresses, without link-local, unique local, multicast and translated ones.
_UNICAST = ipaddress.IPv6Network("2000::/3")
# Of the protocols themselves, and the metadata service of one cloud; old Pythons know a part only.
_ASSIGNMENTS = ipaddress.IPv4Network("192.0.0.0/24")
# Public by number only: relays of 6to4, which nobody runs for us, and Azure's own services, which
# every machine there reaches without leaving it.
_RELAYS = ipaddress.IPv4Network("192.88.99.0/24")
_AZURE = ipaddress.IPv4Address("168.63.129.16")
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")


def is_private(ip: str) -> bool:
    """Return True if a request to this address would stay inside, and for texts that are no
    address.

    Loopback, private and shared (RFC 1918, RFC 6598, RFC 4193), link-local with the metadata
    services of clouds, Azure's address of its own services, relays of 6to4, multicast, unspecified,
    reserved and documentation ranges; and every IPv6 form that carries such an IPv4 address:
    mapped, compatible, NAT64 and 6to4. Teredo and NAT64 of a site are always inside.
    """
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return _is_inside(address)
    return _is_inside_6(address)


def _is_inside(address: ipaddress.IPv4Address) -> bool:
    # 100.64.0.0/10 is neither global nor private to `ipaddress`.
    is_special = address.is_multicast or address.is_reserved or address == _AZURE
    is_special = is_special or address in _ASSIGNMENTS or address in _RELAYS
    return is_special or not address.is_global


def _is_inside_6(address: ipaddress.IPv6Address) -> bool:
    carried = _carried(address)
    if carried is not None:
        return _is_inside(carried)
    return address not in _UNICAST or not address.is_global or address in _DOCUMENTATION


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that receives requests to this IPv6 address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour
