"""Which addresses a request of ours must not go to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis.strategies import ip_addresses

from queuegate.protocol.urls import is_private

INSIDE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1",
    "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1",
    "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "168.63.129.16", "192.88.99.0", "192.88.99.255", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255",
]  # fmt: skip
OUTSIDE = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.1",
    "126.255.255.255", "128.0.0.1", "168.63.129.15",
    "168.63.129.17", "192.88.98.255", "192.88.100.0", "169.253.255.255",
    "172.15.255.255", "172.32.0.1",
    "192.167.255.255", "198.17.255.255", "223.255.255.255",
]  # fmt: skip
# Each with the IPv4 address in its place.
CARRIERS = ["::ffff:{}", "::{}", "64:ff9b::{}"]


@pytest.mark.parametrize("ip", INSIDE)
def test_private_addresses_are_refused_in_every_form(ip: str) -> None:
    assert is_private(ip)
    number = int(ipaddress.IPv4Address(ip))
    assert is_private(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1")
    for carrier in CARRIERS:
        assert is_private(carrier.format(ip)), carrier


@pytest.mark.parametrize("ip", OUTSIDE)
def test_public_addresses_are_not(ip: str) -> None:
    assert not is_private(ip)
    number = int(ipaddress.IPv4Address(ip))
    assert not is_private(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1")
    assert not is_private(f"::ffff:{ip}")
    assert not is_private(f"64:ff9b::{ip}")


@pytest.mark.parametrize(
    "ip",
    [
        "::", "::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254",
        "ff02::1", "ff0e::1", "100::1", "64:ff9b:1::1", "2001::1", "2001:db8::1", "3fff::1",
        "4000::1", "::ffff:0:127.0.0.1",
    ],
)  # fmt: skip
def test_other_private_addresses_of_ipv6_are_refused(ip: str) -> None:
    assert is_private(ip)


@pytest.mark.parametrize("ip", ["2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450::1"])
def test_public_addresses_of_ipv6_are_not(ip: str) -> None:
    assert not is_private(ip)


@pytest.mark.parametrize(
    "text", ["", "localhost", "2130706433", "0x7f000001", "127.1", "1.2.3.4.5"]
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    assert is_private(text)


@given(ip_addresses())
def test_every_address_is_one_or_the_other(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    inside = is_private(str(address))
    assert inside or not (address.is_private or address.is_loopback or address.is_multicast)
