import pytest

from queuegate.protocol.shapes import List, Map, Shape, Structure
from queuegate.protocol.sns_shapes import SNS
from tests.protocol import oracle
from tests.protocol.comparing import model_names, names

ACTIONS = sorted(SNS.actions)


def test_service_is_described_as_in_the_model() -> None:
    metadata = oracle.sns_model().metadata
    assert metadata["protocols"] == ["query"]
    assert SNS.versions == (metadata["apiVersion"],)
    assert SNS.xml_namespace == metadata["xmlNamespace"]
    assert SNS.name == metadata["endpointPrefix"]


@pytest.mark.parametrize("action", ACTIONS)
def test_query_names_are_those_of_the_model(action: str) -> None:
    ours, model = SNS.actions[action], oracle.sns_model().operation_model(action)
    assert names(ours.input, "") == model_names(model.input_shape, "")
    if ours.output is not None:
        assert names(ours.output, "") == model_names(model.output_shape, "")


@pytest.mark.parametrize("action", ACTIONS)
def test_no_list_and_no_map_is_flattened(action: str) -> None:
    def flattened(shape: Shape) -> bool:
        if isinstance(shape, Structure):
            return any(map(flattened, shape.members.values()))
        if isinstance(shape, List):
            return shape.flat is not None or flattened(shape.item)
        return isinstance(shape, Map) and (shape.flat is not None or flattened(shape.value))

    ours = SNS.actions[action]
    assert not flattened(ours.input)
    assert ours.output is None or not flattened(ours.output)


def test_order_of_what_recordings_show() -> None:
    def order(action: str, member: str) -> list[str]:
        output = SNS.actions[action].output
        assert output is not None
        shape = output.members[member]
        assert isinstance(shape, List)
        assert isinstance(shape.item, Structure)
        return list(shape.item.members)

    assert order("ListTagsForResource", "Tags") == ["Value", "Key"]
    assert order("PublishBatch", "Successful")[:2] == ["MessageId", "Id"]
    assert order("ListSubscriptions", "Subscriptions")[0] == "Owner"
    batch = SNS.actions["PublishBatch"].output
    assert batch is not None
    assert list(batch.members) == ["Failed", "Successful"]
