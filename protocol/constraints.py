"""What a service's model asks of members beyond their types, and how its framework words a breach
(docs/contract/scheduler.md 4.2 and 4.4).

Rules stand beside the shapes in a table by shape: shapes are compared by identity.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from queuegate.protocol.shapes import List, Map, Shape, Structure

Rules = Mapping[Shape, "Rule"]

_LONGEST_VALUE = 1024
_NO_VALUE = "Member must not be null"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """The bounds of a shape; None means that there is none.

    `least` and `most` bound an integer itself, and the length of a text (in characters), of a list
    or of a map. `pattern` is that of the model, for the whole text and with the ASCII meaning of
    its classes. `values` are the texts of an enumeration; `required` are members of a structure.
    """

    least: int | None = None
    most: int | None = None
    pattern: str | None = None
    values: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    compiled: re.Pattern[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.pattern is not None:
            object.__setattr__(self, "compiled", re.compile(self.pattern, re.ASCII))


def refusal(shape: Shape, value: Any, rules: Rules) -> str | None:
    """All breaches in decoded members as one text, counted; None when there is none."""
    found = [*violations(shape, value, rules)]
    if not found:
        return None
    plural = "" if len(found) == 1 else "s"
    return f"{len(found)} validation error{plural} detected: {'; '.join(found)}"


def violations(shape: Shape, value: Any, rules: Rules, path: str = "") -> Iterator[str]:
    """Each breach in a decoded value, in the order of the members; paths are in lower camel case.

    The elements of a list or map that is too long are not looked at.
    """
    rule = rules.get(shape)
    faults = [*_faults(rule, value)] if rule is not None else []
    shown = _shown(value) if faults else ""
    for fault in faults:
        yield f"Value {shown} at '{path}' failed to satisfy constraint: {fault}"
    if isinstance(shape, Structure):
        yield from _member_violations(shape, value, rules, path)
    elif isinstance(shape, List) and not faults:
        for number, item in enumerate(value, 1):
            yield from violations(shape.item, item, rules, f"{path}.{number}.member")
    elif isinstance(shape, Map) and not faults:
        for key, item in value.items():
            yield from violations(shape.value, item, rules, f"{path}.{key}.member")


def _member_violations(
    structure: Structure, value: Mapping[str, Any], rules: Rules, path: str
) -> Iterator[str]:
    rule = rules.get(structure)
    required = rule.required if rule is not None else ()
    for name, member in structure.members.items():
        below = f"{path}{'.' if path else ''}{name[0].lower()}{name[1:]}"
        item = value.get(name)
        if item is not None:
            yield from violations(member, item, rules, below)
        elif name in required:
            yield f"Value null at '{below}' failed to satisfy constraint: {_NO_VALUE}"


def _faults(rule: Rule, value: Any) -> Iterator[str]:
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
    if rule.compiled is not None and rule.compiled.fullmatch(value) is None:
        yield f"Member must satisfy regular expression pattern: {rule.pattern}"
    if rule.values and value not in rule.values:
        yield f"Member must satisfy enum value set: [{', '.join(rule.values)}]"


def _shown(value: Any) -> str:
    text = f"[{len(value)} elements]" if isinstance(value, list | dict) else str(value)
    if len(text) > _LONGEST_VALUE:
        text = text[:_LONGEST_VALUE] + "..."
    return f"'{text}'"
