"""A reader of HOCON, the notation of `elasticmq.conf`, with the line of each value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Place = tuple[str | int, ...]
"""Keys and list positions that lead to a value."""

_MOST_DEPTH = 64
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_CONSTANTS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class NotHocon(Exception):
    """The text is not HOCON."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        super().__init__(text)


class Token(NamedTuple):
    """A part of a text; ``is_separated``: behind white space."""

    kind: str
    text: str
    line: int
    is_separated: bool


class HoconReader:
    """A reader of HOCON as files of ElasticMQ use it: ``include`` is ignored, since their defaults
    are Queuegate's. There are neither ``+=`` nor texts of several lines."""

    notation = "HOCON"
    token = re.compile(
        r"""(?P<space>[ \t\r\f\ufeff]+|(?:\#|//)[^\n]*) | (?P<text>"(?:[^"\\\n]|\\.)*")
        | (?P<name>\$\{[^}\n]+\}) | (?P<sign>[{}\[\]=:,\n])
        | (?P<bare>(?:(?!//)[^\s"$\[\]{}:=,+\#`^?!@*&\\])+) | (?P<wrong>.)""",
        re.VERBOSE,
    )

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self.lines: dict[Place, int] = {}
        self._environ = environ
        self._root: dict[str, Any] = {}
        self._at = 0
        self._tokens: list[Token] = []
        line, is_separated = 1, True
        for match in self.token.finditer(text):
            kind = match.lastgroup or ""
            if kind != "space":
                self._tokens.append(Token(kind, match[0], line, is_separated))
            is_separated = kind == "space"
            line += match[0].count("\n")
        self._tokens.append(Token("sign", "", line, is_separated))

    def read(self) -> dict[str, Any]:
        """Return the data. Raises NotHocon."""
        while self._took("\n"):
            pass
        if self._took("{"):
            self._read_members(self._root, (), "}")
        self._read_members(self._root, (), "")
        return self._root

    def _refusal(self, text: str) -> NotHocon:
        token = self._tokens[self._at]
        shown = json.dumps(token.text) if token.text else "the end of the file"
        return NotHocon(token.line, f"is not {self.notation}: {text}, not {shown}")

    def _is_at(self, *signs: str) -> bool:
        token = self._tokens[self._at]
        return token.kind == "sign" and token.text in signs

    def _took(self, *signs: str) -> bool:
        """Step over a sign, if it is one of these. The sign of the end is empty."""
        is_found = self._is_at(*signs)
        self._at += is_found and not self._is_at("")
        return is_found

    def _read_members(self, into: dict[str, Any], place: Place, end: str) -> None:
        if len(place) > _MOST_DEPTH:
            raise self._refusal("is nested too deeply")
        while not self._took(end):
            if self._took("\n", ","):
                continue
            if self._tokens[self._at][:2] == ("bare", "include"):
                while not self._is_at("\n", ""):
                    self._at += 1
                continue
            self._read_member(into, place)

    def _read_member(self, into: dict[str, Any], place: Place) -> None:
        line, keys = self._tokens[self._at].line, self._read_keys()
        for key in keys[:-1]:
            place = (*place, key)
            self.lines.setdefault(place, line)
            inner = into.get(key)
            into[key] = into = inner if isinstance(inner, dict) else {}
        place = (*place, keys[-1])
        self.lines[place] = line
        if self._took("=", ":"):
            while self._took("\n"):
                pass
        elif not self._is_at("{"):
            raise self._refusal(f"expected =, : or {{ behind {keys[-1]}")
        value = self._read_value(place, into.get(keys[-1]))
        if value is not None:
            into[keys[-1]] = value

    def _read_keys(self) -> list[str]:
        keys, last = [""], "."
        for token in self._simple_tokens("bare", "text"):
            first, *others = [self._text(token)] if token.kind == "text" else token.text.split(".")
            keys[-1] += (" " if token.is_separated and keys[-1] and first else "") + first
            keys += others
            last = token.text[-1]
        if last == ".":
            raise self._refusal("expected a key")
        return keys

    def _simple_tokens(self, *kinds: str) -> Iterator[Token]:
        while self._tokens[self._at].kind in kinds:
            self._at += 1
            yield self._tokens[self._at - 1]

    def _read_value(self, place: Place, present: Any) -> Any:
        """Read an object, which merges with a present one, an array, or texts that join."""
        if self._took("{"):
            merged = present if isinstance(present, dict) else {}
            self._read_members(merged, place, "}")
            return merged
        if self._took("["):
            return self._read_list(place)
        parts: list[Any] = []
        for token in self._simple_tokens("bare", "text", "name"):
            parts += [" "] if parts and token.is_separated else []
            parts.append(self._simple(token, present))
        if not parts:
            raise self._refusal("expected a value")
        if len(parts) == 1:
            return parts[0]
        return "".join(str(part) for part in parts if part is not None).strip()

    def _read_list(self, place: Place) -> list[Any]:
        if len(place) > _MOST_DEPTH:
            raise self._refusal("is nested too deeply")
        values: list[Any] = []
        while not self._took("]"):
            if not self._took("\n", ","):
                inner = (*place, len(values))
                self.lines[inner] = self._tokens[self._at].line
                values.append(self._read_value(inner, None))
        return values

    def _text(self, token: Token) -> str:
        try:
            return str(json.loads(token.text))
        except ValueError:
            self._at -= 1
            raise self._refusal("expected a text with escapes as in JSON") from None

    def _simple(self, token: Token, present: Any) -> Any:
        if token.kind == "text":
            return self._text(token)
        if token.kind == "name":
            return self._substituted(token.text[2:-1].strip(), present)
        if token.text in _CONSTANTS or token.text == "null":
            return _CONSTANTS.get(token.text)
        return int(token.text) if _WHOLE.fullmatch(token.text) else token.text

    def _substituted(self, name: str, present: Any) -> Any:
        """Return the value above of that path, or else the environment variable."""
        value: Any = self._root
        for key in name.lstrip("?").split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            value = self._environ.get(name.lstrip("?"))
        if value is None and not name.startswith("?"):
            text = f"${{{name}}} is neither set above nor in the environment"
            raise NotHocon(self._tokens[self._at - 1].line, f"is not HOCON: {text}")
        return present if value is None else value
