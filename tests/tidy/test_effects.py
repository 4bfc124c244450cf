"""Every action and endpoint of every face says what it does: nothing administrative escapes the
audit."""

from __future__ import annotations

from collections.abc import Iterator

from queuegate.gateway.faces.aws.aws_face import right_to
from queuegate.gateway.faces.channels.channels_face import ENDPOINTS as CHANNELS
from queuegate.gateway.faces.json.json_endpoints import Endpoint
from queuegate.gateway.faces.logs.logs_face import ENDPOINTS as LOGS
from queuegate.gateway.faces.rest.rest_face import ENDPOINTS as REST
from queuegate.gateway.faces.simple_face import ENDPOINTS as SIMPLE
from queuegate.gateway.faces.text_face import ENDPOINTS as TEXT
from queuegate.gateway.operations.access.authorization import EFFECTS, Effect, effect_of
from queuegate.protocol.service_detection import SERVICES

NOBODYS = {"previewSchedule"}
"""They are about nobody's things, and change nothing."""
FACES = (REST, SIMPLE, CHANNELS, LOGS, TEXT)


def rights_of_actions() -> Iterator[str]:
    for service in SERVICES.values():
        for action in service.actions:
            yield right_to(service.name, action)


def endpoints() -> Iterator[Endpoint]:
    for face in FACES:
        yield from face


def test_every_operation_is_one_kind() -> None:
    used = {*rights_of_actions(), *(one.right for one in endpoints() if one.name not in NOBODYS)}
    assert used == EFFECTS.keys()
    assert {one.name for one in endpoints() if not one.right} == NOBODYS


def test_what_only_looks_changes_nothing() -> None:
    for one in endpoints():
        if one.right and (one.effect or effect_of(one.right)) is Effect.READING:
            # These read what they are asked for in a body.
            asked = ("findOffsets", "readRecords", "tryMessage")
            assert one.method == "GET" or one.name in asked, one.name
    reading = ("Get", "List", "CheckIf")
    for right in rights_of_actions():
        is_reading = right.partition(":")[2].startswith(reading)
        assert (effect_of(right) is Effect.READING) == is_reading, right


def test_nobody_forgets_the_audit() -> None:
    assert effect_of("sqs:SomethingNew") is Effect.ADMINISTRATIVE
