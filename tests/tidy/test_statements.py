"""Each SQL statement has a header and says what it guarantees, and exactly one module uses it; the
file lies beside a module that does."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache

import pytest

from queuegate.storage.migrate import known_functions
from queuegate.storage.queries import load
from tests.tidy.source import ROOT, Source, planted, product

_STORAGE = ROOT / "storage"
_OTHERS = {"migrations", "functions"}
FILES = sorted(
    file.relative_to(_STORAGE).with_suffix("").as_posix()
    for file in _STORAGE.rglob("*.sql")
    if file.parent.name not in _OTHERS
)
_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
# A sentence, or the start of one: three words.
_PROSE = re.compile(r"-- (?!name:|params:)\S+ +\S+ +\S+")


def loads(source: Source) -> Iterator[str]:
    """The files whose statements this module loads."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            argument = node.args[0]
            if called == "load" and isinstance(argument, ast.Constant):
                yield str(argument.value)


@cache
def loading() -> tuple[tuple[str, set[str], set[str]], ...]:
    """(module, the files it loads, the texts in it) of each that loads statements."""
    return tuple(
        (str(source), files, {str(text.value) for text in source.strings})
        for source in product()
        if (files := {*loads(source)})
    )


def users(file: str, statement: str) -> list[str]:
    """The modules that load this file and name this statement."""
    return [module for module, files, texts in loading() if file in files and statement in texts]


def without_prose(text: str) -> Iterator[str]:
    """The statements of a file whose header is not followed by what they guarantee."""
    for header in _HEADER.finditer(text):
        _, _, following = text[header.end() :].lstrip("\n").partition("\n")
        if _PROSE.match(following) is None:
            yield header[1]


@pytest.mark.parametrize("file", FILES)
def test_each_statement_has_a_header_and_prose(file: str) -> None:
    text = (_STORAGE / f"{file}.sql").read_text("utf-8")
    names = _HEADER.findall(text)
    assert names
    assert sorted(set(names)) == sorted(names), "two statements with one name"
    # A header whose second line is not `-- params:` would be missed when the file is loaded.
    assert set(load(file)) == set(names)
    assert [*without_prose(text)] == []


@pytest.mark.parametrize("file", FILES)
def test_each_statement_is_used_by_exactly_one_module(file: str) -> None:
    wrong = {name: users(file, name) for name in load(file)}
    assert {name: found for name, found in wrong.items() if len(found) != 1} == {}


@pytest.mark.parametrize("file", FILES)
def test_parameters_are_those_of_the_header(file: str) -> None:
    for query in load(file).values():
        code = re.sub(r"--[^\n]*", "", query.text)
        used = {int(number) for number in re.findall(r"\$(\d+)", code)}
        assert used == set(range(1, len(query.params) + 1)), query.name


def test_each_file_lies_beside_a_module_that_loads_it() -> None:
    for file in FILES:
        beside = (_STORAGE / f"{file}.sql").parent.relative_to(ROOT).as_posix()
        modules = [module for module, files, _ in loading() if file in files]
        assert any(module.rpartition("/")[0] == beside for module in modules), file


def test_only_storage_loads_statements() -> None:
    assert {source.package for source in product() if [*loads(source)]} == {"storage"}


def test_migrations_are_numbered_without_a_gap() -> None:
    paths = (ROOT / "storage" / "migrations").glob("*.sql")
    # The parts of one migration have its number.
    numbers = sorted({path.name[:5] for path in paths})
    assert numbers == [f"{number:04}_" for number in range(len(numbers))]


def test_functions_that_were_changed_have_a_new_revision() -> None:
    """A gateway applies a file again for its revision alone. Changed one? Raise it, and note it."""
    noted = {
        ("chores", 1): "7b56482322acb5ec",
        ("events", 1): "4e94997ba829160c",
        ("fairness", 2): "6cf5c984d0ced8f3",
        ("fifo", 8): "9521eba604869a15",
        ("group_deletes", 4): "4bcaf387691a7cc7",
        ("group_sends", 1): "38e98409c4e79411",
        ("priorities", 1): "6dbd401b5e16f626",
        ("present", 3): "b80c24f0019d6fcd",
        ("rates", 2): "d62464c228e7d197",
        ("rooms", 3): "b5cf4f994b702305",
        ("log_groups", 2): "824a2e6931efe932",
        ("logs", 2): "3d7b4f8b56424bfd",
        ("states", 1): "190344bdfcf30b00",
        ("serial", 3): "237cddd1ca9952b9",
        ("topics", 1): "41063f082efac65a",
    }
    found = {(file.name, file.revision): _checksum(file.text) for file in known_functions()}
    assert found == noted


def test_whoever_adds_to_queues_asks_for_room() -> None:
    """A queue may hold only so many messages: whoever writes some beside its lanes looks first, or
    says that its caller does."""
    adds = re.compile(r"kind\.(send|bury|move_batch)\(")
    found = [source for source in product() if adds.search(source.text)]
    assert len(found) > 5
    assert [str(one) for one in found if not re.search(r"\b(room|capacity)", one.text)] == []


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_check_can_fail() -> None:
    assert [
        *loads(planted("from queuegate.storage.queries import load\nx = load('queues/fifo')"))
    ] == ["queues/fifo"]
    assert users("fifo", "no_such_statement") == []
    header = "-- name: find\n-- params: queue_id\n"
    assert [*without_prose(header + "SELECT 1 WHERE $1 = 1")] == ["find"]
    assert [*without_prose(header + "-- TODO\nSELECT 1")] == ["find"]
    assert [*without_prose(header + "-- name: next\n-- params:\n-- The one after it.\n")] == [
        "find"
    ]
    assert [*without_prose(header + "-- The live queue, or no row.\nSELECT 1")] == []
