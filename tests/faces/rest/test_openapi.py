"""The OpenAPI document and the declarations that it is made from."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from queuegate.gateway.faces.channels import channels_face as channels
from queuegate.gateway.faces.json.json_endpoints import Endpoint
from queuegate.gateway.faces.json.json_openapi import example_of, examples_of, openapi_document
from queuegate.gateway.faces.logs.logs_face import ENDPOINTS as LOGS
from queuegate.gateway.faces.rest.rest_face import ABOUT, ENDPOINTS
from queuegate.gateway.faces.simple_face import ENDPOINTS as SIMPLE
from queuegate.gateway.faces.text_face import ENDPOINTS as TEXT
from queuegate.gateway.operations.runtime import clock_moves
from queuegate.gateway.pages.account_pages import ClockMove
from queuegate.gateway.pages.admin_pages import ENDPOINTS as ADMIN
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.everything import PAGES
from tests.faces.servers import Server

DESCRIBED = {
    "/v1": ENDPOINTS,
    "/v1/channels": channels.ENDPOINTS,
    "/api": SIMPLE,
    "/queue": TEXT,
    "/v1/logs": LOGS,
    "/_admin": ADMIN,
}
EACH_DOCUMENT = pytest.mark.parametrize("prefix", DESCRIBED)
EACH = pytest.mark.parametrize(
    "endpoint",
    [endpoint for endpoints in DESCRIBED.values() for endpoint in endpoints],
    ids=lambda endpoint: f"{endpoint.path.split('/')[1]}-{endpoint.name}",
)


def _document(server: Server, prefix: str = "/v1") -> dict[str, Any]:
    answer = fetch(server.url, f"{prefix}/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    document: dict[str, Any] = json.loads(answer.body)
    return document


def test_it_is_there_without_credentials_and_names_the_server_asked(server: Server) -> None:
    document = _document(server)
    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": server.url}]
    with Connection(server.url) as connection:
        headers = {"Host": "queues.localhost:81"}
        connection.send(request_bytes("GET", "/v1/openapi.json", headers))
        behind = json.loads(connection.answer().body)
    assert behind == document | {"servers": [{"url": "http://queues.localhost:81"}]}


def test_it_is_the_same_every_time(server: Server) -> None:
    described = openapi_document(ENDPOINTS, ABOUT)
    assert msgspec.json.encode(described) == msgspec.json.encode(
        openapi_document(tuple(reversed(ENDPOINTS)), ABOUT)
    )
    served = _document(server)
    assert set(described["paths"]) | {"/v1/openapi.json"} == set(served["paths"])


@EACH_DOCUMENT
def test_a_validator_finds_nothing_wrong(server: Server, prefix: str) -> None:
    validate(_document(server, prefix))


def test_each_has_a_title_of_its_own(server: Server) -> None:
    titles = {_document(server, prefix)["info"]["title"] for prefix in DESCRIBED}
    assert len(titles) == len(DESCRIBED)


@EACH_DOCUMENT
def test_every_endpoint_is_in_it(server: Server, prefix: str) -> None:
    document = _document(server, prefix)
    endpoints = DESCRIBED[prefix]
    assert len({endpoint.name for endpoint in endpoints}) == len(endpoints)
    always = {"401", "403", "422", "503"} if prefix == "/queue" else {"400", "403", "413", "503"}
    for endpoint in endpoints:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["operationId"] == endpoint.name
        statuses = {str(one.status) for one in endpoint.answers}
        assert statuses | always <= set(operation["responses"])


@EACH_DOCUMENT
def test_references_lead_somewhere(server: Server, prefix: str) -> None:
    document = _document(server, prefix)
    operations = {
        operation["operationId"]: operation
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    text = json.dumps(document)
    for reference in set(re.findall(r'"\$ref": "#/([^"]*)"', text)):
        found: Any = document
        for step in reference.split("/"):
            found = found[step]
        assert found
    for endpoint in DESCRIBED[prefix]:
        for answer in endpoint.answers:
            for name, parameters in answer.links.items():
                declared = {one["name"] for one in operations[name].get("parameters", [])}
                assert set(parameters) <= declared


@EACH
def test_parameters_are_those_of_the_path(endpoint: Endpoint) -> None:
    in_path = set(re.findall(r"\{(\w+)\}", endpoint.path))
    kind = endpoint.path_params
    assert in_path == (set(kind.__struct_encode_fields__) if kind is not None else set())


@EACH
def test_examples_are_what_they_are_examples_of(endpoint: Endpoint) -> None:
    if endpoint.body is not None:
        for example in examples_of(endpoint).values():
            msgspec.json.decode(msgspec.json.encode(example), type=endpoint.body)
    for answer in endpoint.answers:
        if answer.type is None:
            assert answer.example is None
            continue
        example = example_of(answer)
        assert example is not None
        kinds = answer.type if isinstance(answer.type, tuple) else (answer.type,)
        encoded = msgspec.json.encode(example)
        assert any(_decodes(encoded, kind) for kind in kinds)


def _decodes(encoded: bytes, kind: Any) -> bool:
    try:
        msgspec.json.decode(encoded, type=kind)
    except msgspec.ValidationError:
        return False
    return True


@EACH
def test_bodies_have_no_members_that_nobody_reads(endpoint: Endpoint) -> None:
    """A misspelt member is refused, not left out: msgspec must have been told so."""
    if endpoint.body in (None, str):
        return
    for example in examples_of(endpoint).values():
        first = example[0] if isinstance(example, list) else example
        wrong = [{**first, "mis-spelt": 1}] if isinstance(example, list) else first | {"mis-": 1}
        assert not _decodes(msgspec.json.encode(wrong), endpoint.body)


def test_pages_of_operators_are_described() -> None:
    assert {one.path for one in ADMIN} == PAGES.keys()


def test_the_usage_of_the_clock_names_its_members() -> None:
    """The page decodes the request itself."""
    usage = set(re.findall(r'"(\w+)": ', clock_moves.USAGE)) | {"account"}
    assert usage == {*ClockMove.__struct_encode_fields__}
