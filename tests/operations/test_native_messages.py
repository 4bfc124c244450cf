"""Messages and headers of the native API, there and back."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuegate.gateway.operations.queues.json_messages import (
    attributes_of,
    body_of,
    headers_of,
    message_of,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import names
from queuegate.storage.storage_errors import InvalidParameterValue

TEXTS = st.text(st.characters(codec="utf-8"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**200), 10**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below) | st.dictionaries(TEXTS, below), max_leaves=20
)
NAMES = st.from_regex(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", fullmatch=True).filter(
    lambda name: names.attribute_name_fault(name) is None
)
STYLES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 2, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" , ", " : ")]),
    }
)


def _json(value: Any, style: dict[str, Any]) -> bytes:
    return json.dumps(value, **style).encode()


@given(VALUES, STYLES)
@example("\ufffe\uffff\x00\x7f", {"ensure_ascii": False})
@example({"\uffff": ["\uffff"]}, {"ensure_ascii": False})
def test_a_message_comes_back_as_it_was_written(value: Any, style: dict[str, Any]) -> None:
    written = _json(value, style)
    body = body_of(written)
    assert not names.invalid_characters(body)
    read = message_of(body)
    assert json.loads(read) == value
    if b"\xef\xbf" not in written:
        assert read == written


@given(TEXTS)
@example("")
@example("NaN")
@example("[1,]")
@example("'single'")
@example('"\\ud800"')
@example("01")
@example("1 2")
def test_a_body_that_is_no_json_comes_back_as_a_string(body: str) -> None:
    try:
        msgspec.json.decode(body.encode(), type=msgspec.Raw)
    except msgspec.DecodeError:
        assert json.loads(message_of(body)) == body
    else:
        assert message_of(body) == body.encode()


@given(st.dictionaries(NAMES, st.tuples(VALUES, STYLES)))
@example({"empty": ("", {}), "control": ("\x00", {}), "odd": ("\uffff", {"ensure_ascii": False})})
@example({"big": (10**40, {}), "small": (1e-300, {}), "float": (1e22, {}), "zero": (-0.0, {})})
def test_headers_come_back(headers: dict[str, tuple[Any, dict[str, Any]]]) -> None:
    stored, size = attributes_of({name: _json(*given) for name, given in headers.items()})
    assert json.loads(headers_of(stored)) == {name: value for name, (value, _) in headers.items()}
    assert (stored is None) == (not headers)
    assert (size > 0) == bool(headers)


@given(st.dictionaries(NAMES, st.tuples(VALUES, STYLES), min_size=1))
def test_headers_are_attributes_that_sqs_could_carry(
    headers: dict[str, tuple[Any, dict[str, Any]]],
) -> None:
    stored, size = attributes_of({name: _json(*given) for name, given in headers.items()})
    counted = 0
    for name, value in json.loads(stored or "").items():
        data_type, text = value["DataType"], value["StringValue"]
        assert names.data_type_fault(data_type) is None
        assert text
        assert not names.invalid_characters(text)
        if data_type == "Number":
            assert names.is_number(text)
        counted += len(name.encode()) + len(data_type) + len(text.encode())
    assert counted == size


@pytest.mark.parametrize(
    ("value", "data_type", "text"),
    [
        ("acme", "String", "acme"),
        ("", "String.json", '""'),
        ("\x01", "String.json", '"\\u0001"'),
        (3, "Number", "3"),
        (-1.5, "Number", "-1.5"),
        (int("12" * 20), "String.json", "12" * 20),
        (True, "String.boolean", "true"),
        (False, "String.boolean", "false"),
        (None, "String.null", "null"),
        ({"a": [1]}, "String.json", '{"a": [1]}'),
        ([], "String.json", "[]"),
    ],
)
def test_what_sqs_receivers_see(value: Any, data_type: str, text: str) -> None:
    stored, _ = attributes_of({"h": json.dumps(value).encode()})
    assert json.loads(stored or "") == {"h": {"DataType": data_type, "StringValue": text}}


@pytest.mark.parametrize(
    ("attribute", "shown"),
    [
        ({"DataType": "String", "StringValue": "3"}, "3"),
        ({"DataType": "Number", "StringValue": "3"}, 3),
        ({"DataType": "Number.int", "StringValue": "-3.50"}, -3.5),
        ({"DataType": "Number", "StringValue": "+3"}, "+3"),
        ({"DataType": "Number", "StringValue": ".5"}, ".5"),
        ({"DataType": "Number", "StringValue": "007"}, "007"),
        ({"DataType": "String.json", "StringValue": "[1]"}, [1]),
        ({"DataType": "String.json", "StringValue": "[1"}, "[1"),
        ({"DataType": "String.boolean", "StringValue": "true"}, True),
        ({"DataType": "String.boolean", "StringValue": "yes"}, "yes"),
        ({"DataType": "String.null", "StringValue": "null"}, None),
        ({"DataType": "String.null", "StringValue": "nil"}, "nil"),
        ({"DataType": "String.custom", "StringValue": "null"}, "null"),
        ({"DataType": "Binary", "BinaryValue": "AAE="}, "AAE="),
        ({"DataType": "Binary.png", "BinaryValue": "AAE="}, "AAE="),
    ],
)
def test_what_sqs_senders_cause(attribute: dict[str, str], shown: Any) -> None:
    assert json.loads(headers_of(json.dumps({"h": attribute}))) == {"h": shown}


@given(st.integers(0, 3), st.booleans())
def test_nesting_has_a_limit(beyond: int, is_object: bool) -> None:
    opening, closing = (b'{"a":', b"}") if is_object else (b"[", b"]")
    levels = LIMITS.nesting_levels - 1 + beyond
    deep = opening * levels + b'"[[{\\"{\\\\"' + closing * levels
    wide = b"[" + b",".join([b'["[",{}]'] * 1000) + b"]"
    assert message_of(wide.decode()) == wide
    if levels <= LIMITS.nesting_levels:
        assert message_of(body_of(deep)) == deep
        assert json.loads(headers_of(attributes_of({"h": deep})[0]))
    else:
        for call in (lambda: body_of(deep), lambda: attributes_of({"h": deep})):
            with pytest.raises(InvalidParameterValue, match="nested deeper than 500"):
                call()
        assert json.loads(message_of(deep.decode())) == deep.decode()


@pytest.mark.parametrize("height", [1, 9])
@pytest.mark.parametrize("beyond", [0, 1])
def test_the_deepest_of_many_counts(height: int, beyond: int) -> None:
    """As many as a message has room for, beginning with low ones or high ones."""
    under = LIMITS.nesting_levels - height
    one = b'["a",' * (height - 1) + b"[]" + b"]" * (height - 1)
    highest = b"[" * (height + beyond) + b"]" * (height + beyond)
    many = b",".join([one] * (1_000_000 // (len(one) + 1)))
    for parts in (many + b"," + highest, highest + b"," + many):
        message = b"[" * under + parts + b"]" * under
        if beyond:
            with pytest.raises(InvalidParameterValue, match="nested deeper than 500"):
                body_of(message)
        else:
            assert body_of(message) == message.decode()


def test_headers_have_a_limit() -> None:
    most = {f"h{number}": b"0" for number in range(LIMITS.headers)}
    attributes, _ = attributes_of(most)
    assert len(json.loads(headers_of(attributes))) == LIMITS.headers
    with pytest.raises(InvalidParameterValue, match="There are 101 headers; a message has at most"):
        attributes_of(most | {"more": b"0"})


def test_nothing_is_not_a_number() -> None:
    for text in ("NaN", "Infinity", "-Infinity"):
        assert not math.isfinite(float(text))
        assert json.loads(message_of(text)) == text
