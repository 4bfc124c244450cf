"""Admission: decides for all faces and pages whether a request may come from its source.

A browser lets any web page send requests to a gateway on its user's machine. Credentials do not
prevent such requests where the gateway does not verify them. The browser's headers about the page
do: ``Origin``, ``Sec-Fetch-Site``, and a foreign ``Host`` after DNS rebinding. Clients other than
browsers send only a Host.

The policy, on loopback and beyond:

- Pages of the gateway may send requests. Links from other sites to pages that only show data work.
- Pages of an origin in ``QUEUEGATE_ALLOWED_ORIGINS`` may send requests: preflights are answered,
  and all answers and refusals are readable (CORS). Cookies are never allowed: credentials are
  headers.
- All other pages are refused, and can read nothing. A page on another port of this machine is
  another page: ``localhost`` has many services, and not all are careful.

On loopback, the ``Host`` must be a known name as well. Beyond loopback the names are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple

from queuegate.gateway.configuration.values import Network, is_loopback
from queuegate.gateway.faces.interface import NavigationCheck, no_navigation
from queuegate.gateway.http.origins import Origins
from queuegate.gateway.http.request_heads import authority_name

_OURS = ("localhost", "127.0.0.1", "[::1]", "host.docker.internal")
_MOST_HOSTS = 1000
_SAME = (b"same-origin", b"none")
_PREFLIGHT_SECONDS = b"7200"
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_SHOWN = (
    b"x-amzn-requestid, x-amzn-query-error, x-amzn-errortype, x-request-id, location, retry-after, "
    b"allow, date"
)
_VARY = (b"vary", b"origin")
_LONGEST_ORIGIN = 200

Headers = list[tuple[bytes, bytes]]


class Verdict(NamedTuple):
    """The decision about a request."""

    reason: str = ""
    """Reason of the refusal; empty: the request is admitted."""
    headers: Headers | None = None
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
        self._origins = frozenset(origin.encode() for origin in origins)
        self.has_origins = bool(self._origins)
        """True if other origins are allowed: cacheable answers then need a Vary header."""
        self._own_origin = base_url.lower().encode() if base_url else None
        self.hosts: set[bytes] = set()
        """Values of Host that were admitted lately, for the fast path."""

    def lets_in(self, method: bytes, host: bytes) -> bool:
        """Return True if the Host header was allowed before and the answer needs no Vary header."""
        if self.has_origins and method in (b"GET", b"HEAD"):
            return False
        return host in self.hosts

    def judge(
        self, scope: MutableMapping[str, Any], may_navigate: NavigationCheck = no_navigation
    ) -> Verdict:
        """Return the verdict on a request from its head, an ASGI scope. ``may_navigate`` allows
        links from other sites (``Mount.may_navigate``)."""
        found: dict[bytes, bytes] = dict(scope["headers"])
        origin = found.get(b"origin")
        if origin is not None and (b"*" in self._origins or origin.lower() in self._origins):
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in found:
                return Verdict(headers=_preflight(found, origin), is_preflight=True)
            return Verdict(self._host_refusal(found), _shared(origin))
        reason = self._host_refusal(found) or self._page_refusal(scope, found, origin, may_navigate)
        # A cache must not mix answers for pages and answers for other clients.
        is_kept = self.has_origins and scope["method"] in ("GET", "HEAD")
        return Verdict(reason, [_VARY] if is_kept else None)

    def _host_refusal(self, found: dict[bytes, bytes]) -> str:
        """Return the reason to refuse this Host; empty: the Host is known."""
        host = found.get(b"host", b"")
        if host and host not in self.hosts:
            if not self._is_known(host):
                return (
                    f"The host {host.decode('latin-1')} is not one of this gateway, which listens "
                    "on loopback. QUEUEGATE_ALLOWED_HOSTS takes its name."
                )
            if len(self.hosts) >= _MOST_HOSTS:
                self.hosts.clear()
            self.hosts.add(host)
        return ""

    def _page_refusal(
        self,
        scope: MutableMapping[str, Any],
        found: dict[bytes, bytes],
        origin: bytes | None,
        may_navigate: NavigationCheck,
    ) -> str:
        """Return the reason to refuse a page of an unlisted origin; empty: admitted, or no page."""
        if origin is None and b"sec-fetch-site" not in found:
            return ""
        if origin is not None and not self._is_own(origin, found.get(b"host", b"")):
            return _stranger(origin)
        if found.get(b"sec-fetch-site", b"none") in _SAME or may_navigate(scope):
            return ""
        return (
            "A page of another site may not ask this gateway. QUEUEGATE_ALLOWED_ORIGINS takes its "
            "origin."
        )

    def _is_known(self, host: bytes) -> bool:
        if self._names is None:
            return True
        name = authority_name(host.decode("latin-1"))
        return any(name == known or name.endswith("." + known) for known in self._names)

    def _is_own(self, origin: bytes, host: bytes) -> bool:
        """Return True if the page belongs to the gateway, under the requested name."""
        scheme, _, authority = origin.lower().partition(b"://")
        if scheme in (b"http", b"https") and authority and authority == host.lower():
            return True
        return self._own_origin is not None and origin.lower() == self._own_origin


def _stranger(origin: bytes) -> str:
    if origin == b"null":
        return (
            "A page that has no origin, such as one opened from a file, may not ask this gateway. "
            "QUEUEGATE_ALLOWED_ORIGINS takes the origin of a server that has the page."
        )
    return (
        f"A page of {origin[:_LONGEST_ORIGIN].decode('latin-1')} may not ask this gateway. "
        "QUEUEGATE_ALLOWED_ORIGINS takes its origin."
    )


def _shared(origin: bytes) -> Headers:
    """Return headers that let a page read an answer. ``Access-Control-Allow-Credentials`` is never
    among them."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _SHOWN),
        _VARY,
    ]


def _preflight(found: dict[bytes, bytes], origin: bytes) -> Headers:
    """Return headers that let a page send requests with any headers."""
    headers = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
        _VARY,
    ]
    wanted = found.get(b"access-control-request-headers")
    if wanted:
        headers.append((b"access-control-allow-headers", wanted))
    if found.get(b"access-control-request-private-network") == b"true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers
