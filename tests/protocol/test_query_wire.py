import contextlib
from typing import Any
from urllib.parse import unquote_to_bytes, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import query_wire
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.query_wire import MAX_PARAMETERS, parse_form
from queuegate.protocol.shapes import BOOLEAN, STRING, TIMESTAMP, List, Map, Structure
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from tests.protocol import contract, oracle

ACTIONS = sorted((service.name, name) for service in (SQS, SNS) for name in service.actions)
FORMS = contract.load("query_forms")["serialized"]
PIECES = [b"%", b"=", b"%3", b"%25", b"%3d", b"%3D", b"%c3%A9", b"4", b"z", b"\n", b"\r", b"\0 "]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def _decode(action: str, encoded: str, service: str = "sqs") -> dict[str, Any]:
    structure = {"sqs": SQS, "sns": SNS}[service].actions[action].input
    return query_wire.decode(structure, parse_form(encoded.encode()))


@pytest.mark.parametrize("row", FORMS, ids=lambda row: row["action"])
def test_forms_of_the_contract(row: dict[str, Any]) -> None:
    assert parse_form(row["encoded"].encode()) == {k: str(v) for k, v in row["form"].items()}
    decoded = _decode(row["action"], row["encoded"], row["service"])
    assert decoded == contract.with_bytes(row["equals_json_input"])


@pytest.mark.parametrize(("service", "action"), ACTIONS)
def test_decodes_what_botocore_serialized(service: str, action: str) -> None:
    operation = oracle.model_of_query(service).operation_model(action)
    example = oracle.full_example(operation.input_shape)
    form = urlencode(oracle.query_request(action, example, service))
    assert _decode(action, form, service) == example


@pytest.mark.parametrize(
    ("service", "action"),
    [("sqs", "SendMessageBatch"), ("sqs", "CreateQueue"), ("sns", "PublishBatch")],
)
@given(data=st.data())
def test_round_trip_through_botocores_serializer(
    service: str, action: str, data: st.DataObject
) -> None:
    shape = oracle.model_of_query(service).operation_model(action).input_shape
    params = data.draw(oracle.values(shape, TEXT))
    decoded = _decode(action, urlencode(oracle.query_request(action, params, service)), service)
    assert _pruned(decoded) == _pruned(params)


def _pruned(value: Any) -> Any:
    """A form cannot tell a structure without members from none."""
    if isinstance(value, dict):
        kept = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [kept for kept in map(_pruned, value) if kept not in ({}, [])]
    return value


def test_bare_name_is_an_empty_list() -> None:
    for form in ("SendMessageBatchRequestEntry=", "SendMessageBatchRequestEntry", "Entries="):
        assert _decode("SendMessageBatch", form) == {"Entries": []}
    assert _decode("TagQueue", "Tag=") == {"Tags": {}}
    assert _decode("SendMessageBatch", "QueueUrl=q") == {"QueueUrl": "q"}


def test_indices_are_sorted_as_numbers_and_may_have_gaps() -> None:
    form = "TagKey.10=c&TagKey.9=b&TagKey.3=a"
    assert _decode("UntagQueue", form) == {"TagKeys": ["a", "b", "c"]}
    form = "Tag.7.Value=2&Tag.2.Value=1&Tag.2.Key=a&Tag.7.Key=b"
    assert list(_decode("TagQueue", form)["Tags"].items()) == [("a", "1"), ("b", "2")]


def test_names_that_are_no_indices_are_ignored() -> None:
    form = "TagKey.x=1&TagKey.-1=2&TagKey.%D9%A3=3&TagKey.9999999999=4&TagKey.1=5&TagKey.1.2=6"
    assert _decode("UntagQueue", form) == {"TagKeys": ["5"]}


def test_old_forms_without_an_index_are_one_entry() -> None:
    form = "Attribute.Name=VisibilityTimeout&Attribute.Value=5"
    assert _decode("SetQueueAttributes", form) == {"Attributes": {"VisibilityTimeout": "5"}}
    assert _decode("GetQueueAttributes", "AttributeName=All") == {"AttributeNames": ["All"]}


def test_map_entry_without_a_value_is_empty() -> None:
    assert _decode("TagQueue", "Tag.1.Key=k") == {"Tags": {"k": ""}}
    form = "MessageAttribute.1.Name=n"
    assert _decode("SendMessage", form) == {"MessageAttributes": {"n": {}}}


def test_map_entry_without_a_key_is_malformed() -> None:
    with pytest.raises(Malformed):
        _decode("TagQueue", "Tag.1.Value=v")


@pytest.mark.parametrize("text", ["abc", "1.5", "%D9%A3", "2147483648", "1e3", "0x10", "9" * 5000])
def test_numbers_that_cannot_be_read_are_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        _decode("SendMessage", f"DelaySeconds={text}")


def test_empty_number_is_absent_and_empty_text_is_not() -> None:
    assert _decode("SendMessage", "DelaySeconds=&MessageBody=") == {"MessageBody": ""}


def test_lists_and_maps_that_are_not_flattened() -> None:
    value = Structure({"DataType": STRING})
    structure = Structure(
        {
            "Flag": BOOLEAN,
            "TagKeys": List(STRING),
            "Entries": List(Structure({"Id": STRING, "Names": List(STRING)})),
            "MessageAttributes": Map(value, key_name="Name", value_name="Value"),
            "Attributes": Map(STRING),
            "At": TIMESTAMP,
        }
    )
    form = (
        b"Flag=TRUE&TagKeys.member.2=b&TagKeys.member.1=a&Entries.member.1.Id=1"
        b"&Entries.member.1.Names.member.1=n&MessageAttributes.entry.1.Name=k"
        b"&MessageAttributes.entry.1.Value.DataType=String"
        b"&Attributes.entry.1.key=x&Attributes.entry.1.value=y&At=2026-11-21T10:00:00Z"
    )
    decoded = query_wire.decode(structure, parse_form(form))
    assert decoded.pop("At").isoformat() == "2026-11-21T10:00:00+00:00"
    assert decoded == {
        "Flag": True,
        "TagKeys": ["a", "b"],
        "Entries": [{"Id": "1", "Names": ["n"]}],
        "MessageAttributes": {"k": {"DataType": "String"}},
        "Attributes": {"x": "y"},
    }
    assert query_wire.decode(structure, parse_form(b"Attributes=&TagKeys=")) == {
        "Attributes": {},
        "TagKeys": [],
    }


def test_plus_is_a_space_and_a_stray_percent_stands_for_itself() -> None:
    assert parse_form(b"a+b=1+%2B+2&c=%zz%&d=%4&&e") == {
        "a b": "1 + 2",
        "c": "%zz%",
        "d": "%4",
        "e": "",
    }


@given(st.lists(st.sampled_from(PIECES)).map(b"".join))
def test_escapes_are_read_as_urllib_reads_them(value: bytes) -> None:
    expected = unquote_to_bytes(value)
    try:
        assert parse_form(b"x=" + value) == {"x": expected.decode()}
    except Malformed:
        with pytest.raises(UnicodeDecodeError):
            expected.decode()


ESCAPES = [b"%%%02X" % byte for byte in range(256)] + [b"%%%02x" % byte for byte in range(256)]
SOME = st.lists(
    st.sampled_from(PIECES + ESCAPES + [b"%0A", b"=\n", b"=\r\n", b"%\t", b"%%3D", b"==", b" \n"])
    | st.binary(max_size=3).map(lambda raw: raw.replace(b"&", b"").replace(b"+", b"")),
    max_size=60,
).map(b"".join)


@given(SOME, st.sampled_from([b"%", b"%41", b"%3D", b"%25", b"%0D", b"%%"]), st.booleans())
def test_few_and_many_escapes_are_read_alike(value: bytes, filler: bytes, first: bool) -> None:
    """More than 48 in one value go another way."""
    many = filler * 49
    for encoded in (value, many + value if first else value + many):
        assert query_wire._unquoted(encoded) == unquote_to_bytes(encoded)


@pytest.mark.parametrize("count", [47, 48, 49, 50])
@pytest.mark.parametrize("part", [*ESCAPES[::7], b"%", b"%a", b"%zz", b"%\r", b"%\n", b"%3"])
def test_escapes_around_the_limit(part: bytes, count: int) -> None:
    assert query_wire._unquoted(part * count) == unquote_to_bytes(part * count)


@pytest.mark.parametrize("part", [b"%", b"%41", b"%4", b"%3D", b"%=", b"%%41"])
def test_millions_of_percent_signs(part: bytes) -> None:
    million = 1_000_000
    assert parse_form(b"x=" + part * million) == {"x": unquote_to_bytes(part).decode() * million}


def test_first_value_of_a_repeated_name_counts() -> None:
    assert parse_form(b"a=1&a=2") == {"a": "1"}


@pytest.mark.parametrize("encoded", [b"a=%ff", b"a=\xff", b"%c3=1", b"a=%ed%a0%80"])
def test_text_that_is_not_utf8_is_malformed(encoded: bytes) -> None:
    with pytest.raises(Malformed):
        parse_form(encoded)


def test_number_of_parameters_is_limited() -> None:
    most = b"&".join(b"p%d=" % number for number in range(MAX_PARAMETERS))
    assert len(parse_form(most)) == MAX_PARAMETERS
    with pytest.raises(Malformed):
        parse_form(most + b"&")


@given(st.binary(max_size=60))
def test_any_bytes_are_parameters_or_malformed(encoded: bytes) -> None:
    with contextlib.suppress(Malformed):
        params = parse_form(encoded)
        query_wire.decode(SQS.actions["SendMessageBatch"].input, params)
        query_wire.decode(SNS.actions["PublishBatch"].input, params)


def test_very_deep_names_are_harmless() -> None:
    params = parse_form(b"SendMessageBatchRequestEntry" + b".1" * 100_000 + b"=x&MessageBody=b")
    assert query_wire.decode(SQS.actions["SendMessage"].input, params) == {"MessageBody": "b"}
