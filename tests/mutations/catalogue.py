"""The mutations of ``mutations.toml``, and where in the product each has its place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("gateway", "protocol", "queuegate", "scheduler", "spark_connectors", "storage")
_KINDS = (".py", ".sql")


class Mutation(NamedTuple):
    """One change in one place. ``find`` is in the product once, wherever that is."""

    name: str
    find: str
    replace: str
    tests: tuple[str, ...]


class Lost(Exception):
    """The text of a mutation is in the product several times, or not at all."""


def mutations() -> list[Mutation]:
    """All mutations, in the order of the file."""
    read = tomllib.loads((ROOT / "tests/mutations/mutations.toml").read_text())
    return [
        Mutation(one["name"], one["find"], one["replace"], tuple(one["tests"]))
        for one in read["mutation"]
    ]


def product(root: Path = ROOT) -> dict[Path, str]:
    """The texts of the product, by path from the root."""
    return {path.relative_to(root): path.read_text() for path in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    for folder in PRODUCT:
        yield from (one for one in sorted((root / folder).rglob("*")) if one.suffix in _KINDS)


def place_of(mutation: Mutation, texts: Mapping[Path, str]) -> Path:
    """The file that has the mutation's text. Raises Lost."""
    found = [path for path, text in texts.items() for _ in range(text.count(mutation.find))]
    if len(found) != 1:
        where = ", ".join(map(str, found)) or "nowhere"
        raise Lost(f"{mutation.name}: its text must be in the product once, and is in: {where}")
    return found[0]
