"""Files with the line of each value: TOML, YAML, HOCON, and JSON with the tags of CloudFormation.

``tomllib`` keeps no positions, so each value of a TOML file is marked with its line before it is
parsed. Readers of HOCON for Python keep none, either.
"""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

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
_BLANK = r"(?>(?:[ \t\r\f\ufeff]|(?:\#|//)[^\n]*)*)"
_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_BARE = r'(?!//)[^\s"$\[\]{}:=,+\#`^?!@*&\\]'
_REFERENCE = r"\$\{[^}\n]+\}"
_KEYS = rf"(?:{_QUOTED}|{_BARE}|[ \t])+"
_VALUE = rf"(?:{_QUOTED}|{_REFERENCE}|{_BARE}|[ \t])+"
_PART_OF_KEYS = re.compile(rf'{_QUOTED}|\.|[^".]+')
_PART_OF_VALUE = re.compile(rf"{_QUOTED}|{_REFERENCE}|[ \t]+|(?:{_BARE})+")
_NEXT = rf"{_QUOTED}|{_REFERENCE}|(?:{_BARE})+|\n|.|"
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_CONSTANTS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
Table = dict[Any, Any]
"""A table of a file. Its keys are ``FileKey``."""
Node = tuple[int, Any]
"""The line of a value, and the value: a dict or a list has nodes."""


class Unreadable(Exception):
    """A text in no valid notation."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        super().__init__(text)


class Mistakes(Exception):
    """Everything that is wrong with a file: a sentence each, in the order of its lines."""

    def __init__(self, found: list[str]) -> None:
        self.found = found
        super().__init__("\n".join(found))


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

    @property
    def shown(self) -> str:
        """Return the start of a sentence about the value."""
        return ".".join(self.place) + ": " * bool(self.place)

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


class LocatedFile:
    """A parsed file, and what is wrong with it."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        """Read a file by its ending. Substitutions of HOCON find ``environ``."""
        self.path = path
        self.data: Table = {}
        self.warnings: list[str] = []
        self._mistakes: set[tuple[int, str]] = set()
        try:
            data = _located(_read(path, environ), ())
        except Unreadable as error:
            self._mistakes.add((error.line, str(error)))
        except RecursionError:
            self._mistakes.add((1, "is nested too deeply"))
        else:
            self.data = self.checked(ROOT, data, dict, "a table of sections") or {}

    @property
    def mistakes(self) -> list[str]:
        """Return a sentence for each mistake, in the order of their lines."""
        return [f"{self.path}:{line}: {text}" for line, text in sorted(self._mistakes)]

    def refuse(self, key: FileKey, text: str) -> None:
        """Note a mistake."""
        self._mistakes.add((key.line, f"{key.shown}{text}"))

    def warn(self, key: FileKey, text: str) -> None:
        """Note a part without effect."""
        self.warnings.append(f"{self.path}:{key.line}: {key.shown}{text}")

    def checked(self, key: FileKey, value: Any, kind: type, what: str) -> Any:
        """Return a value of this type, or refuse it and return None."""
        if isinstance(value, kind):
            return value
        self.refuse(key, f"has to be {what}")
        return None


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
            return _HoconReader(text, environ).read()
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


class _HoconReader:
    """A reader of HOCON as files of ElasticMQ use it: ``include`` is ignored, since their defaults
    are Queuegate's. There are neither ``+=`` nor texts of several lines."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self._text = text
        self._environ = environ
        self._root: dict[str, Any] = {}
        self._at = 0
        self._line = 1

    def read(self) -> dict[str, Any]:
        """Return the data: each value is a pair of its line and itself. Raises Unreadable."""
        while self._take("\n"):
            pass
        if self._take(r"\{"):
            self._read_members(self._root, r"\}")
        self._read_members(self._root, r"\Z")
        return self._root

    def _refusal(self, text: str) -> Unreadable:
        line, found = self._line, self._take(_NEXT)
        shown = json.dumps(found) if found else "the end of the file"
        return Unreadable(line, f"is not HOCON: {text}, not {shown}")

    def _take(self, pattern: str) -> str | None:
        """Step over blanks, comments and this pattern, if it follows; return its text."""
        found = re.compile(f"{_BLANK}({pattern})").match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        self._line += found[0].count("\n")
        return found[1]

    def _read_members(self, into: dict[str, Any], end: str) -> None:
        while self._take(end) is None:
            if self._take(r'[\n,]|include(?=[\s"])[^\n]*') is None:
                self._read_member(into)

    def _read_member(self, into: dict[str, Any]) -> None:
        line, [*above, last] = self._line, self._read_keys()
        for key in above:
            _, inner = into.get(key, (line, None))
            if not isinstance(inner, dict):
                into[key] = line, (inner := {})
            into = inner
        if self._take("[=:]"):
            while self._take("\n"):
                pass
        elif self._take(r"(?=\{)") is None:
            raise self._refusal(f"expected =, : or {{ behind {last}")
        value = self._read_value(into.get(last, (line, None))[1])
        if value is not None:
            into[last] = line, value

    def _read_keys(self) -> list[str]:
        keys = [""]
        for part in _PART_OF_KEYS.findall((self._take(_KEYS) or "").strip() or "."):
            if part == ".":
                keys.append("")
            else:
                keys[-1] += self._unquoted(part)
        if part == ".":
            raise self._refusal("expected a key")
        return keys

    def _read_value(self, present: Any) -> Any:
        """Read an object, which merges with a present one, an array, or texts that join."""
        if self._take(r"\{"):
            merged = present if isinstance(present, dict) else {}
            self._read_members(merged, r"\}")
            return merged
        if self._take(r"\["):
            values: list[Any] = []
            while self._take(r"\]") is None:
                if self._take(r"[\n,]") is None:
                    values.append((self._line, self._read_value(None)))
            return values
        parts = _PART_OF_VALUE.findall((self._take(_VALUE) or "").strip())
        if not parts:
            raise self._refusal("expected a value")
        found = [self._simple(part, present) for part in parts]
        return found[0] if not found[1:] else "".join(str(one) for one in found if one is not None)

    def _unquoted(self, text: str) -> str:
        try:
            return str(json.loads(text)) if text[0] == '"' else text
        except ValueError:
            text = f"is not HOCON: expected a text with escapes as in JSON, not {text}"
            raise Unreadable(self._line, text) from None

    def _simple(self, text: str, present: Any) -> Any:
        if text.startswith("${"):
            return self._substituted(text[2:-1].strip(), present)
        if text in _CONSTANTS or text == "null":
            return _CONSTANTS.get(text)
        return int(text) if _WHOLE.fullmatch(text) else self._unquoted(text)

    def _substituted(self, given: str, present: Any) -> Any:
        """Return the value above of that path, or else the environment variable."""
        name, value = given.lstrip("?"), self._root
        for key in name.split("."):
            value = value.get(key, (0, None))[1] if isinstance(value, dict) else None
        if value is None:
            value = self._environ.get(name)
        if value is None and given == name:
            text = f"is not HOCON: ${{{name}}} is neither set above nor in the environment"
            raise Unreadable(self._line, text)
        return present if value is None else value
