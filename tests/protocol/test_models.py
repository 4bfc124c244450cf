"""The locked botocore's service models and their documentation are what we serve."""

import json
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import ServiceModel  # type: ignore[import-untyped]

from conformance import models
from queuegate.protocol.service_detection import SERVICES

MODELS = {name: Loader().load_service_model(name, "service-2") for name in SERVICES}


def found_in(models_by_name: Mapping[str, Any]) -> set[str]:
    return {
        line
        for name, model in models_by_name.items()
        for line in models.differences(name, ServiceModel(model))
    }


def changed(service: str, *changes: tuple[str, Any]) -> dict[str, Any]:
    """A copy of the models with other values at paths of one; None: nothing is there."""
    copy: dict[str, Any] = json.loads(json.dumps(MODELS))
    for path, value in changes:
        *above, last = path.split("/")
        place = reduce(getitem, above, copy[service])
        if value is None:
            del place[last]
        else:
            place[last] = value
    return copy


def test_the_locked_models_have_nothing_new(capsys: pytest.CaptureFixture[str]) -> None:
    models.report()
    assert capsys.readouterr().out.endswith(": nothing new\n")


def test_what_is_not_served_is_in_the_models() -> None:
    assert found_in(MODELS) == models.NOT_SERVED.keys()
    named = [
        (name, action.name) for one in SERVICES.values() for name, action in one.actions.items()
    ]
    assert all(name == own for name, own in named)


DOCUMENTED = "shapes/CreateQueueRequest/members/Attributes/documentation"
LIST = (
    "<p>Names:</p> <ul> <li> <p>Of both kinds</p> <ul> <li> <p> <code>DelaySeconds</code> \u2013 x"
    "</p> </li> <li> <p> <code>Colour</code> <ul> <li> <p> <code>red</code></p> </li> </ul> </li> "
    "</ul> </li> </ul> <p> <code>Size</code> \u2013 x</p> <p> <code>DelaySeconds</code> and x</p>"
)


@pytest.mark.parametrize(
    ("path", "value", "lines"),
    [
        ("operations/ReplayQueue", {}, {"operation ReplayQueue"}),
        ("operations/PurgeQueue", None, {"operation PurgeQueue: gone"}),
        ("operations/PurgeQueue/errors", [{"shape": "Message"}], {"error Message"}),
        ("operations/PurgeQueue/output", {"shape": "Message"}, {"PurgeQueue answer: Message"}),
        ("operations/PurgeQueue/input", None, {"PurgeQueue: gone"}),
        (
            "shapes/Message/members/Colour",
            {"shape": "String"},
            {"ReceiveMessage answer.Messages[]: member Colour"},
        ),
        (
            "shapes/Message/members/Body",
            None,
            {"ReceiveMessage answer.Messages[]: member Body gone"},
        ),
        (
            "shapes/Message/members/Body",
            {"shape": "NullableInteger"},
            {"ReceiveMessage answer.Messages[].Body: integer"},
        ),
        ("shapes/QueueAttributeName/enum", ["All", "Colour"], {"QueueAttributeName: Colour"}),
        ("shapes/OverLimit/error", {"httpStatusCode": 418}, {"error OverLimit: status 418"}),
        (
            DOCUMENTED,
            LIST,
            {f"CreateQueueRequest.Attributes: {name}" for name in ("Colour", "Colour red", "Size")},
        ),
        (DOCUMENTED, "</li>See above.", {"CreateQueueRequest.Attributes: nothing documented"}),
        (
            "shapes/CreateQueueRequest/members/Attributes",
            None,
            {
                "CreateQueue: member Attributes gone",
                "CreateQueueRequest.Attributes: nothing documented",
            },
        ),
    ],
)
def test_what_a_newer_model_changes_is_found(path: str, value: Any, lines: set[str]) -> None:
    found = found_in(changed("sqs", (path, value))) - models.NOT_SERVED.keys()
    assert found == {f"sqs {line}" for line in lines}


def test_values_and_requirements_of_rules_are_compared() -> None:
    newer = changed(
        "scheduler",
        ("shapes/ScheduleState/enum", ["ENABLED", "PAUSED"]),
        ("shapes/Target/required", ["Arn"]),
    )
    assert found_in(newer) - models.NOT_SERVED.keys() == {
        "scheduler ScheduleState: PAUSED",
        "scheduler CreateSchedule.Target: required RoleArn",
        "scheduler UpdateSchedule.Target: required RoleArn",
    }


def test_another_botocores_models_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, model in changed("sns", ("operations/ListMoods", {})).items():
        folder = tmp_path / name / model["metadata"]["apiVersion"]
        folder.mkdir(parents=True)
        (folder / "service-2.json").write_text(json.dumps(model), "utf-8")
    models.report(str(tmp_path))
    assert capsys.readouterr().out == f"{tmp_path}: sns operation ListMoods\n"
