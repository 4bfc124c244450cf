"""Which IP addresses are not the public internet's."""

from __future__ import annotations

import ipaddress

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
# All that is routed: link-local, unique local, multicast and translated addresses lie outside.
_UNICAST = ipaddress.IPv6Network("2000::/3")
# Of the protocols themselves, and the metadata service of one cloud; old Pythons know a part only.
_ASSIGNMENTS = ipaddress.IPv4Network("192.0.0.0/24")
# Public by number only: relays of 6to4, which nobody runs for us, and Azure's own services, which
# every machine there reaches without leaving it.
_RELAYS = ipaddress.IPv4Network("192.88.99.0/24")
_AZURE = ipaddress.IPv4Address("168.63.129.16")
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")


def is_private(ip: str) -> bool:
    """Whether a request to this address would stay inside; true of what is not an address, too.

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
    """The IPv4 address to which a request to this one would go."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour
