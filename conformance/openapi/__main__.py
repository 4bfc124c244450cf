"""Start a gateway and let schemathesis compare what its faces say of themselves with what they do.

    python -m conformance.openapi [DOCUMENT ...] [arguments of `schemathesis run`]

A document is the path of one, such as /v1/openapi.json; without any, all. Every check is on;
schemathesis.toml, beside this file, says which one is not and why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from conformance.serving import gateway
from queuegate.gateway.faces.interface import DOCUMENT

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent
_TOOL = _ROOT / ".venvs" / "openapi" / "bin" / "schemathesis"
_AUTHORIZATION = "Bearer of any value"
_DOCUMENTS = (
    "/v1/openapi.json",
    "/api/openapi.json",
    "/v1/channels/openapi.json",
    "/queue/openapi.json",
    "/v1/logs/openapi.json",
    # The last, because it deletes and moves the clock.
    "/_admin/openapi.json",
)
# What the examples of the documents speak of, so that they find it.
_RECORDS = [{"key": "shop-1", "payload": f"{number}"} for number in range(500)]
_THERE = (
    ("POST", "/v1/queues", {"name": "jobs", "archive": True, "archive_days": 30}),
    ("POST", "/v1/queues", {"name": "orders", "fifo": True}),
    *[("POST", "/v1/queues/jobs/messages", [{"message": number} for number in range(500)])] * 3,
    ("POST", "/v1/logs/orders/records", {"records": _RECORDS}),
    ("PUT", "/v1/logs/orders/groups/billing", {}),
)


def _make(method: str, url: str, body: object) -> None:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"authorization": _AUTHORIZATION}, method=method
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201, answer.status


def _check(url: str, document: str, arguments: list[str]) -> bool:
    """Return True if schemathesis finds no failure."""
    command = [
        *(str(_TOOL), "--config-file", str(_HERE / "schemathesis.toml")),
        *("run", url + document),
        *("--header", f"Authorization: {_AUTHORIZATION}"),
        *arguments,
    ]
    return subprocess.run(command, cwd=_ROOT, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """0 when nothing was found in any document."""
    named = [word for word in arguments if word.endswith(DOCUMENT)]
    options = [word for word in arguments if word not in named]
    with gateway(os.environ, QUEUEGATE_LOG_LEVEL="warning") as url:
        for method, path, body in _THERE:
            _make(method, url + path, body)
        wrong = [one for one in named or _DOCUMENTS if not _check(url, one, options)]
    for document in wrong:
        print(f"make openapi-check: {document} and what it describes differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
