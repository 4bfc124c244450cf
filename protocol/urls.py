"""Queue URLs, paths and bare names, and the queues that they name (docs/contract/protocol.md 1.4);
URLs of web hooks, and IP addresses that are not on the public internet.

AWS accepts a user and a password in `https://user:password@host/path` (its page "Fanout Amazon SNS
notifications to HTTPS endpoints") and shows `https://user:****@host/path`.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import unquote

RegionIn = Literal["none", "path", "host"]

_ACCOUNT = re.compile(r"[0-9]{12}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_LONGEST = 2048
_AWS_REGION = r"[a-z]{2,8}(?:-[a-z]{2,16}){1,3}-[0-9]{1,2}"
_IN_HOST = re.compile(rf"(?:[^./]+\.)?sqs\.({_AWS_REGION})\.|({_AWS_REGION})\.queue\.")
_OWN_HOST = re.compile(rf"sqs\.{_AWS_REGION}\.")
_WITHOUT_SUBDOMAINS = re.compile(r"[0-9.]+(:[0-9]*)?|\[.*")


class QueueAddress(NamedTuple):
    """The name of a queue. `account_id` None: the caller's; `region` None: the caller's."""

    account_id: str | None
    name: str
    region: str | None = None


def queue_from_url(url_or_name: str) -> QueueAddress | None:
    """Return the queue of a QueueUrl parameter; None: it names none. Only the end of the path
    counts, and only a region in the host, so URLs survive proxies, renames and every host style:
    `https://sqs.<region>.amazonaws.com/<account>/<name>`,
    `http://host:port/queue/<region>/<account>/<name>`. A bare name is accepted, as on AWS."""
    return _cached_url(url_or_name) if len(url_or_name) <= _LONGEST else None


@lru_cache(maxsize=4096)
def _cached_url(text: str) -> QueueAddress | None:
    _, has_host, rest = text.partition("://")
    if not has_host:
        return _last_two(text)
    host, has_path, path = rest.partition("/")
    address = _last_two(path) if has_path else None
    if address is None or address.region is not None:
        return address
    return address._replace(region=region_of_host(host))


def region_of_host(host: str) -> str | None:
    """Return the region in `sqs.<region>.<anything>` and `<region>.queue.<anything>`."""
    match = _IN_HOST.match(host)
    return None if match is None else match[1] or match[2]


def queue_url(
    base_url: str, region: str, address: QueueAddress, *, home_region: str, region_in: RegionIn
) -> str:
    """Return the URL of a queue in a region; `queue_from_url` reads it back.

    `base_url` is scheme and host. With `region_in` "none" the path is `/<account>/<name>` and the
    region comes from the signature of each request. With "path" the path names the region, unless
    the region is `home_region`. With "host" the host names it as AWS's hosts do, if the host can
    have sub-domains and the region has the form of AWS's; otherwise the path does. A `base_url`
    whose host names another region is corrected by the path.
    """
    path = f"{address.account_id}/{address.name}"
    scheme, _, host = base_url.partition("://")
    if region_in == "host" and not _WITHOUT_SUBDOMAINS.fullmatch(host):
        named = f"sqs.{region}.{_OWN_HOST.sub('', host, count=1)}"
        if region_of_host(named) == region:
            return f"{scheme}://{named}/{path}"
    named_region = region_of_host(host) or (home_region if region_in != "none" else region)
    if region == named_region:
        return f"{base_url}/{path}"
    return f"{base_url}/queue/{region}/{path}"


def queue_from_path(path: str) -> QueueAddress | None:
    """Return the queue of a request path: `/<account>/<name>`, `/queue/<region>/<account>/<name>`,
    `/queue/<name>`. Stricter than a QueueUrl: paths with neither an account nor the word `queue`
    belong to other faces."""
    if path == "/" or len(path) > _LONGEST:
        return None
    address = _last_two(path)
    if address is not None and (address.account_id or path.startswith("/queue/")):
        return address
    return None


def url_of_path(host: str, path: str) -> str:
    """Return the QueueUrl of a queue's path in a request to that host."""
    return f"http://{host}{path}"


def _last_two(path: str) -> QueueAddress | None:
    path = path.partition("?")[0].partition("#")[0].strip("/")
    if "%" in path:
        path = unquote(path)
    before, _, name = path.rpartition("/")
    if _NAME.fullmatch(name) is None:
        return None
    before, _, parent = before.rpartition("/")
    if _ACCOUNT.fullmatch(parent) is not None:
        before, _, region = before.rpartition("/")
        is_named = before.rpartition("/")[2] == "queue" and _REGION.fullmatch(region)
        return QueueAddress(parent, name, region if is_named else None)
    return QueueAddress(None, name) if parent in ("", "queue") else None


WEB = frozenset({"http", "https"})

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
    carried = _carried(address)
    if carried is not None:
        return _is_inside(carried)
    return address not in _UNICAST or not address.is_global or address in _DOCUMENTATION


def _is_inside(address: ipaddress.IPv4Address) -> bool:
    # 100.64.0.0/10 is neither global nor private to `ipaddress`.
    is_special = address.is_multicast or address.is_reserved or address == _AZURE
    is_special = is_special or address in _ASSIGNMENTS or address in _RELAYS
    return is_special or not address.is_global


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that receives requests to this IPv6 address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour
