from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import ServiceModel  # type: ignore[import-untyped]

from protocol.sts_shapes import STS
from tests.protocol.comparing import difference


def test_the_action_is_that_of_the_model() -> None:
    model = ServiceModel(Loader().load_service_model("sts", "service-2"))
    [(name, action)] = STS.actions.items()
    modelled = model.operation_model(name)
    assert action.output is not None
    assert difference(action.output, modelled.output_shape, "output") == []
    assert action.input.members == dict(modelled.input_shape.members) == {}
    assert STS.versions == (model.metadata["apiVersion"],)
    assert STS.xml_namespace == model.metadata["xmlNamespace"]
    assert STS.name == model.metadata["endpointPrefix"]
