"""Shapes of requests and responses as data, which the encoders and decoders of all wires read;
scalars from text; and service models with their constraints, from a notation
(docs/contract/scheduler.md 4.2 and 4.4).

A shape is compared by identity, so it is a cheap dictionary key. Names that only the Query wire
needs (`flat`, `key_name`, `value_name`) are on the renamed shape; the JSON wire ignores them.
Constraints are in a table by shape.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from queuegate.protocol.malformed import Malformed

ScalarKind = Literal["string", "integer", "long", "boolean", "blob", "timestamp"]


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """In Python: str, int (32 and 64 bit), bool, bytes, and datetime with a time zone."""

    kind: ScalarKind


@dataclass(frozen=True, slots=True, eq=False)
class List:
    """A list. `flat` is the Query name of each element of a flattened list; the default is
    `<Member>.member.N`. Responses leave out an empty flattened list; other empty lists are
    written."""

    item: Shape
    flat: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A map with string keys. `flat` names the entries of a flattened map; the default is
    `<Member>.entry.N`."""

    value: Shape
    flat: str | None = None
    key_name: str = "key"
    value_name: str = "value"


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """Members in the order in which XML writes them."""

    members: Mapping[str, Shape]


Shape: TypeAlias = Scalar | List | Map | Structure

STRING = Scalar("string")
INTEGER = Scalar("integer")
LONG = Scalar("long")
BOOLEAN = Scalar("boolean")
BLOB = Scalar("blob")
TIMESTAMP = Scalar("timestamp")


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """An action. `output` None: no result, not even an empty Result element; `Structure({})`: an
    empty one."""

    name: str
    input: Structure
    output: Structure | None


@dataclass(frozen=True, slots=True, eq=False)
class ServiceModel:
    """One AWS service. `name` is its SigV4 signing name; `versions` are its API versions.
    `target_prefix` and `json_version` are None for a service without a JSON-RPC wire."""

    name: str
    versions: tuple[str, ...]
    target_prefix: str | None
    json_version: str | None
    xml_namespace: str
    xml_prolog: str
    xml_error_detail: bool
    actions: Mapping[str, Action]


# \d also matches the digits of every other script, and int() takes "1_0": hence our own pattern.
# The length bound keeps int() linear.
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_LIMITS: dict[ScalarKind, int] = {"integer": 2**31, "long": 2**63}
_WHITESPACE = b" \t\r\n"


def parse_integer(kind: ScalarKind, value: str | int) -> int:
    """Parse a decimal number that fits into 32 ("integer") or 64 ("long") bits."""
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise Malformed(f"STRING_VALUE can not be converted to {_article(kind)}")
        value = int(value)
    limit = _LIMITS[kind]
    if not -limit <= value < limit:
        raise Malformed(f"NUMBER_VALUE is out of range for {_article(kind)}")
    return value


def parse_boolean(text: str) -> bool:
    if (lowered := text.lower()) not in ("true", "false"):
        raise Malformed("STRING_VALUE can not be converted to a Boolean")
    return lowered == "true"


def parse_blob(text: str) -> bytes:
    """Parse base64 with its padding; line breaks and spaces, which tools insert, are ignored."""
    try:
        # A str takes ten times as long.
        return a2b_base64(text.encode("ascii").translate(None, _WHITESPACE), strict_mode=True)
    except ValueError:
        raise Malformed("STRING_VALUE can not be converted to a Blob") from None


def parse_timestamp(text: str) -> datetime:
    """Parse ISO 8601 or seconds since the epoch. Without a time zone it is UTC."""
    try:
        if _INTEGER.fullmatch(text):
            return datetime.fromtimestamp(int(text), UTC)
        instant = datetime.fromisoformat(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise Malformed("STRING_VALUE can not be converted to a Timestamp") from None


def _article(kind: ScalarKind) -> str:
    return "an Integer" if kind == "integer" else "a Long"


Constraints = Mapping[Shape, "Constraint"]

_LONGEST_VALUE = 1024
_NO_VALUE = "Member must not be null"


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """The bounds of a shape; None: no bound. `least` and `most` bound an integer itself, and the
    length of a text (in characters), of a list or of a map. `pattern` is that of the model, for the
    whole text, with the ASCII meaning of its classes. `values` are the texts of an enumeration;
    `required` are members of a structure."""

    least: int | None = None
    most: int | None = None
    pattern: str | None = None
    values: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def constraint_errors(shape: Shape, value: Any, rules: Constraints) -> str | None:
    """Return all breaches in decoded members as one text, with their number; None: there is
    none."""
    found = [*constraint_violations(shape, value, rules)]
    if not found:
        return None
    plural = "" if len(found) == 1 else "s"
    return f"{len(found)} validation error{plural} detected: {'; '.join(found)}"


def constraint_violations(
    shape: Shape, value: Any, rules: Constraints, path: str = ""
) -> Iterator[str]:
    """Yield the breaches in a decoded value in the order of the members, with paths in lower camel
    case. Elements of a list or map that is too long are not checked."""
    rule = rules.get(shape)
    faults = [*_faults(rule, value)] if rule is not None else []
    shown = _shown(value) if faults else ""
    for fault in faults:
        yield f"Value {shown} at '{path}' failed to satisfy constraint: {fault}"
    if isinstance(shape, Structure):
        yield from _member_violations(shape, value, rules, path)
    elif isinstance(shape, List) and not faults:
        for number, item in enumerate(value, 1):
            yield from constraint_violations(shape.item, item, rules, f"{path}.{number}.member")
    elif isinstance(shape, Map) and not faults:
        for key, item in value.items():
            yield from constraint_violations(shape.value, item, rules, f"{path}.{key}.member")


def _member_violations(
    structure: Structure, value: Mapping[str, Any], rules: Constraints, path: str
) -> Iterator[str]:
    rule = rules.get(structure)
    required = rule.required if rule is not None else ()
    for name, member in structure.members.items():
        below = f"{path}{'.' if path else ''}{name[0].lower()}{name[1:]}"
        item = value.get(name)
        if item is not None:
            yield from constraint_violations(member, item, rules, below)
        elif name in required:
            yield f"Value null at '{below}' failed to satisfy constraint: {_NO_VALUE}"


def _faults(rule: Constraint, value: Any) -> Iterator[str]:
    if isinstance(value, int):
        measure, unit = value, "value"
    elif isinstance(value, str | list | dict):
        measure, unit = len(value), "length"
    else:
        return
    if rule.most is not None and measure > rule.most:
        yield f"Member must have {unit} less than or equal to {rule.most}"
    if rule.least is not None and measure < rule.least:
        yield f"Member must have {unit} greater than or equal to {rule.least}"
    if rule.pattern is not None and re.fullmatch(rule.pattern, value, re.ASCII) is None:
        yield f"Member must satisfy regular expression pattern: {rule.pattern}"
    if rule.values and value not in rule.values:
        yield f"Member must satisfy enum value set: [{', '.join(rule.values)}]"


def _shown(value: Any) -> str:
    text = f"[{len(value)} elements]" if isinstance(value, list | dict) else str(value)
    if len(text) > _LONGEST_VALUE:
        text = text[:_LONGEST_VALUE] + "..."
    return f"'{text}'"


_KINDS = {"": STRING, "int": INTEGER, "long": LONG, "bool": BOOLEAN, "blob": BLOB}
_LINE = re.compile(r"(\w+)(\((.*?)\)(?: ->(.*))?|: (.*)| = (.*))")
_TYPE = re.compile(r"(\[.*?\]|\{.*?\}|<.*?>|\w*)(?:@(\w+))?(?:\((\d*)\.\.(\d*)(?:~(.*))?\))?")


class ModelText:
    """The shapes, actions and constraints of a service model, in a notation near that of AWS's
    documentation.

    A line defines an action, `Name(MEMBERS) -> MEMBERS`, a structure, `Name: MEMBERS`, or another
    shape, `Name = TYPE`. An indented line continues the one before, and `#` begins a comment. An
    action without an arrow has no result.

    Members are separated by spaces: `Name` of type string, `Name:TYPE`, or `*Name`, all members of
    a structure. `!` behind the name of a member requires it in requests.

    A type is `int`, `long`, `bool`, `blob`, `time`, a name of an earlier line, `[TYPE]`, a list,
    `{TYPE}`, a map, or `<TEXT,TEXT>`, an enumeration; left out, it is a string. `{Key/Value/TYPE}`
    has the names of an entry in Query. `@Name` flattens a list or map under that name in Query.
    Behind all, `(1..64~PATTERN)` has bounds and a pattern, each of which may be left out.
    """

    def __init__(self, text: str) -> None:
        self.structures: dict[str, Structure] = {}
        self.rules: dict[Shape, Constraint] = {}
        self._shapes: dict[str, Shape] = {**_KINDS, "time": TIMESTAMP}
        self.actions = dict(self._defined(re.sub(r"\n#.*|\n +", " ", text).split("\n")))

    def _defined(self, lines: Iterable[str]) -> Iterator[tuple[str, Action]]:
        for line in filter(None, map(str.strip, lines)):
            found = _LINE.fullmatch(line)
            assert found is not None, line
            name, _, taken, given, members, kind = found.groups()
            if kind is not None:
                self._shapes[name] = self._shape(kind)
            elif members is not None:
                self._shapes[name] = self.structures[name] = self._structure(members)
            else:
                output = None if given is None else Structure(self._structure(given).members)
                yield name, Action(name, self._structure(taken), output)

    def _structure(self, text: str) -> Structure:
        members: dict[str, Shape] = {}
        required: list[str] = []
        for token in text.split():
            name, _, kind = token.partition(":")
            if name.startswith("*"):
                spliced = self.structures[name[1:]]
                members |= spliced.members
                required += self.rules[spliced].required
                continue
            if name.endswith("!"):
                required.append(name := name[:-1])
            members[name] = self._shape(kind)
        structure = Structure(members)
        self.rules[structure] = Constraint(required=tuple(required))
        return structure

    def _shape(self, text: str) -> Shape:
        found = _TYPE.fullmatch(text)
        assert found is not None, text
        base, flat, least, most, pattern = found.groups()
        shape, values, inner = self._shapes.get(base), (), base[1:-1]
        if base.startswith("["):
            shape = List(self._shape(inner), flat)
        elif base.startswith("{"):
            *names, value = inner.split("/")
            shape = Map(self._shape(value), flat, *names)
        elif base.startswith("<"):
            shape, values = Scalar("string"), tuple(inner.split(","))
        elif least is not None and isinstance(shape, Scalar):
            shape = Scalar(shape.kind)
        assert shape is not None, text
        if values or least is not None:
            self.rules[shape] = Constraint(
                int(least) if least else None, int(most) if most else None, pattern, values
            )
        return shape
