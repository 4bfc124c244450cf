"""Paths of pages for operators. Paths are compared undecoded: an encoded path is another path, for
the gateway as for the rules of a proxy in front."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

PROBES = ("/livez", "/readyz", "/metrics")
"""Paths for monitoring."""
SEED = "/_admin/seed"
_DOCUMENTATION = "/docs"
ADMIN_DOCUMENT = "/_admin/openapi.json"
_CONSOLE = "/console"
_PAGES = (*PROBES, "/v1/cert", _DOCUMENTATION, _CONSOLE, ADMIN_DOCUMENT)
_RAW_PAGES = tuple(page.encode() for page in _PAGES)
_CERTIFICATES = "/SimpleNotificationService"
_PUBLIC_PREFIXES = (_CERTIFICATES, f"{_DOCUMENTATION}/", f"{_CONSOLE}/")
_RAW_PUBLIC_PREFIXES = tuple(prefix.encode() for prefix in _PUBLIC_PREFIXES)
SWAP_IN_PREFIXES = ("/_localstack/", "/_aws/", "/moto-api/")
"""Paths of pages of the servers that a gateway can replace."""
SWAP_IN_PAGES = {"elasticmq": (b"/health",)}
"""Single paths by the server that has them."""
EVENTS = "/_admin/events"
PREFIXES = ("/_admin/", "/_aws/", *_PUBLIC_PREFIXES)


def is_page(scope: MutableMapping[str, Any]) -> bool:
    """Return True if a path without a prefix of ``PREFIXES`` is a page, as ``/`` is in a browser.
    AWS clients also request ``/``, but name an action or send credentials, and accept no HTML."""
    if scope["raw_path"] in _RAW_PAGES:
        return True
    if scope["raw_path"] != b"/" or scope["query_string"] or scope["method"] not in ("GET", "HEAD"):
        return False
    headers = dict(scope["headers"])
    return b"authorization" not in headers and b"text/html" in headers.get(b"accept", b"")


def is_public(raw_path: bytes) -> bool:
    """Return True if a page needs no credentials, even where signatures are verified: probes,
    metrics, certificates, documentation, files of the console, and the front page. They show no
    data of an account."""
    return raw_path in (*_RAW_PAGES, b"/") or raw_path.startswith(_RAW_PUBLIC_PREFIXES)


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
