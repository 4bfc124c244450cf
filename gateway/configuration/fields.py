"""Fields of ``Settings``: each carries its variables, what is allowed, and what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, replace
from typing import Any, NamedTuple

from queuegate.gateway.configuration import values


class Kind(NamedTuple):
    """What the text of a setting may be, how it is read, and how it is written again."""

    allowed: str
    parse: Callable[[str], Any]
    write: Callable[[Any], str] = str


@dataclass(frozen=True)
class Variable:
    """How one field of Settings is written in the environment: in the first of these variables
    that is set. ``title``: the part of the table that begins with it."""

    names: tuple[str, ...]
    kind: Kind
    explanation: str
    secret: bool = False
    internal: bool = False
    title: str = ""


def setting(default: Any, kind: Kind, explanation: str, *, names: str = "", **options: Any) -> Any:
    """A field of Settings. Without ``names`` its variable is QUEUEGATE_ and its own name."""
    variable = Variable(tuple(names.split()), kind, explanation, **options)
    kept: dict[str, Any] = {"repr": not variable.secret, "metadata": {"variable": variable}}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), **kept)
    return field(default=default, **kept)


def variable_of(item: Field[Any]) -> Variable:
    """The variable behind a field of Settings."""
    variable: Variable = item.metadata["variable"]
    return (
        variable if variable.names else replace(variable, names=(f"QUEUEGATE_{item.name.upper()}",))
    )


def number(low: int, high: int) -> Kind:
    """Whole numbers within these bounds."""
    return Kind(f"a whole number from {low} to {high}", values.integer(low, high))


def word(*allowed: str) -> Kind:
    """One of a few words."""
    shown = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    return Kind(shown, values.choice(*allowed))


SWITCH = Kind("true or false", values.boolean, lambda value: "true" if value else "false")
FILE = Kind("a file", values.directory)
DIRECTORY = Kind("a directory", values.directory)
BASE_URL = Kind("http://host[:port] or https://host[:port], without a path", values.parse_base_url)
