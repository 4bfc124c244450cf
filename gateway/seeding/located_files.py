"""Files with the line of each value: TOML, and YAML and JSON with the tags of CloudFormation.

A mistake names its line, and ``tomllib`` keeps no positions.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, time
from pathlib import Path
from typing import Any, NamedTuple

from queuegate.gateway.seeding.hocon import HoconReader, NotHocon, Place, Token

_MOST_BYTES = 16_777_216
_MOST_DEPTH = 64
_MOST_NUMBER = 1 << 63


class Mistake(NamedTuple):
    """One mistake in a file."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class Mistakes(Exception):
    """Everything that is wrong with a file, in the order of its lines."""

    def __init__(self, found: list[Mistake]) -> None:
        self.found = sorted(set(found), key=lambda one: (one.line, one.text))
        super().__init__("\n".join(map(str, self.found)))


@dataclass(slots=True)
class LocatedFile:
    """A parsed file, and what is wrong with it."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[Place, int]
    is_hocon: bool = False
    moved: dict[Place, Place] = field(default_factory=dict)
    """Places in the file of values that a translation has moved, by their new places."""
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)

    def refuse(self, place: Place, text: str) -> None:
        """Note a mistake."""
        self.mistakes.append(self._at(place, text))

    def warn(self, place: Place, text: str) -> None:
        """Note a part without effect."""
        self.warnings.append(self._at(place, text))

    def _at(self, place: Place, text: str) -> Mistake:
        for length in range(len(place), 0, -1):
            if place[:length] in self.moved:
                place = self.moved[place[:length]] + place[length:]
                break
        around = place
        while around and around not in self.lines:
            around = around[:-1]
        shown = ".".join(map(str, place))
        return Mistake(self.path, self.lines.get(around, 1), f"{shown}: {text}" if shown else text)


def read_file(path: Path, environ: Mapping[str, str]) -> LocatedFile:
    """Read a file by its ending. Raises Mistakes. Substitutions of HOCON find ``environ``."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Mistakes([Mistake(path, 1, f"the file has more than {_MOST_BYTES} bytes")])
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Mistakes([Mistake(path, 1, f"cannot be read: {reason}")]) from None
    try:
        match path.suffix.lower():
            case ".toml":
                found = _read_toml(path, text)
            case ".yaml" | ".yml" | ".json" | ".template":
                found = _read_yaml(path, text)
            case ".conf":
                reader = HoconReader(text, environ)
                found = LocatedFile(path, reader.read(), reader.lines, is_hocon=True)
            case _:
                allowed = "allowed are .toml, .yaml, .yml, .json, .template and .conf (ElasticMQ)"
                raise Mistakes([Mistake(path, 1, f"the ending of the file is unknown: {allowed}")])
    except NotHocon as error:
        raise Mistakes([Mistake(path, error.line, str(error))]) from None
    except RecursionError:
        raise Mistakes([Mistake(path, 1, "is nested too deeply")]) from None
    if not isinstance(found.data, dict):
        raise Mistakes([Mistake(path, 1, "the file has to be a table of sections")])
    return found


def _read_toml(path: Path, text: str) -> LocatedFile:
    try:
        data = _plain(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        raise Mistakes([Mistake(path, line, f"is not TOML: {error}")]) from None
    reader = _TomlPositions(text, {})
    reader.read_tables()
    return LocatedFile(path, data, reader.lines)


class _TomlPositions(HoconReader):
    """The lines of the values of a file that ``tomllib`` accepts; values stay unread."""

    notation = "TOML"
    token = re.compile(
        r"""(?P<space>[ \t\r]+|\#[^\n]*)
        | (?P<text>\"\"\"(?:[^\\]|\\[\s\S])*?\"{3,5}|'''[\s\S]*?'{3,5}
          |"(?:[^"\\\n]|\\.)*"|'[^'\n]*')
        | (?P<sign>[{}\[\]=,\n]) | (?P<bare>[^\s{}\[\]=,"'\#]+) | (?P<wrong>.)""",
        re.VERBOSE,
    )

    def read_tables(self) -> None:
        """Note the lines of all tables and values."""
        counts: dict[Place, int] = {}
        table: Place = ()
        while not self._took(""):
            line = self._tokens[self._at].line
            if self._took("["):
                is_list, table = self._took("["), ()
                keys = self._read_keys()
                for number, key in enumerate(keys, 1):
                    table = (*table, key)
                    if is_list and number == len(keys):
                        counts[table] = counts.get(table, -1) + 1
                    if table in counts:
                        self.lines.setdefault(table, line)
                        table = (*table, counts[table])
                    self.lines.setdefault(table, line)
                while self._took("]"):
                    pass
            elif not self._took("\n"):
                self._read_member({}, table)

    def _text(self, token: Token) -> str:
        return str(tomllib.loads(f"text = {token.text}")["text"])

    def _simple(self, token: Token, present: Any) -> Any:
        return None


def _read_yaml(path: Path, text: str) -> LocatedFile:
    yaml: Any = importlib.import_module("yaml")
    lines: dict[Place, int] = {}
    try:
        # JSON may be indented by tabs, and has none elsewhere.
        loader = _yaml_loader(yaml)(text if path.suffix == ".yaml" else text.replace("\t", " "))
        node = loader.get_single_node()
        if node is not None:
            _note_lines(yaml, node, (), lines)
        data = {} if node is None else _plain(loader.construct_document(node))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = 1 if mark is None else mark.line + 1
        raise Mistakes([Mistake(path, line, f"is not YAML: {reason}")]) from None
    except (ValueError, TypeError) as error:
        raise Mistakes([Mistake(path, 1, f"is not YAML: {error}")]) from None
    return LocatedFile(path, data, lines)


def _yaml_loader(yaml: Any) -> Any:
    """Return a safe loader that reads `!Ref x` as `{"Ref": x}` and `!Name x` as `{"Fn::Name": x}`.

    Aliases are refused: a few lines of them can stand for gigabytes.
    """

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                problem = "an alias (*name) is not supported: write its value again"
                raise yaml.composer.ComposerError(None, None, problem, mark)
            return super().compose_node(parent, index)

    def short_form(loader: Any, name: str, node: Any) -> dict[str, Any]:
        kind = type(node).__name__.removesuffix("Node").lower()
        deep = {} if kind == "scalar" else {"deep": True}
        value = getattr(loader, f"construct_{kind}")(node, **deep)
        return {name if name in ("Ref", "Condition") else f"Fn::{name}": value}

    Loader.add_multi_constructor("!", short_form)
    return Loader


def _note_lines(yaml: Any, node: Any, place: Place, lines: dict[Place, int]) -> None:
    """Note the lines of all values below a node, and make texts of its keys."""
    if len(place) > _MOST_DEPTH:
        raise RecursionError
    lines.setdefault(place, node.start_mark.line + 1)
    if node.id == "mapping":
        for key, value in node.value:
            key.tag = "tag:yaml.org,2002:str"
            key.value = _text(key.value)
            inner = (*place, key.value)
            if inner in lines:
                problem = f"{'.'.join(map(str, inner))}: is in the file twice"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            lines[inner] = key.start_mark.line + 1
            _note_lines(yaml, value, inner, lines)
    elif node.id == "sequence":
        for number, value in enumerate(node.value):
            _note_lines(yaml, value, (*place, number), lines)


def _plain(data: Any) -> Any:
    """Make texts of what JSON has not: dates, such as the Version of a policy, bytes, infinity."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(one) for one in data]
    if isinstance(data, date | time):
        return data.isoformat()
    is_number = isinstance(data, int | float) and -_MOST_NUMBER < data < _MOST_NUMBER
    return data if is_number or data is None else _text(data)


def _text(value: Any) -> str:
    """Return a text without lone surrogates, which no message has."""
    return str(value).encode(errors="replace").decode()
