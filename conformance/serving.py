"""A gateway of our own for the clients, on a free port and without a trace afterwards."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

_STOP_SECONDS = 30


class DidNotStart(Exception):
    """The gateway ended instead of serving; it has said why itself."""


@contextlib.contextmanager
def gateway(environ: Mapping[str, str], **settings: str) -> Iterator[str]:
    """The endpoint of a gateway with these settings that runs as long as the context."""
    ours = re.compile(r"QUEUE_|QUEUEGATE_|DATABASE_URL$")
    process = subprocess.Popen(
        [sys.executable, "-m", "queuegate", "serve", "--ephemeral", "--port", "0"],
        env={n: value for n, value in environ.items() if not ours.match(n)} | settings,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = None
        while found is None:
            line = process.stdout.readline()
            if not line:
                raise DidNotStart(f"the gateway ended with {process.wait()}")
            found = re.search(r"ready: (\S+)", line)
        yield found[1]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(_STOP_SECONDS)
        process.stdout.close()
