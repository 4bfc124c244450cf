import pytest
from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import ServiceModel  # type: ignore[import-untyped]

from queuegate.protocol.sts_shapes import RULES, STS
from tests.protocol.comparing import ruled

MODEL = ServiceModel(Loader().load_service_model("sts", "service-2"))


@pytest.mark.parametrize("name", STS.actions)
def test_bounds_are_those_of_the_model(name: str) -> None:
    """Or none: placeholders work as tokens and codes."""
    action = STS.actions[name]
    for path, rule, shape in ruled(
        action.input, MODEL.operation_model(name).input_shape, RULES, name
    ):
        bounds = shape.metadata
        assert rule.least in (None, bounds.get("min")), path
        assert rule.most in (None, bounds.get("max")), path
        assert rule.pattern in (None, bounds.get("pattern")), path


def test_the_service_is_that_of_the_model() -> None:
    assert STS.versions == (MODEL.metadata["apiVersion"],)
    assert STS.xml_namespace == MODEL.metadata["xmlNamespace"]
    assert STS.name == MODEL.metadata["endpointPrefix"]
