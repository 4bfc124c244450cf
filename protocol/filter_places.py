"""The places that refusals of filter policies name (docs/contract/sns.md 3.7).

AWS reads policies with Jackson. A place is the column behind the opening character of a text, an
object or an array, or behind the last character of another value; behind a key the reader stands
at its value already. The texts of a policy that is no JSON are Jackson's, too.
"""

import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NoReturn

END: Final = object()
"""In the place of a key: the bracket that closes the object or array."""

REDACTED: Final = "REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)"
_MOST_SHOWN = 500
_MOST_TOKENS = 2_000
_DEEPEST = 100
_VALUES = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[\w$]+")
_WORDS = {"true": True, "false": False, "null": None}


class NoJson(Exception):
    """The text stops being JSON; `str(error)` is Jackson's sentence and the place."""


class Unplaced(Exception):
    """The text is too long or too deep for places."""


def place(text: str, offset: int, source: str | None = None) -> str:
    """Return the second line of a refusal: the source and the column behind `offset` characters.

    `source` None: the policy itself, of which 500 characters are shown.
    """
    if source is None:
        shown = "".join(
            each if each.isprintable() or each == "\n" else "?" for each in text[:_MOST_SHOWN]
        )
        left = len(text) - len(shown)
        source = f'(String)"{shown}"' + (f"[truncated {left} chars]" if left else "")
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return f"\n at [Source: {source}; line: {line}, column: {column}]"


class PlacedPolicy:
    """A policy with the place of each of its values. Raises NoJson and Unplaced."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._left = _MOST_TOKENS
        self._offsets: dict[tuple[int, Any], int] = {}
        self.value = self._value(0, None)[0]

    def place_of(self, container: Any, key: Any) -> str:
        """Return the second line of a refusal of the value that the container has at that key."""
        return place(self._text, self._offsets.get((id(container), key), 1))

    def _value(self, depth: int, owner: int | None) -> tuple[Any, int]:
        """Read a value; return it and the offset that is its place."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise Unplaced
        text, start = self._text, self._skip(owner)
        character = text[start]
        if character == '"':
            return self._string(), start + 1
        if character in "{[":
            self._at = start + 1
            return (self._object if character == "{" else self._array)(depth, start), start + 1
        if number := _NUMBER.match(text, start):
            self._at = number.end()
            return float(number[0]), self._at
        word = _WORD.match(text, start)
        if word is None:
            self._unexpected(f"expected a valid value {_VALUES}")
        self._at = word.end()
        if word[0] not in _WORDS:
            self._refuse(f"Unrecognized token '{word[0][:256]}': was expecting {_VALUES}", self._at)
        return _WORDS[word[0]], self._at

    def _object(self, depth: int, start: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._goes_on(found, "}", "Object", start):
            if self._text[self._at] != '"':
                self._unexpected("was expecting double-quote to start field name")
            key = self._string()
            if self._text[self._skip(start)] != ":":
                self._unexpected("was expecting a colon to separate field name and value")
            self._at += 1
            found[key], self._offsets[id(found), key] = self._value(depth + 1, start)
        return found

    def _array(self, depth: int, start: int) -> list[Any]:
        found: list[Any] = []
        while self._goes_on(found, "]", "Array", start):
            value, self._offsets[id(found), len(found)] = self._value(depth + 1, start)
            found.append(value)
        return found

    def _goes_on(self, found: Any, closing: str, kind: str, start: int) -> bool:
        """Read what separates entries; return False behind the closing bracket."""
        character = self._text[self._skip(start)]
        if character == closing:
            self._at += 1
            self._offsets[id(found), END] = self._at
            return False
        if found:
            if character != ",":
                self._unexpected(f"was expecting comma to separate {kind} entries")
            self._at += 1
            self._skip(start)
        return True

    def _string(self) -> str:
        try:
            value, self._at = scanstring(self._text, self._at + 1, True)
        except JSONDecodeError as error:
            if error.msg.startswith("Unterminated"):
                closing = "Unexpected end-of-input: was expecting closing quote for a string value"
                self._refuse(closing, len(self._text))
            character = self._text[error.pos : error.pos + 1]
            if error.msg.startswith("Invalid control"):
                self._refuse(
                    f"Illegal unquoted character ((CTRL-CHAR, code {ord(character)})): has to be "
                    "escaped using backslash to be included in string value",
                    error.pos + 1,
                )
            self._refuse(
                f"Unrecognized character escape {_shown(self._text[error.pos + 1 :][:1])}",
                error.pos + 2,
            )
        return str(value)

    def _skip(self, owner: int | None) -> int:
        """Move to the next character that is no space, and return its offset.

        The end of the text is refused with where the object or array `owner` starts.
        """
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        if self._at == len(self._text):
            if owner is None:
                self._refuse("No content to map due to end-of-input", self._at)
            began = place(self._text, owner, REDACTED).removeprefix("\n at ")
            what = "Object" if self._text[owner] == "{" else "Array"
            self._refuse(
                f"Unexpected end-of-input: expected close marker for {what} (start marker at "
                f"{began})",
                self._at,
            )
        return self._at

    def _unexpected(self, wanted: str) -> NoReturn:
        self._refuse(f"Unexpected character ({_shown(self._text[self._at])}): {wanted}", self._at)

    def _refuse(self, sentence: str, offset: int) -> NoReturn:
        raise NoJson(sentence + place(self._text, offset, REDACTED))


def _shown(character: str) -> str:
    """Quote a character as Jackson does, with its code."""
    code = ord(character) if character else 0
    if character.isprintable():
        return f"'{character}' (code {code})"
    return f"(CTRL-CHAR, code {code})"
