"""`python -m conformance.clients.testing`: the tests of the clients for JavaScript and Java."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from conformance.environments import NotInstalled, program
from queuegate.gateway.pages.admin_pages import ENDPOINTS

_HERE = Path(__file__).resolve().parent
_SECONDS = 300


def _javascript() -> None:
    _run([program("node"), "--test", str(_HERE / "queuegate-testing.test.mjs")])


def _java() -> None:
    """Compile and run the test. Paths of the client must be those of the document."""
    sources = [str(_HERE / f"{name}.java") for name in ("QueuegateTesting", "QueuegateTestingTest")]
    called = r'"(?:GET|POST|PUT|DELETE)", "(/_admin/\w+)'
    named = set(re.findall(called, Path(sources[0]).read_text()))
    # Of a path with a parameter, the client names the beginning.
    unknown = named - {re.sub(r"/{\w+}$", "", endpoint.path) for endpoint in ENDPOINTS}
    assert named, "the client names no path"
    assert not unknown, f"the document does not have {unknown}"
    with tempfile.TemporaryDirectory() as classes:
        _run([program("javac"), "-Xlint:all", "-Werror", "-d", classes, *sources])
        _run([program("java"), "-cp", classes, "QueuegateTestingTest", sys.executable])


def _run(command: list[str]) -> None:
    environ = {n: text for n, text in os.environ.items() if not n.startswith("QUEUEGATE_")}
    subprocess.run(command, check=True, timeout=_SECONDS, env={**environ, "PYTHON": sys.executable})


def main() -> int:
    """0 when all tests passed, or could not run here; the reason is printed."""
    failed = 0
    clients: dict[str, Callable[[], None]] = {"JavaScript": _javascript, "Java": _java}
    for name, check in clients.items():
        try:
            check()
        except NotInstalled as reason:
            print(f"{name}: skipped: {reason}")
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"{name}: failed with {error.returncode}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
