"""Fields of ``Settings``: each carries its variables, what is allowed, and what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.configuration.values import boolean, integer


@dataclass(frozen=True)
class Variable:
    """How one field of Settings is written in the environment."""

    names: tuple[str, ...]
    parse: Callable[[str], Any]
    allowed: str
    explanation: str
    secret: bool = False
    internal: bool = False
    write: Callable[[Any], str] = str


def setting(
    default: Any,
    names: str,
    parse: Callable[[str], Any],
    *,
    allowed: str,
    explanation: str,
    **options: Any,
) -> Any:
    """A field of Settings that is read from the first of these variables that is set."""
    variable = Variable(tuple(names.split()), parse, allowed, explanation, **options)
    shown = not variable.secret
    if isinstance(default, dict):
        kept = default
        return field(
            default_factory=lambda: dict(kept), repr=shown, metadata={"variable": variable}
        )
    return field(default=default, repr=shown, metadata={"variable": variable})


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


def switch(default: bool | None, names: str, explanation: str) -> Any:
    """A field that is true or false."""
    return setting(
        default,
        names,
        boolean,
        allowed="true or false",
        explanation=explanation,
        write=_write_boolean,
    )


def number(default: int, names: str, bounds: tuple[int, int], explanation: str) -> Any:
    """A field of whole numbers within these bounds."""
    low, high = bounds
    allowed = f"a whole number from {low} to {high}"
    return setting(default, names, integer(low, high), allowed=allowed, explanation=explanation)
