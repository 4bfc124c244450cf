"""No operation is reached by somebody who may not: every action of every service, every endpoint of
every face of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from queuegate.gateway.faces.json.json_endpoints import Endpoint
from queuegate.gateway.faces.text_face import ENDPOINTS as TEXT
from queuegate.protocol.scheduler_shapes import SCHEDULER
from tests.faces.clients import Sqs, new_account
from tests.faces.connections import fetch
from tests.faces.denying import DENIED, Denying
from tests.faces.everything import (
    ACTIONS,
    ENDPOINTS,
    NOBODYS,
    ask,
    endpoint_request,
    make,
    rows,
    scheduler_call,
    text_request,
)
from tests.faces.scheduler_client import Scheduler
from tests.faces.sns_client import Sns
from tests.faces.text.client import Text


class World(NamedTuple):
    """An account with one of everything."""

    server: Denying
    members: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Service -> action -> a request that would do something."""
    things: Mapping[str, str]
    """What paths of the native API name."""


@pytest.fixture(scope="module", params=["authority", "policy"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    account = new_account()
    file = tmp_path_factory.mktemp("denying") / "asked"
    with Denying(account, file, by_policy=request.param == "policy") as server:
        made = make(server, account)
        before = rows(server.dsn)
        yield World(server, *made)
        after = rows(server.dsn)
        assert [name for name, found in after.items() if found != before[name]] == []


class Refused:
    """A context in which these rights alone are requested, and the audit holds the refusal."""

    def __init__(self, world: World, right: str, operation: str) -> None:
        self._server = world.server
        self._right = right
        self._operation = operation

    def __enter__(self) -> None:
        self._server.asked()

    def __exit__(self, *_: object) -> None:
        assert {right for right, _ in self._server.asked()} == {self._right}
        line = self._server.audit.until(
            lambda one: (one["operation"], one["message"]) == (self._operation, "refused")
        )
        assert (line["access_key"], line["reason"], line["status"]) == (
            DENIED,
            self._server.reason,
            403,
        )
        assert line["address"] == "127.0.0.1"


def _right(service: str, action: str) -> str:
    return f"{service}:{action.removesuffix('Batch')}"


@pytest.mark.parametrize(("service", "action", "wire"), ACTIONS)
def test_no_action_is_reached(world: World, service: str, action: str, wire: str) -> None:
    kind = Sqs if service == "sqs" else Sns
    with (
        kind(wire, world.server.url, DENIED) as client,
        Refused(world, _right(service, action), f"{service}:{action}"),
    ):
        refused = client.refusal(action, **world.members[service][action])
    assert refused.status == 403, refused


@pytest.mark.parametrize("action", SCHEDULER.actions)
def test_no_action_of_the_scheduler_is_reached(world: World, action: str) -> None:
    scheduler = Scheduler(world.server.url, DENIED)
    name = scheduler_call(action)
    with Refused(world, _right("scheduler", action), f"scheduler:{action}"):
        refused = scheduler.refusal(name, **world.members["scheduler"][action])
    scheduler.close()
    assert refused.status == 403


@pytest.mark.parametrize(
    ("face", "endpoint"),
    [
        pytest.param(face, one, id=f"{face}-{one.name}")
        for face, endpoints in ENDPOINTS.items()
        for one in endpoints
        if one.name not in NOBODYS
    ],
)
def test_no_endpoint_is_reached(world: World, face: str, endpoint: Endpoint) -> None:
    target, body = endpoint_request(world.things, endpoint)
    with Refused(world, endpoint.right, f"{face}:{endpoint.name}"):
        status, told = ask(world.server.url, DENIED, endpoint.method, target, body)
    assert (status, "error" in told) == (403, True)


@pytest.mark.parametrize("endpoint", TEXT, ids=lambda endpoint: endpoint.method)
def test_no_method_of_the_text_face_is_reached(world: World, endpoint: Endpoint) -> None:
    refused = Refused(world, endpoint.right, f"text:{endpoint.name}")
    with Text(world.server.url, DENIED) as text, refused:
        assert text.text(endpoint.method, "x", **text_request(endpoint)).status == 403


def test_what_follows_a_link_needs_its_token_alone(world: World) -> None:
    server, members = world.server, world.members["sns"]["ConfirmSubscription"]
    query = urlencode({"Action": "ConfirmSubscription", **members})
    answer = fetch(server.url, f"/?{query}")
    assert (answer.status, "<Code>InvalidParameter</Code>" in answer.text) == (400, True)
    assert server.asked() == []


def test_one_who_may_is_not_refused(world: World) -> None:
    members = world.members["sqs"]["GetQueueAttributes"]
    with Sqs("json", world.server.url, members["QueueUrl"].split("/")[-2]) as sqs:
        assert sqs.call("GetQueueAttributes", **members)["Attributes"]
    assert world.server.asked() == []
