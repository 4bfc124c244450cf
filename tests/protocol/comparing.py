"""Compares our shapes with the models of botocore."""

from typing import Any

from queuegate.protocol.shapes import List, Map, Scalar, Shape, Structure


def difference(shape: Shape, model: Any, path: str) -> list[str]:
    """Where our shape has another type or other members than botocore's."""
    if isinstance(shape, Scalar):
        return [] if shape.kind == model.type_name else [f"{path}: {model.type_name}"]
    if isinstance(shape, Structure):
        if model.type_name != "structure" or set(shape.members) != set(model.members):
            return [f"{path}: {model}"]
        return [
            found
            for name, member in shape.members.items()
            for found in difference(member, model.members[name], f"{path}.{name}")
        ]
    if isinstance(shape, List):
        return [path] * (model.type_name != "list") or difference(
            shape.item, model.member, f"{path}[]"
        )
    return [path] * (model.type_name != "map") or difference(
        shape.value, model.value, f"{path}{{}}"
    )


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
