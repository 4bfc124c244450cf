"""The code as syntax trees, for tests that read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gateway", "protocol", "scheduler", "spark_connectors", "storage")


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root, its text and its tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.path.parts[0]

    def __str__(self) -> str:
        return str(self.path)


def planted(text: str, path: str = "gateway/planted.py") -> Source:
    """A file that does not exist, to show that a check can fail."""
    return Source(Path(path), text, ast.parse(text))


@cache
def product() -> tuple[Source, ...]:
    """Every file of the product."""
    return tuple(_read(PACKAGES))


@cache
def suite() -> tuple[Source, ...]:
    """Every file of the tests."""
    return tuple(_read(("tests", "conformance")))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import; `from a import b` gives a and a.b, for b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every string constant that is not a docstring."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            assert isinstance(node, ast.Constant)
            yield node


def _read(folders: tuple[str, ...]) -> Iterator[Source]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text("utf-8")
            yield Source(file.relative_to(ROOT), text, ast.parse(text, str(file)))
