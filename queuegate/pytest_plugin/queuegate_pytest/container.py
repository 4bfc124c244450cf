"""`python -m queuegate_pytest.container ENGINE IMAGE PID`: a gateway in a container that ends with
a process. It prints the line of `python -m queuegate.testing`, and passes on its variables whose
names begin with QUEUEGATE_."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid

CALLBACK_HOST = "host.docker.internal"
"""The name of this machine in the container."""
_PORT = 9324


def main(engine: str, image: str, parent: str) -> int:
    """Run the image until a process ends; return the exit code."""
    name = f"queuegate-pytest-{uuid.uuid4().hex[:12]}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    container = subprocess.Popen(
        run_command(engine, image, name, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert container.stdout is not None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        line = container.stdout.readline()
        if not line:
            return container.wait() or 1
        print(json.dumps({"url": json.loads(line)["url"], "pid": os.getpid()}), flush=True)
        _wait_for_the_end_of(int(parent))
        return 0
    finally:
        subprocess.run([engine, "rm", "--force", name], capture_output=True, check=False)
        container.wait()


def run_command(engine: str, image: str, name: str, port: int) -> list[str]:
    """Return the command that runs the image in the foreground, with this port on loopback."""
    variables = {name: text for name, text in os.environ.items() if name.startswith("QUEUEGATE_")}
    variables |= {
        "QUEUEGATE_BANNER": "json",
        "QUEUEGATE_BASE_URL": f"http://127.0.0.1:{port}",
        # What an image may have set.
        "QUEUEGATE_DATA_DIR": "",
        "QUEUEGATE_LIKE": "",
    }
    return [
        *(engine, "run", "--rm", "--name", name, "--publish", f"127.0.0.1:{port}:{_PORT}"),
        *("--add-host", f"{CALLBACK_HOST}:host-gateway"),
        *(word for pair in variables.items() for word in ("--env", "=".join(pair))),
        *(image, "serve", "--ephemeral", "--port", str(_PORT)),
    ]


def _wait_for_the_end_of(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "linux":
            # Unlike its number, it is never that of a later process.
            with open(os.pidfd_open(process_id)) as process:
                select.select([process], [], [])
        while True:
            os.kill(process_id, 0)
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
