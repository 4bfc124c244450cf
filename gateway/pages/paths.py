"""Which paths are pages for operators. Paths are compared as they came: an encoded one is another,
for us as for the rules of a proxy in front."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

PROBES = ("/livez", "/readyz", "/metrics")
"""What programs of operators ask."""
_PAGES = (*PROBES, "/v1/cert")
_RAW_PAGES = tuple(page.encode() for page in _PAGES)
_CERTIFICATES = "/SimpleNotificationService"
PREFIXES = ("/_admin/", "/_aws/", _CERTIFICATES)


def is_page(scope: MutableMapping[str, Any]) -> bool:
    """Whether a path that begins otherwise is a page: by itself, or because somebody looks at ``/``
    in a browser. AWS's clients, which ask there too, name an action or send credentials, and want
    no HTML."""
    if scope["raw_path"] in _RAW_PAGES:
        return True
    if scope["raw_path"] != b"/" or scope["query_string"] or scope["method"] not in ("GET", "HEAD"):
        return False
    headers = dict(scope["headers"])
    return b"authorization" not in headers and b"text/html" in headers.get(b"accept", b"")


def is_for_everybody(raw_path: bytes) -> bool:
    """Whether nobody has to say who they are for it, even where signatures are verified: probes,
    metrics, certificates, and the front page, which tells nothing but what Queuegate is."""
    return raw_path in (*_RAW_PAGES, b"/") or raw_path.startswith(_CERTIFICATES.encode())


def probe_label(path: str) -> str:
    """The same at QUEUEGATE_OPERATIONS_ADDRESS."""
    return path if path in PROBES else "/"


def page_label(path: str) -> str:
    """The path as a label: of bounded cardinality."""
    if path.startswith(_CERTIFICATES):
        return _CERTIFICATES
    return path if path in _PAGES or path == "/" else "/_admin"
