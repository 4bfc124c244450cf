"""Paths of pages for operators. Paths are compared undecoded: an encoded path is another path, for
the gateway as for the rules of a proxy in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuegate.gateway.faces.interface import Request

PROBES = ("/livez", "/readyz", "/metrics")
"""Paths for monitoring."""
SEED = "/_admin/seed"
_DOCUMENTATION = "/docs"
ADMIN_DOCUMENT = "/_admin/openapi.json"
_CONSOLE = "/console"
_PAGES = (*PROBES, "/v1/cert", _DOCUMENTATION, _CONSOLE, ADMIN_DOCUMENT)
_CERTIFICATES = "/SimpleNotificationService"
_PUBLIC_PREFIXES = (_CERTIFICATES, f"{_DOCUMENTATION}/", f"{_CONSOLE}/")
SWAP_IN_PREFIXES = ("/_localstack/", "/_aws/", "/moto-api/")
"""Paths of pages of the servers that a gateway can replace."""
SWAP_IN_PAGES = {"elasticmq": ("/health",)}
"""Single paths by the server that has them."""
EVENTS = "/_admin/events"
PREFIXES = ("/_admin/", "/_aws/", *_PUBLIC_PREFIXES)


def is_page(request: Request) -> bool:
    """Return True if a path without a prefix of ``PREFIXES`` is a page, as ``/`` is in a browser.
    AWS clients also request ``/``, but name an action or send credentials, and accept no HTML."""
    if request.raw_path in _PAGES:
        return True
    if request.raw_path != "/" or request.query or request.method not in ("GET", "HEAD"):
        return False
    headers = request.headers
    return "authorization" not in headers and "text/html" in headers.get("accept", "")


def is_public(raw_path: str) -> bool:
    """Return True if a page needs no credentials, even where signatures are verified: probes,
    metrics, certificates, documentation, files of the console, and the front page. They show no
    data of an account."""
    return raw_path in (*_PAGES, "/") or raw_path.startswith(_PUBLIC_PREFIXES)


def probe_label(path: str) -> str:
    """Return the label of a path at QUEUEGATE_OPERATIONS_ADDRESS, of bounded cardinality."""
    return path if path in PROBES else "/"


def page_label(path: str) -> str:
    """Return the label of a path, of bounded cardinality."""
    if path.startswith(_CERTIFICATES):
        return _CERTIFICATES
    if path.startswith(f"{_DOCUMENTATION}/"):
        return _DOCUMENTATION
    if path.startswith(f"{_CONSOLE}/"):
        return _CONSOLE
    return path if path in _PAGES or path == "/" else "/_admin"
