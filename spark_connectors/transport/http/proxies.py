"""HTTP proxies, as HTTPS_PROXY, HTTP_PROXY and NO_PROXY name them."""

from __future__ import annotations

import base64
import urllib.request
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from spark_connectors.errors import ConnectorError
from spark_connectors.transport.http.endpoints import Endpoint


class Proxy(NamedTuple):
    """Where a proxy is, and the headers it wants to see: empty without a password.

    Only what opens connections should look at the headers.
    """

    host: str
    port: int
    headers: dict[str, str]


def proxy_for(endpoint: Endpoint) -> Proxy | None:
    """The proxy on the way to an endpoint; None: straight. Raises ConnectorError for a proxy that
    is not spoken to in plain HTTP."""
    scheme = "https" if endpoint.is_secure else "http"
    url = urllib.request.getproxies().get(scheme)
    if not url or urllib.request.proxy_bypass(endpoint.authority):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ConnectorError(
            f"the proxy on the way to {endpoint.url} is no http:// one: use transport=boto3"
        )
    headers = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, parts.port or 80, headers)
