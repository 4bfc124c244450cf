import pytest

from queuegate.protocol.shapes import List, Map, Shape, Structure
from queuegate.protocol.sqs_shapes import SQS
from tests.protocol import oracle
from tests.protocol.comparing import model_names, names

ACTIONS = sorted(SQS.actions)


def test_service_is_described_as_in_the_model() -> None:
    metadata = oracle.json_model().metadata
    assert SQS.target_prefix == metadata["targetPrefix"]
    assert SQS.json_version == metadata["jsonVersion"]
    assert SQS.versions[0] == metadata["apiVersion"]
    assert SQS.xml_namespace == oracle.query_model().metadata["xmlNamespace"]


@pytest.mark.parametrize("action", ACTIONS)
def test_query_names_are_those_of_the_last_query_model(action: str) -> None:
    ours, model = SQS.actions[action], oracle.query_model().operation_model(action)
    ours_named = names(ours.input, "")
    # Younger than the Query model, served there all the same (docs/contract/protocol.md 1.3).
    younger = ours_named.pop(".MessageSystemAttributeNames", None)
    assert younger == ("MessageSystemAttributeName" if action == "ReceiveMessage" else None)
    assert ours_named == model_names(model.input_shape, "")
    if ours.output is not None:
        assert names(ours.output, "") == model_names(model.output_shape, "")


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
