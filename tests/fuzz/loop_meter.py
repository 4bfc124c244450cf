"""A gateway whose event loop tells for how long it is held: `python -m tests.fuzz.loop_meter FILE
serve ...` is `queuegate serve ...` with a timer in its loop.

The timer is due every millisecond, so it runs in every turn of the loop that takes longer, and the
CPU that the loop's thread took since the timer ran last is that of one turn, and a millisecond at
most besides. CPU, not time: another process, or a thread of ours, that has the core holds nobody.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from tests.faces.servers import Server
from tests.waiting import until

MOST_MS = 20.0
"""For how long a request may hold the loop at once."""

_TICK_SECONDS = 0.001
_STATE = struct.Struct("dQ512s")
"""The longest turn in seconds, how often the timer ran, and where the loop was in that turn."""


class Meter:
    """The state that both processes share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_STATE.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _STATE.size)

    def read(self) -> tuple[float, int, str]:
        """As of now."""
        longest, ticks, where = _STATE.unpack(self._shared[: _STATE.size])
        return longest, ticks, where.rstrip(b"\0").decode(errors="replace")

    def write(self, longest: float, ticks: int, where: str) -> None:
        """Replace all of it."""
        self._shared[: _STATE.size] = _STATE.pack(longest, ticks, where.encode()[-512:])


class Metered(Server):
    """A gateway on a loop with a timer."""

    def __init__(self, folder: Path, *arguments: str, **more: str) -> None:
        self._path = folder / "loop"
        self._meter = Meter(self._path)
        super().__init__(*arguments, **more)

    def command(self) -> list[str]:
        """The same, metered."""
        return [sys.executable, "-m", "tests.fuzz.loop_meter", str(self._path), "serve"]

    def __enter__(self) -> Metered:
        return self

    def _settled(self) -> tuple[float, str]:
        """The longest turn so far, of those that are over."""
        _, before, _ = self._meter.read()
        until(lambda: self._meter.read()[1], lambda ticks: ticks >= before + 3)
        longest, _, where = self._meter.read()
        return longest, where

    def forget(self) -> None:
        """Forget the turns so far."""
        self._settled()
        self._meter.write(0.0, self._meter.read()[1], "")

    def longest_turn(self, ask: Callable[[], object], tries: int = 3) -> tuple[float, str]:
        """The milliseconds of CPU of the longest turn of the loop while this is asked, and where it
        was; the best of some tries, for now and then the collector of garbage adds its own."""
        best = (float("inf"), "")
        for _ in range(tries):
            self.forget()
            ask()
            longest, where = self._settled()
            best = min(best, (longest * 1000, where))
        return best


class _Timer:
    """Runs in the loop."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._at = time.thread_time()
        self._where = ""

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._look, daemon=True).start()
        asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        longest, ticks, where = self._meter.read()
        if now - self._at > longest:
            longest, where = now - self._at, self._where
        self._meter.write(longest, ticks + 1, where)
        # What this took itself is nobody's.
        self._at = time.thread_time()
        self._where = ""
        asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _look(self) -> None:
        """From another thread: where the loop is once a turn has lasted for half of what it may."""
        while True:
            threading.Event().wait(0.004)
            if time.clock_gettime(self._clock) - self._at > 0.008:
                frames = traceback.extract_stack(sys._current_frames()[self._thread])
                self._where = " < ".join(
                    f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in frames[:-7:-1]
                )


def main() -> int:
    meter = Meter(Path(sys.argv.pop(1)))
    run = uvloop.run

    def metered(work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        async def with_timer() -> Any:
            _Timer(meter).start()
            return await work

        return run(with_timer(), **options)

    uvloop.run = metered  # type: ignore[assignment] # a wider one
    from queuegate.gateway.cli import main as command

    sys.argv[0] = "queuegate"
    return command()


if __name__ == "__main__":
    sys.exit(main())
