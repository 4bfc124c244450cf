"""Decorators that register the cases of a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.driving import Client


@dataclass(frozen=True)
class Case:
    """One thing that must hold. Slow clients run only the brief ones; those of signatures want a
    gateway that verifies them."""

    name: str
    run: Callable[[Client], None]
    brief: bool
    signed: bool


class Cases(list[Case]):
    """A list of cases, in the order in which they are written."""

    def case(
        self, *, brief: bool = False, signed: bool = False
    ) -> Callable[[Callable[[Client], None]], Callable[[Client], None]]:
        """Enter a function into the list; its name is the case's."""

        def enter(function: Callable[[Client], None]) -> Callable[[Client], None]:
            self.append(Case(function.__name__.replace("_", " "), function, brief, signed))
            return function

        return enter
