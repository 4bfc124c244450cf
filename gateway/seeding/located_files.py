"""Files with the line of each value: TOML, and YAML and JSON with the tags of CloudFormation.

``tomllib`` keeps no positions, so each value of a TOML file is marked with its line before it is
parsed. HOCON is read by ``hocon``.
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

from queuegate.gateway.seeding.hocon import HoconReader, Unreadable

_MOST_BYTES = 16_777_216
_MOST_DEPTH = 64
_MOST_NUMBER = 1 << 63
_LINE = r"\u0000line"
"""The key, as TOML escapes it, under which a table has its own line."""
_TOML = re.compile(
    r"""(?P<text>\"\"\"(?:[^\\]|\\[\s\S])*?\"{3,5}|'''[\s\S]*?'{3,5}
      |"(?:[^"\\\n]|\\.)*"|'[^'\n]*')
    | (?P<sign>[{}\[\]=\n]) | (?P<space>[\s,]|\#[^\n]*)
    | (?P<bare>[^\s{}\[\]=,"'\#]+(?:\ [0-9]{2}:[^\s\]},\#]+)?)""",
    re.VERBOSE,
)
Table = dict[Any, Any]
"""A table of a file. Its keys are ``FileKey``."""
Node = tuple[int, Any]
"""The line of a value, and the value: a dict or a list has nodes."""


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


class FileKey(str):
    """A name in a file, or the number of a list's item, with its line and the names above it."""

    __slots__ = ("line", "place")
    line: int
    place: tuple[str, ...]

    @classmethod
    def at(cls, name: str, line: int, place: tuple[str, ...]) -> FileKey:
        """Return the key of a name."""
        key = cls(name)
        key.line, key.place = line, place
        return key

    def renamed(self, name: str) -> FileKey:
        """Return another name for the same place."""
        return FileKey.at(name, self.line, self.place)

    def below(self, name: str) -> FileKey:
        """Return the place of a value that is absent."""
        return FileKey.at(name, self.line, (*self.place, name))


ROOT = FileKey.at("", 1, ())


class Items(list[Any]):
    """A list whose items have keys."""

    def __init__(self, pairs: list[tuple[FileKey, Any]]) -> None:
        super().__init__(value for _, value in pairs)
        self.keys = [key for key, _ in pairs]


@dataclass(slots=True)
class LocatedFile:
    """A parsed file, and what is wrong with it."""

    path: Path
    data: Table
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)

    def refuse(self, key: FileKey, text: str) -> None:
        """Note a mistake."""
        self.mistakes.append(self._at(key, text))

    def warn(self, key: FileKey, text: str) -> None:
        """Note a part without effect."""
        self.warnings.append(self._at(key, text))

    def _at(self, key: FileKey, text: str) -> Mistake:
        shown = ".".join(key.place)
        return Mistake(self.path, key.line, f"{shown}: {text}" if shown else text)

    def checked(self, key: FileKey, value: Any, kind: type, what: str) -> Any:
        """Return a value of this type, or refuse it and return None."""
        if isinstance(value, kind):
            return value
        self.refuse(key, f"has to be {what}")
        return None


def read_file(path: Path, environ: Mapping[str, str]) -> LocatedFile:
    """Read a file by its ending. Raises Mistakes. Substitutions of HOCON find ``environ``."""
    try:
        data = _located(_read(path, environ), ())
        if not isinstance(data, dict):
            raise Unreadable(1, "the file has to be a table of sections")
        return LocatedFile(path, data)
    except Unreadable as error:
        raise Mistakes([Mistake(path, error.line, str(error))]) from None
    except RecursionError:
        raise Mistakes([Mistake(path, 1, "is nested too deeply")]) from None


def _read(path: Path, environ: Mapping[str, str]) -> Any:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Unreadable(1, f"the file has more than {_MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Unreadable(1, f"cannot be read: {reason}") from None
    match path.suffix.lower():
        case ".toml":
            return _read_toml(text)
        case ".yaml" | ".yml":
            return _read_yaml(text)
        case ".json" | ".template":
            # JSON may be indented by tabs, and has none elsewhere.
            return _read_yaml(text.replace("\t", " "))
        case ".conf":
            return HoconReader(text, environ).read()
    allowed = "allowed are .toml, .yaml, .yml, .json, .template and .conf (ElasticMQ)"
    raise Unreadable(1, f"the ending of the file is unknown: {allowed}")


def _located(value: Any, place: tuple[str, ...]) -> Any:
    """Return a value with keys in place of nodes. Make texts of what JSON has not: dates, such as
    the Version of a policy, bytes, infinity."""
    if len(place) > _MOST_DEPTH:
        raise RecursionError
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        pairs = [
            (FileKey.at(str(name), line, (*place, str(name))), _located(inner, (*place, str(name))))
            for name, (line, inner) in items
        ]
        return dict(pairs) if isinstance(value, dict) else Items(pairs)
    if isinstance(value, date | time):
        return value.isoformat()
    is_number = isinstance(value, int | float) and -_MOST_NUMBER < value < _MOST_NUMBER
    return value if is_number or value is None else _text(value)


def _text(value: Any) -> str:
    """Return a text without lone surrogates, which no message has."""
    return str(value).encode(errors="replace").decode()


def _read_toml(text: str) -> Any:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        raise Unreadable(line, f"is not TOML: {error}") from None
    return _toml_node(tomllib.loads(_with_lines(text)))[1]


def _with_lines(text: str) -> str:
    """Return valid TOML with each value in a list behind its line, and lines of tables."""
    parts: list[str] = []
    opened: list[str] = []
    line, is_value, is_header = 1, False, False
    for match in _TOML.finditer(text + "\n"):
        token, starts = match[0], is_value or opened[-1:] == ["["]
        if is_header:
            is_header = token != "\n"
            token = token if is_header else f'\n"{_LINE}" = {line}\n'
        elif token == "=":
            is_value = True
        elif token in ("[", "{"):
            is_header = not starts
            if starts:
                opened.append(token)
                token, is_value = f"[{line}, {token}", False
        elif token in ("]", "}"):
            opened.pop()
            token += "]"
        elif starts and match.lastgroup in ("text", "bare"):
            token, is_value = f"[{line}, {token}]", False
        parts.append(token)
        line += match[0].count("\n")
    return "".join(parts)


def _toml_node(value: Any) -> Node:
    """Return the node of a table, of a list of tables, or of a value behind its line."""
    if isinstance(value, dict):
        table = {name: _toml_node(one) for name, one in value.items() if name != "\0line"}
        return value.get("\0line") or min((line for line, _ in table.values()), default=1), table
    if isinstance(value[0], dict):
        tables = [_toml_node(one) for one in value]
        return tables[0][0], tables
    line, inner = value
    if isinstance(inner, list):
        return line, [_toml_node(one) for one in inner]
    return line, _toml_node(inner)[1] if isinstance(inner, dict) else inner


def _read_yaml(text: str) -> Any:
    yaml: Any = importlib.import_module("yaml")
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        return {} if root is None else _yaml_node(loader, root, 1, set())[1]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise Unreadable(mark.line + 1 if mark else 1, f"is not YAML: {reason}") from None
    except (ValueError, TypeError) as error:
        raise Unreadable(1, f"is not YAML: {error}") from None


def _yaml_node(loader: Any, node: Any, line: int, seen: set[int]) -> Node:
    """Return a node with `!Ref x` as `{"Ref": x}` and `!Name x` as `{"Fn::Name": x}`.

    Aliases are refused: a few lines of them can stand for gigabytes.
    """
    if id(node) in seen:
        text = "an alias (*name) is not supported: write its value again"
        raise Unreadable(line, f"is not YAML: {text}")
    seen.add(id(node))
    tag = node.tag[1:] if node.tag.startswith("!") else ""
    if node.id == "mapping":
        value: Any = {}
        for key, inner in node.value:
            name, at = _text(key.value), key.start_mark.line + 1
            if name in value:
                raise Unreadable(at, f"is not YAML: {name} is in the table twice")
            value[name] = _yaml_node(loader, inner, at, seen)
    elif node.id == "sequence":
        value = [_yaml_node(loader, one, one.start_mark.line + 1, seen) for one in node.value]
    else:
        value = node.value if tag else loader.construct_object(node)
    if tag:
        value = {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": (line, value)}
    return line, value
