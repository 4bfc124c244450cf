from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import json_wire, query_wire
from queuegate.protocol.shapes import (
    BOOLEAN,
    STRING,
    TIMESTAMP,
    Action,
    List,
    Map,
    ServiceModel,
    Structure,
)
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from tests.protocol import contract, oracle

SERVICES = {"sqs": SQS, "sns": SNS}
WITH_OUTPUT = sorted(
    (service.name, name)
    for service in SERVICES.values()
    for name, action in service.actions.items()
    if action.output is not None
)
# docs/contract/protocol.md 1.3, "XML success layout".
WITHOUT_RESULT = {
    "AddPermission",
    "DeleteEndpoint",
    "DeletePlatformApplication",
    "DeleteTopic",
    "PutDataProtectionPolicy",
    "RemovePermission",
    "SetEndpointAttributes",
    "SetPlatformApplicationAttributes",
    "SetSubscriptionAttributes",
    "SetTopicAttributes",
    "Unsubscribe",
}
EMPTY_RESULT = {
    "CreateSMSSandboxPhoneNumber",
    "DeleteSMSSandboxPhoneNumber",
    "OptInPhoneNumber",
    "SetSMSAttributes",
    "TagResource",
    "UntagResource",
    "VerifySMSSandboxPhoneNumber",
}
ROWS = contract.load("query_xml_responses")["responses"]
SUCCESSES = [row for row in ROWS if row["status"] == 200]
ERRORS = [row for row in ROWS if row["status"] != 200]
REQUEST_ID = "725275ae-0b9b-4762-b238-436d7c65a1ac"
ALLOWED = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
TEXT = st.text(ALLOWED | st.sampled_from("\t\n\r\"'<>&]"), max_size=8)


def _encode(action: str, result: dict[str, Any], name: str = "sqs") -> bytes:
    service = SERVICES[name]
    return query_wire.encode_result(service, service.actions[action], result, REQUEST_ID)


@pytest.mark.parametrize("row", SUCCESSES, ids=lambda row: row["action"])
def test_results_of_the_contract_byte_for_byte(row: dict[str, Any]) -> None:
    result = contract.with_bytes(row["botocore_parses_to"])
    del result["ResponseMetadata"]
    assert _encode(row["action"], result, row["service"]).decode() == row["xml"]


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row["action"])
def test_errors_of_the_contract_byte_for_byte(row: dict[str, Any]) -> None:
    error = row["botocore_parses_to"]["Error"]
    encoded = query_wire.encode_error(
        SERVICES[row["service"]], error["Code"], error["Message"], error["Type"], REQUEST_ID
    )
    assert encoded.decode() == row["xml"]
    parsed = oracle.parse_query(row["action"], encoded, row["status"], row["service"])
    assert parsed["Error"] == error
    assert parsed["ResponseMetadata"]["RequestId"] == REQUEST_ID


@pytest.mark.parametrize(("service", "action"), WITH_OUTPUT)
def test_botocore_parses_what_we_encode(service: str, action: str) -> None:
    operation = oracle.model_of_query(service).operation_model(action)
    example = oracle.full_example(operation.output_shape)
    parsed = oracle.parse_query(action, _encode(action, example, service), service=service)
    assert parsed.pop("ResponseMetadata")["RequestId"] == REQUEST_ID
    assert parsed == example


@given(data=st.data())
def test_round_trip_of_a_receive_through_botocores_parser(data: st.DataObject) -> None:
    shape = oracle.query_model().operation_model("ReceiveMessage").output_shape
    result = data.draw(oracle.values(shape, TEXT))
    parsed = oracle.parse_query("ReceiveMessage", _encode("ReceiveMessage", result))
    del parsed["ResponseMetadata"]
    assert parsed == result


def _all_of(steps: Generator[None, None, list[bytes]]) -> bytes:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return b"".join(end.value)


def test_a_long_receive_is_the_same_in_steps() -> None:
    long = '<&>"\r\n\t\u00e9\U0001f600x' * 20_000
    attributes = {
        "a": {"DataType": "Binary", "BinaryValue": long.encode()},
        "b": {"DataType": "String", "StringValue": long},
    }
    one = {"MessageId": "1", "Body": long, "Attributes": {"SenderId": "x"}}
    result = {"Messages": [one, {**one, "MessageAttributes": attributes}, {"Body": "\x00" + long}]}
    action = SQS.actions["ReceiveMessage"]
    steps = query_wire.encode_in_steps(SQS, action, result, REQUEST_ID)
    assert _all_of(steps) == _encode("ReceiveMessage", result)
    steps = query_wire.encode_as_json_in_steps(action, result, REQUEST_ID)
    assert _all_of(steps) == query_wire.encode_result_as_json(action, result, REQUEST_ID)
    assert action.output is not None
    steps = json_wire.encode_in_steps(action.output, result)
    assert _all_of(steps) == json_wire.encode(action.output, result)


def test_empty_receive_has_an_empty_result() -> None:
    nothings: list[dict[str, Any]] = [{}, {"Messages": []}, {"Messages": None}]
    for nothing in nothings:
        assert b"<ReceiveMessageResult/>" in _encode("ReceiveMessage", nothing)


def test_void_action_has_no_result() -> None:
    assert b"Result" not in _encode("DeleteQueue", {})


def test_results_of_topics_that_are_empty_or_absent() -> None:
    empty = {
        name
        for name, action in SNS.actions.items()
        if action.output is not None and not action.output.members
    }
    assert empty == EMPTY_RESULT
    for name in empty:
        assert f"<{name}Result/>".encode() in _encode(name, {}, "sns")
    assert {name for name, action in SNS.actions.items() if action.output is None} == WITHOUT_RESULT
    for name in WITHOUT_RESULT:
        assert b"Result" not in _encode(name, {}, "sns")


def test_characters_that_xml_cannot_express_are_replaced() -> None:
    encoded = query_wire.encode_error(SQS, "C", "a\x00\x1b\ufffe\ud800b", "Sender", REQUEST_ID)
    assert oracle.parse_query("DeleteQueue", encoded, 400)["Error"]["Message"] == "a����b"


def test_services_that_do_not_flatten() -> None:
    service = ServiceModel("sns", ("2010-03-31",), None, None, "urn:x", "", False, {})
    tag = Structure({"Value": STRING, "Key": STRING})
    output = Structure(
        {"Failed": List(tag), "Tags": List(tag), "Attributes": Map(STRING), "At": TIMESTAMP}
    )
    result = {
        "Failed": [],
        "Tags": [{"Key": "k", "Value": ""}],
        "Attributes": {"a": "b"},
        "At": datetime(2026, 11, 21, 10, tzinfo=UTC),
    }
    encoded = query_wire.encode_result(service, Action("Do", Structure({}), output), result, "r")
    assert encoded.decode() == (
        '<DoResponse xmlns="urn:x"><DoResult><Failed/>'
        "<Tags><member><Value/><Key>k</Key></member></Tags>"
        "<Attributes><entry><key>a</key><value>b</value></entry></Attributes>"
        "<At>2026-11-21T10:00:00.000Z</At></DoResult>"
        "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></DoResponse>"
    )
    empty = Action("Do", Structure({}), Structure({"Flag": BOOLEAN}))
    assert b"<DoResult/>" in query_wire.encode_result(service, empty, {}, "r")
    assert b"<Detail/>" not in query_wire.encode_error(service, "C", "m", "Sender", "r")


def test_json_rendering_of_a_query() -> None:
    def encode(action: str, result: dict[str, Any]) -> Any:
        encoded = query_wire.encode_result_as_json(SQS.actions[action], result, REQUEST_ID)
        return orjson.loads(encoded)[f"{action}Response"]

    metadata = {"RequestId": REQUEST_ID}
    assert encode("ListQueues", {"QueueUrls": ["u"]}) == {
        "ListQueuesResult": {"queueUrls": ["u"]},
        "ResponseMetadata": metadata,
    }
    assert encode("ReceiveMessage", {}) == {
        "ReceiveMessageResult": {"messages": None},
        "ResponseMetadata": metadata,
    }
    message = {"Body": "b", "MessageAttributes": {"n": {"BinaryValue": b"\x00\x01"}}}
    assert encode("ReceiveMessage", {"Messages": [message]})["ReceiveMessageResult"] == {
        "messages": [
            {
                "Body": "b",
                "MessageAttributes": [{"Name": "n", "Value": {"BinaryValue": "AAE="}}],
            }
        ]
    }
    assert encode("GetQueueAttributes", {"Attributes": {"A": "1"}})["GetQueueAttributesResult"] == {
        "Attributes": [{"Name": "A", "Value": "1"}]
    }
    assert encode("DeleteQueue", {}) == {"ResponseMetadata": metadata}


@pytest.mark.parametrize(
    ("action", "result", "shown"),
    [
        ("ListTopics", {"Topics": [{"TopicArn": "a"}]}, {"Topics": [{"TopicArn": "a"}]}),
        ("ListTopics", {"Topics": []}, {"Topics": None}),
        ("Publish", {"MessageId": "m"}, {"MessageId": "m"}),
        ("GetTopicAttributes", {"Attributes": {"A": "1"}}, {"Attributes": {"A": "1"}}),
        ("TagResource", {}, {}),
        (
            "ListPlatformApplications",
            {"PlatformApplications": [{"Attributes": {"Enabled": "true"}}]},
            {"PlatformApplications": [{"Attributes": {"Enabled": "true"}}]},
        ),
    ],
)
def test_json_rendering_of_a_query_of_topics(
    action: str, result: dict[str, Any], shown: dict[str, Any]
) -> None:
    encoded = query_wire.encode_result_as_json(SNS.actions[action], result, REQUEST_ID)
    assert orjson.loads(encoded) == {
        f"{action}Response": {
            f"{action}Result": shown,
            "ResponseMetadata": {"RequestId": REQUEST_ID},
        }
    }


def test_json_rendering_of_a_query_error() -> None:
    assert orjson.loads(query_wire.encode_error_as_json("C", "m", "Sender", "r")) == {
        "Error": {"Code": "C", "Message": "m", "Type": "Sender"},
        "RequestId": "r",
    }
