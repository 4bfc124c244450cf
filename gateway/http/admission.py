"""Admission: finds the origin of a request, and decides if the request may come from there.

**Pages.** A browser lets any web page send requests to a gateway on its user's machine. Credentials
do not prevent such requests where the gateway does not verify them. The browser's headers about the
page do: ``Origin``, ``Sec-Fetch-Site``, and a foreign ``Host`` after DNS rebinding. Clients other
than browsers send only a Host. The policy, on loopback and beyond:

- Pages of the gateway may send requests. Links from other sites to pages that only show data work.
- Pages of an origin in ``QUEUEGATE_ALLOWED_ORIGINS`` may send requests: preflights are answered,
  and all answers and refusals are readable (CORS). Cookies are never allowed: credentials are
  headers. The console's cookie counts on pages of the gateway alone.
- All other pages are refused, and can read nothing. A page on another port of this machine is
  another page: ``localhost`` has many services, and not all are careful.

On loopback, the ``Host`` must be a known name as well. Beyond loopback the names are unknown.

**Proxies.** The socket's peer is certain. Anyone can send headers, so they count only from a proxy
in ``QUEUEGATE_TRUSTED_PROXIES``. Proxies append to the right. Read from the right, the first
untrusted address is the client's. A proxy writes one of two kinds of headers, and may pass the
other from its client unchanged. If both kinds are present and differ, neither counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple, TypeAlias

from queuegate.gateway.configuration.values import Network, is_loopback
from queuegate.gateway.faces.interface import Request, RequestCheck, no_navigation
from queuegate.gateway.http.message_parsing import authority_name, is_authority
from queuegate.gateway.operations.access.caller import RequestOrigin

_OURS = ("localhost", "127.0.0.1", "[::1]", "host.docker.internal")
_MOST_HOSTS = 1000
_SAME = ("same-origin", "none")
_PREFLIGHT_SECONDS = b"7200"
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_SHOWN = (
    b"x-amzn-requestid, x-amzn-query-error, x-amzn-errortype, x-request-id, location, retry-after, "
    b"allow, date"
)
_VARY = (b"vary", b"origin")
_LONGEST_ORIGIN = 200

_HeaderList = list[tuple[bytes, bytes]]

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_FOR = b"x-forwarded-for"
_PROTO = b"x-forwarded-proto"
_HOST = b"x-forwarded-host"
_FORWARDED = b"forwarded"
_READ = frozenset({_FOR, _PROTO, _HOST, _FORWARDED})
_OF_PROXIES = _READ | {b"via", b"x-real-ip", b"x-forwarded-port", b"x-forwarded-server"}
_OF_WEB_HOOKS = b"x-amz-sns-message-type"
"""Header of the gateway's own web hook requests, which reach this machine if a subscription names
it and private addresses are allowed."""
_MOST_HOPS = 32
_MOST_PEERS = 10_000
_SCHEMES = ("http", "https")
_ELEMENT = re.compile(r'(?:[^,"]|"[^"]*")+')
_PAIR = re.compile(r'\s*([A-Za-z]+)=(?:"([^"]*)"|([^\s";]*))\s*(?:;|\Z)')


class Verdict(NamedTuple):
    """The decision about a request."""

    reason: str = ""
    """Reason of the refusal; empty: the request is admitted."""
    headers: _HeaderList | None = None
    """Additional headers of the answer, for allowed pages and for caches."""
    is_preflight: bool = False
    """True for a preflight: the headers are the answer."""


class Admission:
    """The admission policy of a gateway, from its addresses, names and allowed origins."""

    def __init__(
        self,
        *,
        listens_on: Sequence[str],
        base_url: str | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        proxies: Sequence[Network] = (),
    ) -> None:
        self.peers = Origins(proxies)
        """Finds the source of a request."""
        self._names: tuple[str, ...] | None = None
        if all(is_loopback(host) for host in listens_on):
            own = [f"[{host}]" if ":" in host else host.lower() for host in listens_on]
            of_base_url = [authority_name(base_url.partition("://")[2])] if base_url else []
            self._names = tuple(dict.fromkeys((*_OURS, *own, *of_base_url, *hosts)))
        self._origins = frozenset(origins)
        self.has_origins = bool(self._origins)
        """True if other origins are allowed: cacheable answers then need a Vary header."""
        self._own_origin = base_url.lower() if base_url else None
        self.hosts: set[bytes] = set()
        """Values of Host that were admitted lately, for the fast path."""

    def judge(self, request: Request, may_navigate: RequestCheck = no_navigation) -> Verdict:
        """Return the verdict on a request from its head. ``may_navigate`` allows links from other
        sites (``Mount.may_navigate``)."""
        headers = request.headers
        origin, refusal = headers.get("origin"), self._host_refusal(headers.get("host", ""))
        if origin is not None and ("*" in self._origins or origin.lower() in self._origins):
            if request.method == "OPTIONS" and "access-control-request-method" in headers:
                return Verdict(headers=_preflight(headers, origin), is_preflight=True)
            return Verdict(refusal, _shared(origin))
        reason = refusal or self._page_refusal(request, origin, may_navigate)
        # A cache must not mix answers for pages and answers for other clients.
        is_kept = self.has_origins and request.method in ("GET", "HEAD")
        return Verdict(reason, [_VARY] if is_kept else None)

    def _host_refusal(self, host: str) -> str:
        """Return the reason to refuse this Host; empty: the Host is known."""
        raw = host.encode("latin-1")
        if host and raw not in self.hosts:
            if not self._is_known(host):
                return (
                    f"The host {host} is not one of this gateway, which listens on loopback. "
                    "QUEUEGATE_ALLOWED_HOSTS takes its name."
                )
            if len(self.hosts) >= _MOST_HOSTS:
                self.hosts.clear()
            self.hosts.add(raw)
        return ""

    def _page_refusal(
        self,
        request: Request,
        origin: str | None,
        may_navigate: RequestCheck,
    ) -> str:
        """Return the reason to refuse a page of an unlisted origin; empty: admitted, or no page."""
        headers = request.headers
        if origin is None and "sec-fetch-site" not in headers:
            return ""
        if origin is not None and not self._is_own(origin, headers.get("host", "")):
            return _stranger(origin)
        if headers.get("sec-fetch-site", "none") in _SAME or may_navigate(request):
            return ""
        return (
            "A page of another site may not ask this gateway. QUEUEGATE_ALLOWED_ORIGINS takes its "
            "origin."
        )

    def _is_known(self, host: str) -> bool:
        if self._names is None:
            return True
        name = authority_name(host)
        return any(name == known or name.endswith("." + known) for known in self._names)

    def _is_own(self, origin: str, host: str) -> bool:
        """Return True if the page belongs to the gateway, under the requested name."""
        scheme, _, authority = origin.lower().partition("://")
        if scheme in _SCHEMES and authority and authority == host.lower():
            return True
        return self._own_origin is not None and origin.lower() == self._own_origin


def _stranger(origin: str) -> str:
    if origin == "null":
        return (
            "A page that has no origin, such as one opened from a file, may not ask this gateway. "
            "QUEUEGATE_ALLOWED_ORIGINS takes the origin of a server that has the page."
        )
    return (
        f"A page of {origin[:_LONGEST_ORIGIN]} may not ask this gateway. "
        "QUEUEGATE_ALLOWED_ORIGINS takes its origin."
    )


def _shared(origin: str) -> _HeaderList:
    """Return headers that let a page read an answer. ``Access-Control-Allow-Credentials`` is never
    among them."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _SHOWN),
        _VARY,
    ]


def _preflight(asked: Mapping[str, str], origin: str) -> _HeaderList:
    """Return headers that let a page send requests with any headers."""
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
        _VARY,
    ]
    wanted = asked.get("access-control-request-headers")
    if wanted:
        headers.append((b"access-control-allow-headers", wanted.encode("latin-1")))
    if asked.get("access-control-request-private-network") == "true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers


class _ForwardedValues(NamedTuple):
    """The values in headers of one kind. None: absent; an empty address: unknown."""

    address: str | None = None
    scheme: str | None = None
    host: str | None = None


class Origins:
    """Finds the origins of requests. ``trusted`` are the networks of trusted proxies."""

    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        self._trusted = tuple(trusted)
        self.headers = _READ if trusted else frozenset[bytes]()
        """Names of the headers that ``of`` reads."""
        self._peers: dict[tuple[str, str], tuple[RequestOrigin, bool]] = {}

    def of(self, client: tuple[str, int] | None, scheme: str, headers: Headers) -> RequestOrigin:
        """Return the origin of a request, by the socket's peer, its scheme and the headers.

        For a peer other than a trusted proxy this is one dictionary look-up.
        """
        direct, is_proxy = self._peer(client, scheme)
        return self._behind(direct, headers) if is_proxy else direct

    def is_trusted(self, client: tuple[str, int] | None) -> bool:
        """Return True if the peer is a trusted proxy."""
        return self._peer(client, "")[1]

    def is_local(
        self, client: tuple[str, int] | None, headers: Sequence[tuple[bytes, bytes]]
    ) -> bool:
        """Return True if a client on this machine sent the request, by a local name.

        A request via an untrusted proxy is not local: its client is unknown.
        """
        direct, is_proxy = self._peer(client, "")
        if not is_loopback(direct.address):
            return False
        named = dict(headers)
        if _OF_WEB_HOOKS in named or not _is_name_of_this_machine(named.get(b"host", b"")):
            return False
        if is_proxy and (_FOR in named or _FORWARDED in named):
            return is_loopback(self._behind(direct, headers).address)
        return _OF_PROXIES.isdisjoint(named)

    def _peer(self, client: tuple[str, int] | None, scheme: str) -> tuple[RequestOrigin, bool]:
        host = client[0] if client else ""
        known = self._peers.get((host, scheme))
        if known is None:
            address = _address(host)
            shown = "" if address is None else str(address)
            known = RequestOrigin(shown, scheme), address is not None and self._trusts(address)
            if len(self._peers) >= _MOST_PEERS:
                self._peers.clear()
            self._peers[(host, scheme)] = known
        return known

    def _trusts(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._trusted)

    def _behind(self, direct: RequestOrigin, headers: Headers) -> RequestOrigin:
        """Return the origin of a request from a trusted proxy."""
        found: dict[bytes, str] = {}
        for name, value in headers:
            if name in _READ:
                text = value.decode("latin-1")
                found[name] = f"{found[name]},{text}" if name in found else text
        if not found:
            return direct
        one, other = self._by_lists(found), self._by_elements(found.get(_FORWARDED))
        address = _agreed(one.address, other.address, "")
        return RequestOrigin(
            direct.address if address is None else address,
            _agreed(one.scheme, other.scheme, None) or direct.scheme,
            _agreed(one.host, other.host, None) or "",
        )

    def _by_lists(self, found: dict[bytes, str]) -> _ForwardedValues:
        """Return the values of X-Forwarded-For, -Proto and -Host."""
        lists = {
            name: _hops(found[name].split(",")) for name in (_FOR, _PROTO, _HOST) if name in found
        }
        hops = lists.get(_FOR)
        place = address = None
        if hops is not None:
            place, address = self._client(hops)

        def beside(name: bytes) -> str | None:
            """Return the value from the proxy that wrote the client's address, if the lists are
            parallel; otherwise the last value."""
            values = lists.get(name)
            if values is None:
                return None
            is_parallel = hops is not None and len(hops) == len(values)
            return values[place if is_parallel and place is not None else -1]

        return _ForwardedValues(address, _scheme(beside(_PROTO)), _authority(beside(_HOST)))

    def _by_elements(self, text: str | None) -> _ForwardedValues:
        """Return the values of Forwarded (RFC 7239)."""
        if text is None:
            return _ForwardedValues()
        elements = [_pairs(one) for one in _hops(_ELEMENT.findall(text))]
        place, address = self._client([one.get("for", "") for one in elements])
        if place is None:
            return _ForwardedValues("")
        client = elements[place]
        return _ForwardedValues(
            address, _scheme(client.get("proto")), _authority(client.get("host"))
        )

    def _client(self, hops: Sequence[str]) -> tuple[int | None, str]:
        """Return index and address of the client among the hops. The address is empty if a trusted
        proxy named an unreadable one."""
        found: tuple[int | None, str] = None, ""
        for place in range(len(hops) - 1, -1, -1):
            address = _address(hops[place])
            if address is None:
                return None, ""
            found = place, str(address)
            if not self._trusts(address):
                break
        return found


def _hops(values: list[str]) -> list[str]:
    """Return the last values only, to bound the work. No request has as many proxies."""
    return [value.strip() for value in values[-_MOST_HOPS:]]


def _pairs(element: str) -> dict[str, str]:
    return {name.lower(): quoted or plain for name, quoted, plain in _PAIR.findall(element)}


def _agreed(one: str | None, other: str | None, otherwise: str | None) -> str | None:
    """Return the common value, or the only one; ``otherwise`` if they differ."""
    if one is None or other is None:
        return other if one is None else one
    return one if one == other else otherwise


def _scheme(text: str | None) -> str | None:
    return text.lower() if text is not None and text.lower() in _SCHEMES else None


def _authority(text: str | None) -> str | None:
    return text if text and is_authority(text) else None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address with or without port, brackets and zone. Unwrap IPv4 within IPv6."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_name_of_this_machine(host: bytes) -> bool:
    """Return True if the Host is a name of loopback. After DNS rebinding it is another name."""
    name = authority_name(host.decode("latin-1")).strip("[]")
    return is_loopback(name) or name.endswith(".localhost") or name == "host.docker.internal"
