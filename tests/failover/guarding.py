"""A process that ends everything that another one has started, however that one ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def guarded(work: Callable[[], int], clean: Callable[[], None]) -> int:
    """Run ``work`` in a child, then kill all that it has started, and ``clean``; its exit code.

    Orphans of the child become children of this process, so daemons are found, too. If this process
    is killed, the child gets SIGTERM: it kills its children, ends ``work`` with SystemExit, and
    cleans.
    """
    library = ctypes.CDLL(None)
    library.prctl(_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        library.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        signal.signal(signal.SIGTERM, _kill_and_end)
        _work_and_exit(work if os.getppid() == guard else lambda: 1, clean)
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        ended = 0
        while ended != child:
            # Patroni waits for the end of a server, which is an orphan, until it is reaped.
            ended, status = os.wait()
    finally:
        kill_descendants()
        clean()
    return os.waitstatus_to_exitcode(status)


def kill_descendants() -> None:
    """kill -9 of all processes below this one, as often as it takes to find none."""
    while found := _descendants(os.getpid()):
        for process_id in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _work_and_exit(work: Callable[[], int], clean: Callable[[], None]) -> None:
    code = 1
    try:
        code = work()
    except SystemExit:
        clean()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _kill_and_end(number: int, _: object) -> None:
    kill_descendants()
    raise SystemExit(128 + number)


def _descendants(process_id: int) -> list[int]:
    found: list[int] = []
    for task in _tasks(process_id):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _tasks(process_id: int) -> list[Path]:
    try:
        return [*Path(f"/proc/{process_id}/task").iterdir()]
    except OSError:
        return []
