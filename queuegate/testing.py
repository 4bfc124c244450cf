"""`python -m queuegate.testing`: an ephemeral gateway for a test suite in any language.

It takes a free port, prints one line of JSON with ``url`` and ``pid`` when it is ready, and ends
with its parent, however that ends. Settings come from the environment, as for `queuegate serve`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from queuegate.gateway.cli import main as run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the parent ends; return the exit code of `serve`."""
    parser = argparse.ArgumentParser(prog="python -m queuegate.testing", description=__doc__)
    parser.add_argument(
        "--parent",
        type=int,
        default=os.getppid(),
        metavar="PID",
        help="end with this process (default: the parent)",
    )
    parser.add_argument("--port", default="0", metavar="P", help="port (default: any free port)")
    given = parser.parse_args(arguments)
    os.environ |= {"QUEUEGATE_BANNER": "json", "QUEUEGATE_PARENT_PID": str(given.parent)}
    return run_command(["serve", "--ephemeral", "--port", given.port])


if __name__ == "__main__":
    sys.exit(main())
