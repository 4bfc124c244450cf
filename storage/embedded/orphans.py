"""PostgreSQL processes that outlived whoever started them: found, stopped, reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from storage.embedded.account import CannotStart

# Above every process id that Linux or macOS hands out.
_NOBODYS_PROCESS_ID = 4_194_305


def stop_orphan(pgdata: Path, deadline_seconds: float = 30.0) -> None:
    """Stop a PostgreSQL that outlived its gateway.

    Only the holder of the directory's lock may call this: no gateway is in charge of such a server.
    """
    process_id = running_process_id(pgdata)
    if process_id is None:
        return
    stages = ((signal.SIGINT, deadline_seconds), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
    for stage, patience in stages:
        try:
            os.kill(process_id, stage)
        except ProcessLookupError:
            return
        limit = time.monotonic() + patience
        while time.monotonic() < limit:
            if running_process_id(pgdata) != process_id:
                return
            time.sleep(0.005)
    raise CannotStart(
        f"an earlier PostgreSQL (process {process_id}) on {pgdata} does not stop: end it yourself"
    )


def running_process_id(pgdata: Path) -> int | None:
    """The process of the PostgreSQL that serves this directory, or None.

    A process id alone proves nothing: after a restart of a container the same number is often some
    other process. So its command line must be PostgreSQL's, on this directory.
    """
    try:
        process_id = int((pgdata / "postmaster.pid").read_text().partition("\n")[0])
        os.kill(process_id, 0)
    except (OSError, ValueError):
        return None
    return process_id if f" -D {pgdata} " in _command_line(process_id) + " " else None


def disown(pgdata: Path) -> None:
    """Take the process id out of a lock file whose server is gone, for the number may be in use.

    The rest of the file must stay: by it PostgreSQL sees whether processes of that server are still
    attached to its shared memory, and waits for them rather than run beside them.
    """
    file = pgdata / "postmaster.pid"
    try:
        lines = file.read_text().splitlines(keepends=True)
    except OSError:
        return
    if not lines:
        file.unlink()
        return
    lines[0] = f"{_NOBODYS_PROCESS_ID}\n"
    file.write_text("".join(lines))


def reap(server_process_id: int | None) -> None:
    """As process 1 of a container: take leave of dead PostgreSQL processes that became ours.

    They are the children of a server that was killed. The server itself is left to its own parent.
    """
    if os.getpid() != 1 or sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == server_process_id:
            continue
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith("postgres") and rest.split()[:2] == ["Z", "1"]:
                os.waitpid(int(entry.name), os.WNOHANG)
        except (OSError, ChildProcessError):
            continue


def _command_line(process_id: int) -> str:
    if sys.platform == "linux":
        try:
            words = Path(f"/proc/{process_id}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return ""
        return os.fsdecode(b" ".join(words))
    listed = subprocess.run(
        ["ps", "-ww", "-p", str(process_id), "-o", "command="],
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.strip()
