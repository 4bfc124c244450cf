"""Long work of one request in steps, with everybody else having a turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_turns(steps: Generator[None, None, _Result]) -> _Result:
    """Run ``steps`` to its end; what it returned. Each step may take some milliseconds."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        await asyncio.sleep(0)
