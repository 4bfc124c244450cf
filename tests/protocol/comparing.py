"""Compares our shapes with the models of botocore."""

from collections.abc import Iterator
from typing import Any

from queuegate.protocol.shapes import Constraint, Constraints, List, Map, Shape, Structure


def ruled(
    ours: Shape, modelled: Any, rules: Constraints, path: str
) -> Iterator[tuple[str, Constraint, Any]]:
    """Path, our rule and the model's shape of everything in a request."""
    yield path, rules.get(ours, Constraint()), modelled
    if isinstance(ours, Structure):
        for name, member in ours.members.items():
            yield from ruled(member, modelled.members[name], rules, f"{path}.{name}")
    elif isinstance(ours, List):
        yield from ruled(ours.item, modelled.member, rules, f"{path}[]")


def names(shape: Shape, wire_name: str, path: str = "") -> dict[str, str]:
    """Path of every list and map -> the names that the Query protocol gives its entries."""
    if isinstance(shape, Structure):
        found: dict[str, str] = {}
        for name, member in shape.members.items():
            found |= names(member, name, f"{path}.{name}")
        return found
    if isinstance(shape, List):
        return {path: shape.flat or wire_name} | names(shape.item, "", f"{path}[]")
    if isinstance(shape, Map):
        own = f"{shape.flat or wire_name}/{shape.key_name}/{shape.value_name}"
        return {path: own} | names(shape.value, "", f"{path}{{}}")
    return {}


def model_names(model: Any, wire_name: str, path: str = "") -> dict[str, str]:
    """The same of botocore's."""
    kind = model.type_name
    if kind == "structure":
        found: dict[str, str] = {}
        for name, member in model.members.items():
            wire = member.serialization.get("name", name)
            found |= model_names(member, wire, f"{path}.{name}")
        return found
    if kind == "list":
        own = model.member.serialization.get("name", wire_name)
        return {path: own} | model_names(model.member, "", f"{path}[]")
    if kind == "map":
        key = model.key.serialization.get("name", "key")
        value = model.value.serialization.get("name", "value")
        return {path: f"{wire_name}/{key}/{value}"} | model_names(model.value, "", f"{path}{{}}")
    return {}
