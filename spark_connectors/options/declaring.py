"""Options, each declared once: read from what Spark hands over, checked, listed in the guide."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError

# Spark hands its own to a source or sink along with the user's.
_OF_SPARK = {"path", "checkpointlocation", "queryname", "mergeschema", "header"}
# Comes with CREATE TABLE alone.
_OF_TABLES = "provider"
NO_TABLES = (
    "a queue or topic cannot be kept by CREATE TABLE ... USING: Spark 4.2 and 4.3 give a source "
    "in Python none of a table's options when that is read or written. CREATE TEMPORARY VIEW name "
    "USING sqs OPTIONS (queueUrl '...') does the same for a session, and takes INSERT, too"
)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_SIZES = {"k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


class BadOption(ConnectorError):
    """An option that cannot be understood, is unknown, or does not go with another."""


class Kind(NamedTuple):
    """How the text of an option is read. ``read`` raises ValueError with what was expected."""

    name: str
    read: Callable[[str], Any]


def _text(given: str) -> str:
    if not given:
        raise ValueError("a text")
    return given


def _truth(given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return given.lower() == "true"


def whole(least: int, most: int) -> Kind:
    """A whole number within these bounds, both included."""

    def read(given: str) -> int:
        expected = f"a whole number from {least} to {most}"
        try:
            number = int(given)
        except ValueError:
            raise ValueError(expected) from None
        if not least <= number <= most:
            raise ValueError(expected)
        return number

    return Kind("number", read)


def seconds(least: float, most: float) -> Kind:
    """A duration in seconds, fractions allowed."""

    def read(given: str) -> float:
        expected = f"seconds from {least:g} to {most:g}"
        try:
            number = float(given)
        except ValueError:
            raise ValueError(expected) from None
        if not least <= number <= most:
            raise ValueError(expected)
        return number

    return Kind("seconds", read)


def duration(least: float, most: float) -> Kind:
    """A time in seconds, or with ms, s, m, h or d behind it, as in Kafka's source."""

    def read(given: str) -> float:
        expected = f"a time from {least:g} to {most:g} seconds, such as 30s, 15m or 1h"
        text = given.strip().lower()
        unit = text.lstrip("0123456789.")
        try:
            found = float(text.removesuffix(unit)) * _UNITS[unit or "s"]
        except (ValueError, KeyError):
            raise ValueError(expected) from None
        if not least <= found <= most:
            raise ValueError(expected)
        return found

    return Kind("time", read)


def size(least: int, most: int) -> Kind:
    """A size in bytes: a number, or one with k, m or g behind it (1024 each)."""

    def read(given: str) -> int:
        expected = f"bytes from {least} to {most}, such as 65536, 512k or 64m"
        number = given.strip().lower()
        unit = number.lstrip("0123456789")
        try:
            found = int(number.removesuffix(unit)) * (_SIZES[unit] if unit else 1)
        except (ValueError, KeyError):
            raise ValueError(expected) from None
        if not least <= found <= most:
            raise ValueError(expected)
        return found

    return Kind("bytes", read)


def choice(*words: str) -> Kind:
    """One of these words."""

    def read(given: str) -> str:
        if given.lower() not in words:
            raise ValueError(" or ".join(words))
        return given.lower()

    return Kind("|".join(words), read)


def _names(given: str) -> tuple[str, ...]:
    try:
        found = json.loads(given) if given.lstrip().startswith("[") else given.split(",")
        names = tuple(one.strip() for one in found)
    except (ValueError, AttributeError):
        names = ()
    if not names or not all(names):
        raise ValueError("names with commas between, or a JSON list of texts")
    return names


TEXT = Kind("text", _text)
TRUTH = Kind("true|false", _truth)
NAMES = Kind("names", _names)


class Option(NamedTuple):
    """One option. ``default`` is what it means when absent; ``shown`` how the guide says that."""

    name: str
    kind: Kind
    default: Any
    meaning: str
    aliases: tuple[str, ...] = ()
    shown: str = ""


def read_options(declared: Sequence[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Values by the options' own names, defaults filled in; names are matched in any case.

    Raises BadOption: unknown (with the nearest that exists), named twice, or not understood.
    """
    if any(name.lower() == _OF_TABLES for name in given):
        raise BadOption(NO_TABLES)
    for name in unknown_names(declared, given):
        raise BadOption(f"unknown option '{name}'{_nearest(name, declared)}")
    by_name = _by_name(declared)
    found: dict[str, Any] = {}
    for name, text in given.items():
        option = by_name.get(name.lower())
        if option is None:
            continue
        if option.name in found:
            raise BadOption(f"option '{option.name}' is given twice: '{name}' is the same one")
        try:
            found[option.name] = option.kind.read(str(text).strip())
        except ValueError as unreadable:
            shown = f"'{text}'" if "secret" not in option.name.lower() else "its value"
            raise BadOption(f"option '{option.name}': expected {unreadable}, got {shown}") from None
    return {option.name: found.get(option.name, option.default) for option in declared}


def unknown_names(declared: Sequence[Option], given: Iterable[str]) -> list[str]:
    """Those of the names that are no option, and none of Spark's own."""
    known = _by_name(declared).keys() | _OF_SPARK
    return [one for one in given if one.lower() not in known and not one.startswith("__")]


def _by_name(declared: Sequence[Option]) -> dict[str, Option]:
    return {name.lower(): one for one in declared for name in (one.name, *one.aliases)}


def _nearest(name: str, declared: Sequence[Option]) -> str:
    known = {one.lower(): one for option in declared for one in (option.name, *option.aliases)}
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f": did you mean '{known[close[0]]}'?" if close else ""


def table(declared: Sequence[Option]) -> Iterator[str]:
    """The options as the lines of a Markdown table."""
    yield "| option | default | meaning |"
    yield "| --- | --- | --- |"
    for option in declared:
        names = " ".join([f"`{option.name}`", *(f"(`{one}`)" for one in option.aliases)])
        kind = "" if option.kind.name in ("text", "number") else f"`{option.kind.name}`. "
        meaning = (kind + option.meaning).replace("|", "\\|")
        yield f"| {names} | {_default(option)} | {meaning} |"


def _default(option: Option) -> str:
    if option.shown:
        return option.shown
    if option.default is None or option.default == ():
        return ""
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    if isinstance(option.default, tuple):
        return f"`{','.join(option.default)}`"
    return f"`{option.default}`"
