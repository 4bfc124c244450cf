import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import json_wire
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.service_detection import detect
from queuegate.protocol.shapes import (
    BLOB,
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    List,
    Map,
    Scalar,
    Structure,
)
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from tests.protocol import contract, oracle

ACTIONS = sorted(SQS.actions)
WITH_OUTPUT = [name for name in ACTIONS if SQS.actions[name].output is not None]
RPC = contract.load("sqs_json_rpc")
SEND = SQS.actions["SendMessage"].input
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize("row", RPC["requests"], ids=lambda row: row["action"])
def test_requests_of_the_contract(row: dict[str, Any]) -> None:
    request = row["request"]
    headers = {name.lower(): value for name, value in request["headers"].items()}
    body = json.dumps(request["body"]).encode()
    detected = detect(request["method"], request["path"], b"", headers, body)
    assert (detected.service, detected.wire, detected.action) == ("sqs", "json", row["action"])
    expected = request["body"]
    if row["action"] == "SendMessage":
        expected["MessageAttributes"]["x"]["BinaryValue"] = b"\x00\x01"
    assert json_wire.decode(SQS.actions[row["action"]].input, body) == expected


def test_void_actions_of_the_contract_have_an_empty_body() -> None:
    row = next(row for row in RPC["responses"] if row["case"].startswith("void"))
    assert row["body"] == ""
    named = row["case"].partition("(")[2].rstrip(")").split(", ")
    assert {name for name in ACTIONS if name not in WITH_OUTPUT} == set(named)
    assert all(json_wire.encode(SQS.actions[name].output, {}) == b"" for name in named)


@pytest.mark.parametrize("action", WITH_OUTPUT)
def test_nothing_to_return_is_an_empty_object(action: str) -> None:
    output = SQS.actions[action].output
    assert output is not None
    nothing: dict[str, Any] = {
        name: {} if isinstance(member, Map) else [] if isinstance(member, List) else None
        for name, member in output.members.items()
    }
    assert json_wire.encode(output, {}) == b"{}"
    assert json_wire.encode(output, nothing) == b"{}"


@pytest.mark.parametrize("action", ACTIONS)
def test_decodes_what_botocore_serializes(action: str) -> None:
    example = oracle.full_example(oracle.json_model().operation_model(action).input_shape)
    headers, body = oracle.json_request(action, example)
    assert detect("POST", "/", b"", headers, body).action == action
    assert json_wire.decode(SQS.actions[action].input, body) == example


@pytest.mark.parametrize("action", WITH_OUTPUT)
def test_botocore_parses_what_we_encode(action: str) -> None:
    example = oracle.full_example(oracle.json_model().operation_model(action).output_shape)
    parsed = oracle.parse_json(action, json_wire.encode(SQS.actions[action].output, example))
    del parsed["ResponseMetadata"]
    assert parsed == example


@pytest.mark.parametrize("action", ["SendMessageBatch", "CreateQueue"])
@given(data=st.data())
def test_round_trip_through_botocores_serializer(action: str, data: st.DataObject) -> None:
    shape = oracle.json_model().operation_model(action).input_shape
    params = data.draw(oracle.values(shape, TEXT))
    _, body = oracle.json_request(action, params)
    assert json_wire.decode(SQS.actions[action].input, body) == params


@given(data=st.data())
def test_round_trip_of_a_receive_through_botocores_parser(data: st.DataObject) -> None:
    shape = oracle.json_model().operation_model("ReceiveMessage").output_shape
    result = data.draw(oracle.values(shape, TEXT))
    body = json_wire.encode(SQS.actions["ReceiveMessage"].output, result)
    parsed = oracle.parse_json("ReceiveMessage", body)
    del parsed["ResponseMetadata"]
    assert parsed == result


def test_requests_and_results_of_topics() -> None:
    entry = {"Id": "1", "Message": "m", "MessageAttributes": {"b": {"BinaryValue": "AAE="}}}
    body = json.dumps({"TopicArn": "t", "PublishBatchRequestEntries": [entry]}).encode()
    batch = SNS.actions["PublishBatch"]
    decoded = json_wire.decode(batch.input, body)
    assert decoded["PublishBatchRequestEntries"][0]["MessageAttributes"] == {
        "b": {"BinaryValue": b"\x00\x01"}
    }
    result: dict[str, Any] = {"Failed": [], "Successful": [{"Id": "1", "SequenceNumber": None}]}
    assert json_wire.encode(batch.output, result) == b'{"Failed":[],"Successful":[{"Id":"1"}]}'
    assert json_wire.encode(SNS.actions["TagResource"].output, {}) == b"{}"
    assert json_wire.encode(SNS.actions["DeleteTopic"].output, {}) == b""


def test_empty_body_is_an_empty_request() -> None:
    assert json_wire.decode(SEND, b"") == {}


def test_null_and_unknown_members_are_absent() -> None:
    body = b'{"MessageBody":null,"Nonsense":[1,{}],"messageBody":"x","DelaySeconds":null}'
    assert json_wire.decode(SEND, body) == {}


def test_null_elements_are_absent() -> None:
    structure = Structure({"Names": List(STRING), "Tags": Map(STRING)})
    decoded = json_wire.decode(structure, b'{"Names":[null,"a"],"Tags":{"k":null,"l":""}}')
    assert decoded == {"Names": ["a"], "Tags": {"l": ""}}


@pytest.mark.parametrize(
    ("written", "number"),
    [("5", 5), ("5.0", 5), ('"5"', 5), ('"-7"', -7), ('"+7"', 7), ("2147483647", 2**31 - 1)],
)
def test_integers_may_be_text_or_integral_floats(written: str, number: int) -> None:
    structure = Structure({"N": INTEGER})
    decoded = json_wire.decode(structure, f'{{"N":{written}}}'.encode())
    assert decoded == {"N": number}
    assert type(decoded["N"]) is int


@pytest.mark.parametrize(
    "written",
    [
        "5.5",
        "1e400",
        '"5.5"',
        '"5_0"',
        '"\u0665"',
        '""',
        '"5\\n"',
        "true",
        "[]",
        "{}",
        "2147483648",
    ],
)
def test_other_values_are_no_integers(written: str) -> None:
    with pytest.raises(Malformed):
        json_wire.decode(Structure({"N": INTEGER}), f'{{"N":{written}}}'.encode())


def test_longs_have_64_bits() -> None:
    structure = Structure({"N": LONG})
    assert json_wire.decode(structure, b'{"N":9223372036854775807}') == {"N": 2**63 - 1}
    with pytest.raises(Malformed):
        json_wire.decode(structure, b'{"N":"9223372036854775808"}')


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (STRING, "5"),
        (STRING, "true"),
        (STRING, "{}"),
        (STRING, "[]"),
        (BOOLEAN, "1"),
        (BOOLEAN, '"yes"'),
        (BLOB, "5"),
        (BLOB, '"A"'),
        (BLOB, '"AA"'),
        (BLOB, '"A!=="'),
        (BLOB, '"żółć"'),
        (TIMESTAMP, "1e30"),
        (TIMESTAMP, "true"),
        (TIMESTAMP, '"soon"'),
        (List(STRING), '{"0":"a"}'),
        (List(STRING), '"a"'),
        (List(STRING), "[5]"),
        (Map(STRING), '["a"]'),
        (Map(STRING), '{"a":5}'),
        (Structure({}), '"a"'),
    ],
)
def test_wrong_types_are_malformed(kind: Scalar | List | Map | Structure, written: str) -> None:
    with pytest.raises(Malformed) as caught:
        json_wire.decode(Structure({"M": kind}), f'{{"M":{written}}}'.encode())
    assert caught.value.kind == "serialization"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b" ",
        b"[]",
        b'"text"',
        b"5",
        b"null",
        b"\xff",
        b'{"MessageBody":"\xff"}',
        b'{"MessageBody":"\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"A":NaN}',
        b"[" * 100_000,
        b'{"A":' * 100_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_anything_but_an_object_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        json_wire.decode(SEND, body)
    assert caught.value.kind == "serialization"


def test_nul_in_text_is_passed_on() -> None:
    assert json_wire.decode(SEND, b'{"MessageBody":"a\\u0000b"}') == {"MessageBody": "a\x00b"}


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_malformed(body: bytes) -> None:
    with contextlib.suppress(Malformed):
        json_wire.decode(SEND, body)


def test_blobs_may_be_wrapped() -> None:
    structure = Structure({"B": BLOB})
    assert json_wire.decode(structure, b'{"B":"AA\\r\\n E="}') == {"B": b"\x00\x01"}
    assert json_wire.decode(structure, b'{"B":""}') == {"B": b""}


def test_timestamps_are_seconds_or_iso_text() -> None:
    structure = Structure({"T": TIMESTAMP})
    instant = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    for written in (b"1795255200", b"1795255200.0", b'"2026-11-21T10:00:00Z"', b'"1795255200"'):
        assert json_wire.decode(structure, b'{"T":' + written + b"}") == {"T": instant}
    assert json_wire.encode(structure, {"T": instant}) == b'{"T":1795255200}'
    assert json_wire.encode(structure, {"T": instant.replace(microsecond=500_000)}) == (
        b'{"T":1795255200.5}'
    )


def test_text_that_looks_like_nothing_is_kept() -> None:
    output = SQS.actions["ReceiveMessage"].output
    message = {"Body": '{"a":null,"b":[],"c":{}}', "Attributes": {"k": ':null :[] ":{}'}}
    result: dict[str, Any] = {"Messages": [message | {"MessageAttributes": {}, "MD5OfBody": None}]}
    assert json.loads(json_wire.encode(output, result)) == {"Messages": [message]}


def test_empty_lists_that_are_not_flattened_are_written() -> None:
    structure = Structure({"Schedules": List(STRING), "Tags": Map(STRING), "Next": STRING})
    result: dict[str, Any] = {"Schedules": [], "Tags": {}, "Next": None}
    assert json_wire.encode(structure, result) == b'{"Schedules":[],"Tags":{}}'


def test_nothing_is_written_at_any_depth() -> None:
    inner = Structure({"Name": STRING, "Tags": List(STRING, flat="Tag"), "Count": INTEGER})
    structure = Structure({"One": inner, "Many": List(List(inner)), "Named": Map(inner)})
    full = {"Name": "n", "Tags": ["t"], "Count": 0}
    sparse: dict[str, Any] = {"Name": None, "Tags": [], "Count": 0}
    for value, written in ((full, full), (sparse, {"Count": 0})):
        result = {"One": value, "Many": [[value]], "Named": {"k": value}}
        expected = {"One": written, "Many": [[written]], "Named": {"k": written}}
        assert json.loads(json_wire.encode(structure, result)) == expected


def test_a_list_that_no_action_takes_is_only_counted() -> None:
    structure = SQS.actions["SendMessageBatch"].input
    entries = b",".join([b'{"Id":7}', b"null"] + [b'{"Id":"1"}'] * 2000)
    decoded = json_wire.decode(structure, b'{"Entries":[' + entries + b"]}")
    assert len(decoded["Entries"]) == 2001
