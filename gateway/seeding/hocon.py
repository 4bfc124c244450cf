"""A reader of HOCON, the notation of `elasticmq.conf`, with the line of each value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BLANK = r"(?>(?:[ \t\r\f\ufeff]|(?:\#|//)[^\n]*)*)"
_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_BARE = r'(?!//)[^\s"$\[\]{}:=,+\#`^?!@*&\\]'
_NAME = r"\$\{[^}\n]+\}"
_KEYS = rf"(?:{_QUOTED}|{_BARE}|[ \t])+"
_VALUE = rf"(?:{_QUOTED}|{_NAME}|{_BARE}|[ \t])+"
_PART_OF_KEYS = re.compile(rf'{_QUOTED}|\.|[^".]+')
_PART_OF_VALUE = re.compile(rf"{_QUOTED}|{_NAME}|[ \t]+|(?:{_BARE})+")
_NEXT = rf"{_QUOTED}|{_NAME}|(?:{_BARE})+|\n|.|"
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_CONSTANTS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Unreadable(Exception):
    """A text in no valid notation."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        super().__init__(text)


class HoconReader:
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
