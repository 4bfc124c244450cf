"""Background work: long work in steps, retries until the database is available, and tasks to wait
for at shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from typing import Any, TypeVar

from queuegate.storage.storage_errors import Unavailable

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
    """State that a task reloads when it has changed, one reload at a time. Subclasses
    implement ``_read``, which clears ``_is_stale`` or raises."""

    def __init__(self, log: logging.Logger, trouble: str) -> None:
        self._reports = log, trouble
        self._is_stale = False
        self._task: asyncio.Task[None] | None = None

    def _needs_reload(self) -> bool:
        return self._is_stale

    async def _read(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        """Reload until nothing is stale, unless a reload is under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read_on())

    async def _read_on(self) -> None:
        while self._needs_reload():
            await until_available(self._read, *self._reports)

    async def load(self) -> None:
        """Reload everything, and wait for it."""
        self._is_stale = True
        self._begin()
        await self.settle()

    async def settle(self) -> None:
        """Wait until all changes so far are loaded."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


_Load = Callable[[], Coroutine[Any, Any, _Result]]


class SharedLoads:
    """Loads that concurrent callers share, by key. A cancelled caller does not cancel a load."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    async def once(self, key: Hashable, load: _Load[_Result]) -> _Result:
        """Return the result of the load that is under way for this key, or of a new one."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.get_running_loop().create_task(load())
            task.add_done_callback(lambda done: self._loaded(key, done))
        result: _Result = await asyncio.shield(task)
        return result

    async def close(self) -> None:
        """Cancel all loads."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _loaded(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            # Ignore its error if all callers have been cancelled.
            task.exception()


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
