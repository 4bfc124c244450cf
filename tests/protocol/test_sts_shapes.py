import pytest
from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import ServiceModel  # type: ignore[import-untyped]

from queuegate.protocol.sts_shapes import STS
from tests.protocol.comparing import difference

MODEL = ServiceModel(Loader().load_service_model("sts", "service-2"))


@pytest.mark.parametrize("name", STS.actions)
def test_actions_are_those_of_the_model(name: str) -> None:
    action, modelled = STS.actions[name], MODEL.operation_model(name)
    assert action.output is not None
    assert set(action.output.members) <= set(modelled.output_shape.members)
    assert set(action.input.members) <= set(modelled.input_shape.members)


def test_get_caller_identity_is_that_of_the_model() -> None:
    action = STS.actions["GetCallerIdentity"]
    modelled = MODEL.operation_model("GetCallerIdentity")
    assert action.output is not None
    assert difference(action.output, modelled.output_shape, "output") == []
    assert action.input.members == dict(modelled.input_shape.members) == {}


def test_the_service_is_that_of_the_model() -> None:
    assert STS.versions == (MODEL.metadata["apiVersion"],)
    assert STS.xml_namespace == MODEL.metadata["xmlNamespace"]
    assert STS.name == MODEL.metadata["endpointPrefix"]
