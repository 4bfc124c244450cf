"""Long work of one request in steps, with everybody else having a turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")


async def give_way() -> None:
    """Let others go first: who is ready, and who asks at this moment. What a client sent while we
    were at work is only read in the turn that follows, and would find us back at work."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def at_once(steps: Generator[None, None, _Result]) -> _Result:
    """Run ``steps`` to its end; what it returned. For what is short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


async def in_turns(steps: Generator[None, None, _Result]) -> _Result:
    """Run ``steps`` to its end; what it returned. Each step may take some milliseconds."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        await give_way()
