from collections.abc import Iterator
from typing import Any

import pytest

from queuegate.protocol.constraints import Rule
from queuegate.protocol.scheduler_shapes import ROUTES, RULES, SCHEDULER
from queuegate.protocol.shapes import List, Shape, Structure
from tests.protocol.comparing import difference
from tests.protocol.oracle import scheduler_model

ACTIONS = sorted(SCHEDULER.actions)


def test_every_action_of_the_model_is_there() -> None:
    assert len(ACTIONS) == 12
    assert sorted(scheduler_model().operation_names) == ACTIONS
    assert all(name == action.name for name, action in SCHEDULER.actions.items())


def test_service_is_described_as_in_the_model() -> None:
    metadata = scheduler_model().metadata
    assert metadata["protocols"] == ["rest-json"]
    assert SCHEDULER.versions == (metadata["apiVersion"],)
    assert SCHEDULER.name == metadata["signingName"]


@pytest.mark.parametrize("action", ACTIONS)
def test_members_and_their_types_are_those_of_the_model(action: str) -> None:
    ours, modelled = SCHEDULER.actions[action], scheduler_model().operation_model(action)
    faults = difference(ours.input, modelled.input_shape, "")
    assert ours.output is not None
    faults += difference(ours.output, modelled.output_shape, "")
    assert faults == []


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


def _rules(ours: Shape, modelled: Any, path: str) -> Iterator[tuple[str, Rule, Any]]:
    """Path, our rule and the model's shape of everything in a request."""
    yield path, RULES.get(ours, Rule()), modelled
    if isinstance(ours, Structure):
        for name, member in ours.members.items():
            yield from _rules(member, modelled.members[name], f"{path}.{name}")
    elif isinstance(ours, List):
        yield from _rules(ours.item, modelled.member, f"{path}[]")


@pytest.mark.parametrize("action", ACTIONS)
def test_rules_are_those_of_the_model(action: str) -> None:
    modelled = scheduler_model().operation_model(action).input_shape
    checked = 0
    for path, rule, shape in _rules(SCHEDULER.actions[action].input, modelled, action):
        metadata = shape.metadata
        assert (rule.least, rule.most) == (metadata.get("min"), metadata.get("max")), path
        assert rule.pattern == metadata.get("pattern"), path
        assert rule.values == tuple(metadata.get("enum", ())), path
        required = set(getattr(shape, "required_members", ()))
        assert set(rule.required) == required, path
        checked += 1
    assert checked > 1
