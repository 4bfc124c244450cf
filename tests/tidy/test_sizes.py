"""Files, functions and their parameters stay small. Branches are ruff's (C901, PLR0912)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source import ROOT, Source, planted, product, suite

LINES_PER_FILE = 900
# The statements of one module, with their prose: those of FIFO queues are the longest.
LINES_PER_SQL_FILE = 600
LINES_PER_FUNCTION = 60
PARAMETERS = 6
# What every function of a layer takes; it does not count.
PASSED_ALONG = {"self", "cls", "tx", "engine", "caller"}


def long_file(source: Source) -> Iterator[str]:
    count = source.text.count("\n")
    if count > LINES_PER_FILE:
        yield f"{source} has {count} lines"


def long_functions(source: Source) -> Iterator[str]:
    for node in source.functions:
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        if count > LINES_PER_FUNCTION:
            yield f"{source}:{node.lineno} {node.name} has {count} lines"


def many_parameters(source: Source) -> Iterator[str]:
    for node in source.functions:
        arguments = node.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        positional = [name for name in names if name not in PASSED_ALONG]
        total = len(positional) + len(arguments.kwonlyargs)
        if total > PARAMETERS:
            yield f"{source}:{node.lineno} {node.name} has {total} parameters"


def long_sql(text: str, name: str) -> Iterator[str]:
    count = text.count("\n")
    if count > LINES_PER_SQL_FILE:
        yield f"{name} has {count} lines"


def test_files_are_short() -> None:
    assert [line for source in (*product(), *suite()) for line in long_file(source)] == []


def test_sql_files_are_short() -> None:
    files = sorted((ROOT / "storage").rglob("*.sql"))
    assert any(file.parent.name == "migrations" for file in files)
    texts = [(file.read_text("utf-8"), str(file.relative_to(ROOT))) for file in files]
    assert [line for text, name in texts for line in long_sql(text, name)] == []


def test_functions_are_short() -> None:
    assert [line for source in (*product(), *suite()) for line in long_functions(source)] == []


def test_functions_take_few_parameters() -> None:
    assert [line for source in product() for line in many_parameters(source)] == []


def test_the_checks_can_fail() -> None:
    assert [*long_file(planted("x = 1\n" * 901))]
    assert not [*long_file(planted("x = 1\n" * 900))]
    assert [*long_sql("-- \n" * 601, "storage/planted.sql")]
    assert not [*long_sql("-- \n" * 600, "storage/planted.sql")]
    assert [*long_functions(planted("def f():\n" + "    x = 1\n" * 60))]
    assert [*many_parameters(planted("def f(a, b, c, *, d, e, f, g): ..."))]
    assert not [*many_parameters(planted("def f(engine, tx, a, b, c, *, d, e, f): ..."))]
    assert isinstance(planted("x").tree, ast.Module)
