"""Messages sent on one face and received on the other, with any content."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import names
from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.fuzz import drawing
from tests.operations.test_native_messages import NAMES, TEXTS, VALUES

KINDS = pytest.mark.parametrize("fifo", [False, True])
XML_TEXTS = TEXTS.filter(lambda text: bool(text) and not names.invalid_characters(text))
BINARIES = st.binary(min_size=1, max_size=40)


# Examples of one test share its account.
_queues = itertools.count()


def _queue(rest: Rest, sqs: Sqs, fifo: bool) -> tuple[str, str]:
    """(name, URL) of a new queue."""
    name = rest.create(f"jobs-{next(_queues)}", fifo=fifo)
    return name, sqs.url_of(name)


@KINDS
@drawing.few()
@given(message=VALUES, headers=st.dictionaries(NAMES, VALUES, max_size=12))
def test_sent_here_received_there(
    rest: Rest, sqs_beside: Sqs, fifo: bool, message: Any, headers: dict[str, Any]
) -> None:
    name, url = _queue(rest, sqs_beside, fifo)
    group = {"group_id": "g"} if fifo else {}
    rest.send(name, message, headers=headers, **group)
    [received] = sqs_beside.receive(url, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert json.loads(received["Body"]) == message
    attributes = received.get("MessageAttributes", {})
    assert set(attributes) == set(headers)
    for header, attribute in attributes.items():
        _check(attribute, headers[header])
    assert received["Attributes"].get("MessageGroupId") == group.get("group_id")


def _check(attribute: dict[str, Any], value: Any) -> None:
    data_type, text = attribute["DataType"], attribute["StringValue"]
    if data_type == "String":
        assert text == value
    else:
        assert json.loads(text) == value
    expected = {
        bool: {"String.boolean"},
        type(None): {"String.null"},
        int: {"Number", "String.json"},
        float: {"Number", "String.json"},
        str: {"String", "String.json"},
    }
    assert data_type in expected.get(type(value), {"String.json"})


def _shown(text: str) -> Any:
    """A text that happens to be JSON is shown as what it says."""
    try:
        return json.loads(text, parse_constant=_no_json)
    except ValueError:
        return text


def _no_json(text: str) -> None:
    raise ValueError(text)


ATTRIBUTES = st.one_of(
    XML_TEXTS.map(lambda text: ({"DataType": "String", "StringValue": text}, text)),
    st.integers(-(10**30), 10**30).map(
        lambda number: ({"DataType": "Number", "StringValue": str(number)}, number)
    ),
    BINARIES.map(
        lambda data: ({"DataType": "Binary", "BinaryValue": data}, base64.b64encode(data).decode())
    ),
    XML_TEXTS.map(lambda text: ({"DataType": "String.x", "StringValue": text}, text)),
)
BODIES = st.one_of(
    XML_TEXTS.map(lambda text: (text, _shown(text))),
    VALUES.map(lambda value: (json.dumps(value), value)),
)


@KINDS
@drawing.few()
@given(body=BODIES, attributes=st.dictionaries(NAMES, ATTRIBUTES, max_size=10))
def test_sent_there_received_here(
    rest: Rest, sqs_beside: Sqs, fifo: bool, body: tuple[str, Any], attributes: dict[str, Any]
) -> None:
    name, url = _queue(rest, sqs_beside, fifo)
    members = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    given_attributes = {key: value for key, (value, _) in attributes.items()}
    sqs_beside.send(url, body[0], MessageAttributes=given_attributes, **members)
    [received] = rest.receive(name)
    assert received["message"] == body[1]
    assert received["headers"] == {key: shown for key, (_, shown) in attributes.items()}
    assert received.get("group_id") == members.get("MessageGroupId")


def test_receipts_and_ids_are_of_the_same_messages(rest: Rest, sqs_beside: Sqs) -> None:
    name, url = _queue(rest, sqs_beside, False)
    for number in range(2):
        rest.send(name, number)
    first, second = rest.receive(name)
    assert sqs_beside.receive(url) == []
    rest.call("PATCH", f"/v1/queues/{name}/messages/{first['id']}", {"vt": 0})
    [again] = sqs_beside.receive(url, AttributeNames=["ApproximateReceiveCount"])
    assert again["MessageId"] == first["message_id"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs_beside.delete(url, again)
    path = f"/v1/queues/{name}/messages"
    wanted = {"ids": [first["id"], second["id"]]}
    assert rest.call("DELETE", path, wanted) == {"deleted": [second["id"]]}


def test_more_than_ten_headers_reach_sqs(rest: Rest, sqs_beside: Sqs) -> None:
    name, url = _queue(rest, sqs_beside, False)
    rest.send(name, 1, headers={f"h{number}": number for number in range(30)})
    [received] = sqs_beside.receive(url, MessageAttributeNames=["All"])
    assert len(received["MessageAttributes"]) == 30


def test_the_timeouts_of_the_queue_are_those_of_its_receivers(rest: Rest, sqs_beside: Sqs) -> None:
    url = sqs_beside.create("jobs", VisibilityTimeout="0", MaximumMessageSize="1024")
    sqs_beside.send(url, "one")
    assert rest.messages("jobs") == ["one"]
    assert rest.messages("jobs") == ["one"]
    text = rest.refusal("POST", "/v1/queues/jobs/messages", {"message": "x" * 1023})
    assert text == "the message and its headers have 1025 bytes; queue 'jobs' takes 1024."
    rest.send("jobs", "x" * 1022)
