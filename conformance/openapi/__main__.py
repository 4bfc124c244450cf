"""Start a gateway and let schemathesis compare what it says of its API with what it does.

    python -m conformance.openapi [arguments of `schemathesis run`]

Every check is on; schemathesis.toml, beside this file, says which one is not and why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from conformance.serving import gateway

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent
_TOOL = _ROOT / ".venvs" / "openapi" / "bin" / "schemathesis"
_AUTHORIZATION = "Bearer of any value"
# What the examples of the document speak of, so that they find it.
_THERE = (
    ("/v1/queues", {"name": "jobs", "archive": True, "archive_days": 30}),
    ("/v1/queues", {"name": "orders", "fifo": True}),
    *[("/v1/queues/jobs/messages", [{"message": number} for number in range(500)])] * 3,
)


def _post(url: str, body: object) -> None:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"authorization": _AUTHORIZATION}
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201, answer.status


def main(arguments: list[str]) -> int:
    """The exit code of schemathesis: 0 when it found nothing."""
    with gateway(os.environ, QUEUEGATE_LOG_LEVEL="warning") as url:
        for path, body in _THERE:
            _post(url + path, body)
        command = [
            *(str(_TOOL), "--config-file", str(_HERE / "schemathesis.toml")),
            *("run", f"{url}/v1/openapi.json"),
            *("--header", f"Authorization: {_AUTHORIZATION}"),
            *arguments,
        ]
        return subprocess.run(command, cwd=_ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
