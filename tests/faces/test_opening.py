"""Faces are made in threads, when somebody first asks for them or soon after the start."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

from queuegate.gateway.faces.interface import Face, Mount

_AT_ONCE_SECONDS = 0.2


def _face(*_: object) -> NoReturn:
    raise AssertionError


class _Makers:
    """Counts what is made, and whether two are at it at once."""

    def __init__(self) -> None:
        self.made = 0
        self.at_once = False
        self._both = threading.Barrier(2)

    def make(self) -> Face:
        self.made += 1
        try:
            self._both.wait(_AT_ONCE_SECONDS)
            self.at_once = True
        except threading.BrokenBarrierError:
            self._both.reset()
        return _face  # type: ignore[return-value]


async def test_a_face_is_made_once_whoever_asks_for_it_at_once() -> None:
    makers = _Makers()
    entrance = Mount(makers.make, prefixes=("/x",), label=lambda _: "/x")
    first, second = await asyncio.gather(entrance.open(), entrance.open())
    assert first is second
    assert makers.made == 1


async def test_faces_are_made_one_at_a_time() -> None:
    """msgspec crashes the process when two threads find out about one struct."""
    makers = _Makers()
    entrances = [Mount(makers.make, prefixes=(p,), label=lambda _: "") for p in ("/x", "/y")]
    await asyncio.gather(*[entrance.open() for entrance in entrances])
    assert makers.made == 2
    assert not makers.at_once
