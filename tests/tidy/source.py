"""The code as syntax trees, for tests that read it."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gateway", "protocol", "queuegate", "scheduler", "spark_connectors", "storage")


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root, its text and its tree, which is walked once."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.path.parts[0]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method."""
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    @cached_property
    def imports(self) -> tuple[tuple[int, str], ...]:
        """(line, module) of every import; `from a import b` gives a and a.b, for b may be a
        module."""
        return tuple(_imports(self.nodes))

    @cached_property
    def strings(self) -> tuple[ast.Constant, ...]:
        """Every string constant that is not a docstring."""
        return tuple(_strings(self.nodes))

    def __str__(self) -> str:
        return str(self.path)


def planted(text: str, path: str = "gateway/planted.py") -> Source:
    """A file that does not exist, to show that a check can fail."""
    return Source(Path(path), text, ast.parse(text))


@cache
def product() -> tuple[Source, ...]:
    """Every file of the product."""
    return _read(PACKAGES)


@cache
def suite() -> tuple[Source, ...]:
    """Every file of the tests."""
    return _read(("tests", "conformance"))


def _imports(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def _strings(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            assert isinstance(node, ast.Constant)
            yield node


def _read(folders: tuple[str, ...]) -> tuple[Source, ...]:
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    # Most of a million nodes, none of them garbage: to look takes three times as long as to parse.
    gc.disable()
    try:
        return tuple(_parsed(file) for file in files)
    finally:
        gc.enable()


def _parsed(file: Path) -> Source:
    text = file.read_text("utf-8")
    return Source(file.relative_to(ROOT), text, ast.parse(text, str(file)))
