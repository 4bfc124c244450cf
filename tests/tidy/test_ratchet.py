"""Figures of the tree that may only fall. `make check` prints them beside their bounds.

A commit that lowers a figure by more than a hundredth lowers its bound in `ratchet.json`; a commit
that raises a bound says why in its message. `python -m tests.tidy.test_ratchet` writes the bounds.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGES, ROOT, Source, planted, product, suite

BOUNDS = Path(__file__).with_name("ratchet.json")
_CLAUSE = re.compile(r"(What|Whether|Where|Who|Whose|Whoever|How)\b")
_NAMES_OF_ROLES = {"__init__", "__main__", "conftest"}


def lines(folders: Sequence[str]) -> int:
    """Count the lines of Python and SQL below these folders."""
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.*"))
    return sum(file.read_bytes().count(b"\n") for file in files if file.suffix in (".py", ".sql"))


def repeated(names: Iterator[str]) -> int:
    """Count the names that occur more than once."""
    return sum(times > 1 for times in Counter(names).values())


def module_names(sources: Sequence[Source]) -> Iterator[str]:
    return (source.path.stem for source in sources if source.path.stem not in _NAMES_OF_ROLES)


def class_names(sources: Sequence[Source]) -> Iterator[str]:
    """Yield the names of public classes at the top of their module."""
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def clauses(sources: Sequence[Source]) -> int:
    """Count the docstrings that begin with a clause and not with a noun or a verb."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for source in sources for node in source.nodes if isinstance(node, documented))
    return sum(bool(_CLAUSE.match(ast.get_docstring(node) or "")) for node in nodes)


def cycles(sources: Sequence[Source]) -> list[set[str]]:
    """Return the groups of modules that import each other, for their types alone included."""
    modules = {module_of(source): source for source in sources}
    arrows = {
        name: {to for _, to in source.imports if to in modules and to != name}
        for name, source in modules.items()
    }
    reached = {name: reachable(name, arrows) for name in arrows}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in arrows
    }
    return [{*group} for group in groups if len(group) > 1]


def module_of(source: Source) -> str:
    """Return the dotted name of a source file."""
    parts = source.path.with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    return name if parts[0] in ("queuegate", "spark_connectors") else f"queuegate.{name}"


def reachable(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that one module imports, directly or through others."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = arrows[ahead.pop()] - found
        found |= new
        ahead.extend(new)
    return found


@cache
def figures() -> dict[str, int]:
    """Return every figure by its name."""
    records = (ROOT / "docs" / "adr").glob("[0-9]*.md")
    words = sum(len(record.read_text("utf-8").split()) for record in records)
    return {
        "lines of product": lines(PACKAGES),
        "lines of tests": lines(("tests", "conformance")),
        "modules of product": len(product()),
        "module names used twice": repeated(module_names(product())),
        "public class names used twice": repeated(class_names(product())),
        "import cycles": len(cycles(product())),
        "docstrings that begin with a clause, product": clauses(product()),
        "docstrings that begin with a clause, tests": clauses(suite()),
        "words of decision records above 10,000": max(0, words - 10_000),
    }


def wrong(found: Mapping[str, int], bounds: Mapping[str, int]) -> Iterator[str]:
    for name, figure in found.items():
        bound = bounds[name]
        if figure > bound:
            yield f"{name}: {figure:,}, and the bound is {bound:,}"
        elif figure < bound * 0.99 - 1:
            yield f"{name}: {figure:,}, lower the bound of {bound:,}"


def test_figures_only_fall(capsys: pytest.CaptureFixture[str]) -> None:
    bounds = json.loads(BOUNDS.read_text("utf-8"))
    with capsys.disabled():
        print()
        for name, figure in figures().items():
            print(f"{figure:>9,}  of at most {bounds[name]:>9,}  {name}")
    assert [*wrong(figures(), bounds)] == []


def test_the_ratchet_can_fail() -> None:
    assert [*wrong({"lines": 101}, {"lines": 100})]
    assert [*wrong({"lines": 97}, {"lines": 100})]
    assert not [*wrong({"lines": 99}, {"lines": 100})]
    ours = [
        planted("from queuegate.storage import two", "storage/one.py"),
        planted("from queuegate.storage import one", "storage/two.py"),
        planted("from queuegate.storage import one", "storage/three.py"),
    ]
    assert cycles(ours) == [{"queuegate.storage.one", "queuegate.storage.two"}]
    assert clauses([planted('"""Whether it is."""'), planted('"""Return it."""')]) == 1
    assert repeated(iter(["a", "b", "a"])) == 1


if __name__ == "__main__":
    BOUNDS.write_text(json.dumps(figures(), indent=2) + "\n", "utf-8")
