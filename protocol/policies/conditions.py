"""The Condition of a statement: all of its operators, all of their keys, any of their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from queuegate.protocol.errors import Malformed
from queuegate.protocol.policies.operators import OPERATORS, truth
from queuegate.protocol.policies.patterns import Matcher
from queuegate.protocol.policies.requests import Context

_ALL: Final = "ForAllValues"
_ANY: Final = "ForAnyValue"
_IF_EXISTS: Final = "IfExists"


class Condition(NamedTuple):
    """One key with an operator."""

    key: str
    matches: Matcher
    is_negated: bool
    wants_all: bool
    """Of several values in a request all must hold, not one at least."""
    when_absent: bool
    """What is true of a request that has no value under the key."""

    def holds(self, context: Context) -> bool:
        """Whether the request is as the condition wants it."""
        values = context.get(self.key)
        if not values:
            return self.when_absent
        verdicts = (self.matches(value, context) != self.is_negated for value in values)
        return all(verdicts) if self.wants_all else any(verdicts)


def compile_conditions(block: Any, *, has_variables: bool) -> tuple[Condition, ...]:
    """The conditions of a statement, all of which must hold. Raises Malformed."""
    if not isinstance(block, dict):
        raise Malformed("Condition must be an object")
    return tuple(_conditions(block, has_variables=has_variables))


def _conditions(block: Mapping[str, Any], *, has_variables: bool) -> Iterator[Condition]:
    for name, tests in block.items():
        if not isinstance(tests, dict):
            raise Malformed("a condition operator needs an object of keys")
        for key, given in tests.items():
            values = [_scalar(value) for value in (given if isinstance(given, list) else [given])]
            if name == "Null":
                yield _null(key.lower(), values)
            else:
                yield _condition(name, key.lower(), values, has_variables=has_variables)


def _scalar(value: Any) -> str:
    """Numbers and booleans may stand in a policy as such."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise Malformed("a value of a condition must be a text, a number or a boolean")


def _condition(name: str, key: str, values: list[str], *, has_variables: bool) -> Condition:
    quantifier, colon, rest = name.rpartition(":")
    if colon and quantifier not in (_ALL, _ANY):
        raise Malformed("a condition operator is not known")
    operator = OPERATORS.get(rest.removesuffix(_IF_EXISTS))
    if operator is None:
        raise Malformed("a condition operator is not known")
    if quantifier:
        wants_all = when_absent = quantifier == _ALL
    else:
        wants_all = when_absent = operator.is_negated
    return Condition(
        key,
        operator.compile(values, has_variables),
        operator.is_negated,
        wants_all,
        when_absent or rest.endswith(_IF_EXISTS),
    )


def _null(key: str, values: list[str]) -> Condition:
    """True where the key has to be absent, false where it has to be there."""
    wanted = {truth(value) for value in values}
    if None in wanted:
        raise Malformed("a condition needs true or false")
    is_there = False in wanted
    return Condition(key, lambda _, __: is_there, False, False, True in wanted)
