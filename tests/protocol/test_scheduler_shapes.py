import pytest

from queuegate.protocol.scheduler_shapes import ROUTES, RULES, SCHEDULER
from tests.protocol.comparing import ruled
from tests.protocol.oracle import scheduler_model

ACTIONS = sorted(SCHEDULER.actions)


def test_service_is_described_as_in_the_model() -> None:
    metadata = scheduler_model().metadata
    assert metadata["protocols"] == ["rest-json"]
    assert SCHEDULER.versions == (metadata["apiVersion"],)
    assert SCHEDULER.name == metadata["signingName"]


@pytest.mark.parametrize("action", ACTIONS)
def test_route_is_that_of_the_model(action: str) -> None:
    [route] = [route for route in ROUTES if route.action == action]
    modelled = scheduler_model().operation_model(action)
    label = f"{{{route.label}}}" if route.label else ""
    assert modelled.http["method"] == route.method
    assert modelled.http["requestUri"] == route.path + label
    located: dict[str, dict[str, str]] = {"uri": {}, "querystring": {}}
    for name, member in modelled.input_shape.members.items():
        where = member.serialization
        if "location" in where:
            located[where["location"]][where["name"]] = name
    assert located["uri"] == ({route.label: route.label} if route.label else {})
    assert located["querystring"] == dict(route.query)


@pytest.mark.parametrize("action", ACTIONS)
def test_rules_are_those_of_the_model(action: str) -> None:
    modelled = scheduler_model().operation_model(action).input_shape
    checked = 0
    for path, rule, shape in ruled(SCHEDULER.actions[action].input, modelled, RULES, action):
        metadata = shape.metadata
        assert (rule.least, rule.most) == (metadata.get("min"), metadata.get("max")), path
        assert rule.pattern == metadata.get("pattern"), path
        assert rule.values == tuple(metadata.get("enum", ())), path
        required = set(getattr(shape, "required_members", ()))
        assert set(rule.required) == required, path
        checked += 1
    assert checked > 1
