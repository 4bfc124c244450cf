"""Background work: long work in steps, retries until the database is available, and tasks to wait
for at shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, TypeVar

from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    pass


_Result = TypeVar("_Result")


async def yield_to_loop() -> None:
    """Let ready tasks and new requests go first. Data that arrived during the work is read only in
    the second iteration of the event loop."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def run_at_once(steps: Generator[None, None, _Result]) -> _Result:
    """Run short ``steps`` to the end without yielding, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


async def run_in_steps(steps: Generator[None, None, _Result]) -> _Result:
    """Run ``steps`` to the end, yielding to the event loop after each, and return the result. A
    step may take a few milliseconds."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        await yield_to_loop()


_SHORTEST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0


async def until_available(
    attempt: Callable[[], Awaitable[None]], log: logging.Logger, trouble: str
) -> None:
    """Await ``attempt`` until it does not raise Unavailable. Pauses double from 0.05 s up to 1 s.
    ``trouble`` and the reason are logged."""
    pause = _SHORTEST_SECONDS
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            log.log(error.log_level, "%s: %s", trouble, error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_SECONDS)


class StateReloader:
    """Reloads changed state in a task, one reload at a time."""

    def __init__(
        self,
        read: Callable[[], Awaitable[None]],
        is_stale: Callable[[], object],
        log: logging.Logger,
        trouble: str,
    ) -> None:
        """``is_stale`` returns True while a reload is needed; ``read`` ends that, or raises."""
        self._read = read
        self._is_stale = is_stale
        self._log = log
        self._trouble = trouble
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Reload until nothing is stale, unless a reload is under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read_on())

    async def _read_on(self) -> None:
        while self._is_stale():
            await until_available(self._read, self._log, self._trouble)

    async def settle(self) -> None:
        """Wait until all changes so far are loaded."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Stop reloading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


_running: set[asyncio.Task[None]] = set()


def spawn(work: Coroutine[None, None, None]) -> None:
    """Run a task without waiting for it, until ``settle``."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)


async def settle() -> None:
    """Wait for all spawned tasks, such as moves and releases, before the gateway stops."""
    while _running:
        await asyncio.gather(*_running, return_exceptions=True)
