"""PostgreSQL processes that outlived their parent: find, stop and reap them.

PostgreSQL's lock file identifies them. After a power loss or on a full disk it may contain
anything, and when root reads it, PostgreSQL's account may have written anything: its contents are
verified against the process itself.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from queuegate.storage.embedded.account import Account, CannotStart

# Above every process id of Linux or macOS.
_NOBODYS_PROCESS_ID = 4_194_305
_MOST_LOCK_FILE_BYTES = 8192


def lock_file_of(pgdata: Path) -> bytes | None:
    """Return the contents of PostgreSQL's lock file; None if there is none.

    Its lines: process id, directory, start, port, socket directory, address, shared memory, state.
    Follows no link, and does not block on special files.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(pgdata / "postmaster.pid", flags)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, _MOST_LOCK_FILE_BYTES)
    finally:
        os.close(file)


def stop_orphan(pgdata: Path, deadline_seconds: float = 30.0) -> None:
    """Stop a PostgreSQL that outlived its gateway.

    Only the holder of the directory's lock may call this: no gateway uses such a server.
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
    """Return the process of the PostgreSQL that serves this directory, or None.

    A process id alone is no proof: after a restart of a container another process often has it. The
    command line must be PostgreSQL's on this directory, and the process must belong to the owner of
    the directory, who could otherwise make root end any process.
    """
    try:
        process_id = int((lock_file_of(pgdata) or b"").partition(b"\n")[0])
        owner = pgdata.stat().st_uid
    except (OSError, ValueError):
        return None
    found = _facts_of(process_id)
    return process_id if found[0] == owner and f" -D {pgdata} " in found[1] + " " else None


def serves(pgdata: Path) -> bool:
    """Return True if a live PostgreSQL uses this directory, by whatever path it was started."""
    if running_process_id(pgdata) is not None:
        return True
    try:
        process_id = int((lock_file_of(pgdata) or b"").partition(b"\n")[0])
        # PostgreSQL's working directory is its data directory.
        return process_id > 0 and Path(f"/proc/{process_id}/cwd").samefile(pgdata)
    except (OSError, ValueError):
        return False


def disown(pgdata: Path, account: Account) -> None:
    """Remove the process id of a stopped server from its lock file, because it may be reused.

    The rest of the file must stay: with it PostgreSQL detects processes of that server that are
    still attached to its shared memory, and waits for them. The account writes the file, not root:
    a link in the account's directory cannot lead to root's files.
    """
    lock_file = lock_file_of(pgdata)
    if lock_file is None:
        return
    rest = lock_file.partition(b"\n")[2]
    subprocess.run(
        ["tee", str(pgdata / "postmaster.pid")],
        input=b"%d\n" % _NOBODYS_PROCESS_ID + rest,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        check=False,
        **account.popen_options(),
    )


def reap(server_process_id: int | None) -> None:
    """Reap dead PostgreSQL processes adopted by process 1 of a container.

    They are the children of a killed server. The server itself is left to its own parent.
    """
    if os.getpid() != 1 or sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == server_process_id:
            continue
        try:
            name, _, rest = (
                (entry / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            )
            if name.startswith("postgres") and rest.split()[:2] == ["Z", "1"]:
                os.waitpid(int(entry.name), os.WNOHANG)
        except (OSError, ChildProcessError):
            continue


def _facts_of(process_id: int) -> tuple[int, str]:
    """Return (owner, command line) of a process; an impossible owner if there is none."""
    nobody = -1, ""
    if process_id <= 0:
        return nobody
    if sys.platform == "linux":
        try:
            entry = Path(f"/proc/{process_id}")
            words = (entry / "cmdline").read_bytes().split(b"\0")
            return entry.stat().st_uid, os.fsdecode(b" ".join(words))
        except OSError:
            return nobody
    listed = subprocess.run(
        ["ps", "-ww", "-p", str(process_id), "-o", "uid=,command="],
        capture_output=True,
        check=False,
    )
    owner, _, command = os.fsdecode(listed.stdout).strip().partition(" ")
    return (int(owner), command.strip()) if owner.isdigit() else nobody
