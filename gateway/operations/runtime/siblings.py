"""Questions that the processes of a gateway ask one another, because each knows its own clients
alone. Answers are JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

Ask = Callable[[bytes], Awaitable[list[bytes]]]
"""Asks the other processes of this gateway."""


async def _nobody(_: bytes) -> list[bytes]:
    return []


class Siblings:
    """The processes of a gateway. ``answers`` has the function of each question, by its first word;
    it gets the rest."""

    def __init__(self) -> None:
        self.ask: Ask = _nobody
        self.answers: dict[str, Callable[[str], bytes]] = {}

    def answer(self, question: bytes) -> bytes | None:
        """Return the answer of this process; None: the question is another one."""
        word, _, rest = question.decode("ascii", "replace").strip().partition(" ")
        return self.answers[word](rest) if word in self.answers else None

    async def all(self, word: str, rest: object = "") -> list[Any]:
        """Return the decoded answers of all live processes, this one first. Without those of
        processes that ended in the middle of them."""
        question = f"{word} {rest}\n".encode()
        own = self.answer(question)
        found = [] if own is None else [orjson.loads(own)]
        for one in await self.ask(question):
            with contextlib.suppress(orjson.JSONDecodeError):
                found.append(orjson.loads(one))
        return found
