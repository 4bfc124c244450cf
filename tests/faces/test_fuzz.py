"""Requests that nobody would write: never an error of ours, and no trace of what was refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol.sqs_shapes import SQS
from tests.faces.clients import Sqs
from tests.faces.fuzzing import FUZZ, TEXT, VALUES, FuzzTarget, encoded, flattened
from tests.faces.servers import Server
from tests.protocol import oracle

# Long polls and purges would only make it slow.
ACTIONS = sorted(SQS.actions)


class Target(FuzzTarget):
    """Two queues with a message each, and a connection that must survive everything."""

    def __init__(self, server: Server) -> None:
        self.sqs = Sqs("json", server.url)
        self.urls = [self.sqs.create(), self.sqs.create_fifo("f.fifo")]
        self.sqs.send(self.urls[0], "b")
        super().__init__(self.sqs)

    def state(self) -> Any:
        listed = self.sqs.call("ListQueues").get("QueueUrls", [])
        return [(url, self.sqs.attributes(url)) for url in listed]


@pytest.fixture
def target(server: Server) -> Iterator[Target]:
    target = Target(server)
    yield target
    target.close()


def _json_headers(action: str) -> dict[str, str]:
    return {
        "X-Amz-Target": f"AmazonSQS.{action}",
        "Content-Type": "application/x-amz-json-1.0",
    }


def _members(action: str) -> st.SearchStrategy[dict[str, Any]]:
    """Members of the action, each of its own type or of any other."""
    shape = oracle.json_model().operation_model(action).input_shape
    names = sorted(shape.members)
    own = {
        name: oracle.values(shape.members[name], TEXT) | VALUES
        for name in names
        if name not in {"QueueUrl", "WaitTimeSeconds"}
    }
    queues = (
        {"QueueUrl": st.sampled_from(["orders", "f.fifo"]) | TEXT} if "QueueUrl" in names else {}
    )
    return st.fixed_dictionaries({}, optional=own | queues)


@FUZZ
@given(data=st.data())
def test_json_members_of_any_kind(target: Target, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(ACTIONS))
    members = data.draw(_members(action))
    target.assert_sound(_json_headers(action), json.dumps(encoded(members)).encode())


@FUZZ
@given(action=st.sampled_from(ACTIONS), body=st.binary(max_size=200) | VALUES.map(encoded))
def test_json_bodies_of_any_kind(target: Target, action: str, body: Any) -> None:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    target.assert_sound(_json_headers(action), encoded)


NAMES = st.sampled_from(
    [
        "Attribute.1.Name",
        "Attribute.1.Value",
        "Attribute",
        "AttributeName.1",
        "Tag.1.Key",
        "TagKey.1",
        "MessageAttribute.1.Name",
        "MessageAttribute.1.Value.DataType",
        "MessageAttribute.1.Value.BinaryValue",
        "SendMessageBatchRequestEntry.1.Id",
        "SendMessageBatchRequestEntry.99999999999.Id",
        "SendMessageBatchRequestEntry",
        "DeleteMessageBatchRequestEntry.1.ReceiptHandle",
        "QueueUrl",
        "QueueName",
        "MessageBody",
        "DelaySeconds",
        "MaxNumberOfMessages",
        "." * 50,
    ]
)


@FUZZ
@given(data=st.data())
def test_forms_of_any_kind(target: Target, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(ACTIONS))
    members = data.draw(_members(action))
    form = flattened(encoded(members)) | data.draw(st.dictionaries(NAMES, TEXT, max_size=4))
    form.pop("WaitTimeSeconds", None)
    body = urlencode({"Action": action} | form, errors="surrogatepass").encode()
    target.assert_sound({"Content-Type": "application/x-www-form-urlencoded"}, body)


@FUZZ
@given(body=st.binary(max_size=200), path=st.text("/abc%.?&=0123456789", max_size=30))
def test_bytes_of_any_kind(target: Target, body: bytes, path: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    target.assert_sound(headers, body, "/" + path.lstrip("/"))
