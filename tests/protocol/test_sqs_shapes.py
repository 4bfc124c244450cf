from typing import Any

import pytest

from protocol.shapes import List, Map, Scalar, Shape, Structure
from protocol.sqs_shapes import SQS
from tests.protocol import oracle

ACTIONS = sorted(SQS.actions)


def _difference(shape: Shape, model: Any, path: str) -> list[str]:
    """Where our shape has another type or other members than botocore's."""
    if isinstance(shape, Scalar):
        return [] if shape.kind == model.type_name else [f"{path}: {model.type_name}"]
    if isinstance(shape, Structure):
        if model.type_name != "structure" or set(shape.members) != set(model.members):
            return [f"{path}: {model}"]
        return [
            found
            for name, member in shape.members.items()
            for found in _difference(member, model.members[name], f"{path}.{name}")
        ]
    if isinstance(shape, List):
        return [path] * (model.type_name != "list") or _difference(
            shape.item, model.member, f"{path}[]"
        )
    return [path] * (model.type_name != "map") or _difference(
        shape.value, model.value, f"{path}{{}}"
    )


def _names(shape: Shape, wire_name: str, path: str = "") -> dict[str, str]:
    """Path of every list and map -> the names that the Query protocol gives its entries."""
    if isinstance(shape, Structure):
        found: dict[str, str] = {}
        for name, member in shape.members.items():
            found |= _names(member, name, f"{path}.{name}")
        return found
    if isinstance(shape, List):
        return {path: shape.flat or wire_name} | _names(shape.item, "", f"{path}[]")
    if isinstance(shape, Map):
        own = f"{shape.flat or wire_name}/{shape.key_name}/{shape.value_name}"
        return {path: own} | _names(shape.value, "", f"{path}{{}}")
    return {}


def _model_names(model: Any, wire_name: str, path: str = "") -> dict[str, str]:
    kind = model.type_name
    if kind == "structure":
        found: dict[str, str] = {}
        for name, member in model.members.items():
            wire = member.serialization.get("name", name)
            found |= _model_names(member, wire, f"{path}.{name}")
        return found
    if kind == "list":
        own = model.member.serialization.get("name", wire_name)
        return {path: own} | _model_names(model.member, "", f"{path}[]")
    if kind == "map":
        key, value = model.key.serialization["name"], model.value.serialization["name"]
        return {path: f"{wire_name}/{key}/{value}"} | _model_names(model.value, "", f"{path}{{}}")
    return {}


def test_every_action_of_the_model_is_there() -> None:
    assert sorted(oracle.action_names(oracle.json_model())) == ACTIONS
    assert all(name == action.name for name, action in SQS.actions.items())


def test_service_is_described_as_in_the_model() -> None:
    metadata = oracle.json_model().metadata
    assert SQS.target_prefix == metadata["targetPrefix"]
    assert SQS.json_version == metadata["jsonVersion"]
    assert SQS.versions[0] == metadata["apiVersion"]
    assert SQS.xml_namespace == oracle.query_model().metadata["xmlNamespace"]


@pytest.mark.parametrize("action", ACTIONS)
def test_members_and_their_types_are_those_of_the_model(action: str) -> None:
    ours, model = SQS.actions[action], oracle.json_model().operation_model(action)
    assert _difference(ours.input, model.input_shape, "input") == []
    assert (ours.output is None) == (model.output_shape is None)
    if ours.output is not None:
        assert _difference(ours.output, model.output_shape, "output") == []


@pytest.mark.parametrize("action", ACTIONS)
def test_query_names_are_those_of_the_last_query_model(action: str) -> None:
    ours, model = SQS.actions[action], oracle.query_model().operation_model(action)
    names = _names(ours.input, "")
    # Younger than the Query model, served there all the same (contract/protocol.md 1.3).
    younger = names.pop(".MessageSystemAttributeNames", None)
    assert younger == ("MessageSystemAttributeName" if action == "ReceiveMessage" else None)
    assert names == _model_names(model.input_shape, "")
    if ours.output is not None:
        assert _names(ours.output, "") == _model_names(model.output_shape, "")


@pytest.mark.parametrize("action", ACTIONS)
def test_every_list_and_map_is_flattened(action: str) -> None:
    def unflattened(shape: Shape) -> bool:
        if isinstance(shape, Structure):
            return any(map(unflattened, shape.members.values()))
        if isinstance(shape, List):
            return shape.flat is None or unflattened(shape.item)
        return isinstance(shape, Map) and (shape.flat is None or unflattened(shape.value))

    ours = SQS.actions[action]
    assert not unflattened(ours.input)
    assert ours.output is None or not unflattened(ours.output)
