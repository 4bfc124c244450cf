"""/_admin/outbox: what would have been sent, for whoever has credentials."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faces.clients import authorization
from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.fuzz import drawing

FIELDS = {
    "id",
    "account",
    "region",
    "protocol",
    "destination",
    "kind",
    "topic_arn",
    "subscription_arn",
    "message_id",
    "subject",
    "body",
    "attributes",
    "created_at",
}
FUZZ = drawing.few()


class Reader:
    """Somebody who looks at the outbox of an account, and can have messages put there."""

    def __init__(self, url: str, sns: Sns) -> None:
        self.sns = sns
        self.connection = Connection(url)
        self.headers = {
            "Host": self.connection.host,
            "Authorization": authorization(sns.account, sns.region, "sns"),
        }

    def ask(self, method: str, target: str) -> Answer:
        self.connection.send(request_bytes(method, target, self.headers))
        return self.connection.answer()

    def page(self, **params: Any) -> dict[str, Any]:
        answer = self.ask("GET", f"/_admin/outbox?{urlencode(params)}")
        assert answer.status == 200, answer.text
        page: dict[str, Any] = json.loads(answer.body)
        return page

    def destinations(self, **params: Any) -> list[str]:
        return [message["destination"] for message in self.page(**params)["messages"]]

    def refusal(self, method: str, target: str) -> tuple[int, str]:
        answer = self.ask(method, target)
        return answer.status, json.loads(answer.body)["error"]

    def write(self, *numbers: str) -> None:
        for number in numbers:
            self.sns.call("CreateSMSSandboxPhoneNumber", PhoneNumber=number)

    def close(self) -> None:
        self.connection.close()
        self.sns.close()


@pytest.fixture
def reader(server: Server) -> Iterator[Reader]:
    reader = Reader(server.url, Sns("query", server.url))
    yield reader
    reader.close()


def test_every_field_of_a_message(reader: Reader) -> None:
    reader.write("+15550100")
    page = reader.page()
    [message] = page["messages"]
    assert page["next"] is None
    assert set(message) == FIELDS
    assert message["account"] == reader.sns.account
    assert message["region"] == "us-east-1"
    assert (message["protocol"], message["kind"]) == ("sms", "VerificationCode")
    assert (message["destination"], message["topic_arn"]) == ("+15550100", None)
    assert message["attributes"] is None
    assert datetime.fromisoformat(message["created_at"]).tzinfo is not None
    answer = reader.ask("GET", f"/_admin/outbox/{message['id']}")
    assert (answer.status, json.loads(answer.body)) == (200, message)
    assert answer.headers["content-type"] == "application/json"


def test_published_attributes_are_json(reader: Reader) -> None:
    attributes = {
        "colour": {"DataType": "String", "StringValue": "blue"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    published = reader.sns.call(
        "Publish", PhoneNumber="+15550100", Message="Grüße", MessageAttributes=attributes
    )
    [message] = reader.page()["messages"]
    assert (message["message_id"], message["kind"]) == (published["MessageId"], "Notification")
    assert (message["protocol"], message["body"]) == ("sms", "Grüße")
    assert message["attributes"] == {
        "colour": {"DataType": "String", "StringValue": "blue"},
        "bytes": {"DataType": "Binary", "BinaryValue": "AP8="},
    }


def test_nothing_is_published_to_a_number_that_opted_out(reader: Reader) -> None:
    assert reader.ask("PUT", "/_admin/sms/opted-out/15550100").status == 200
    refused = reader.sns.refusal("Publish", PhoneNumber="+15550100", Message="hello")
    assert (refused.status, refused.code) == (400, "OptedOut")
    assert reader.destinations() == []


def test_pages_with_the_newest_last(reader: Reader) -> None:
    numbers = [f"+1555010{number}" for number in range(5)]
    reader.write(*numbers)
    first = reader.page(limit=2)
    second = reader.page(limit=2, after_id=first["next"])
    third = reader.page(limit=2, after_id=second["next"])
    pages = (first, second, third)
    found = [message["destination"] for page in pages for message in page["messages"]]
    assert (found, third["next"]) == (numbers, None)


def test_filters_choose_what_is_shown_and_cleared(reader: Reader) -> None:
    reader.write("+15550100", "+15550101", "+15550102")
    assert reader.destinations(destination="+15550101") == ["+15550101"]
    assert reader.destinations(kind="Notification") == []
    assert len(reader.destinations(kind="VerificationCode", protocol="sms")) == 3
    assert reader.destinations(topic_arn="arn:aws:sns:us-east-1:1:a") == []
    assert reader.destinations(region="eu-west-1") == []
    answer = reader.ask("DELETE", "/_admin/outbox?destination=%2B15550101")
    assert json.loads(answer.body) == {"deleted": 1}
    assert reader.destinations() == ["+15550100", "+15550102"]
    assert json.loads(reader.ask("DELETE", "/_admin/outbox").body) == {"deleted": 2}
    assert reader.destinations() == []


def test_account_is_the_callers_unless_another_is_asked_for(reader: Reader) -> None:
    with reader.sns.other(account="123412341234", region="eu-west-1") as other:
        other.call("CreateSMSSandboxPhoneNumber", PhoneNumber="+15550100")
    assert reader.destinations() == []
    page = reader.page(account="123412341234")
    [message] = page["messages"]
    assert (message["account"], message["region"]) == ("123412341234", "eu-west-1")
    path = f"/_admin/outbox/{message['id']}"
    assert reader.refusal("GET", path)[0] == 404
    assert reader.ask("GET", f"{path}?account=123412341234").status == 200
    assert json.loads(reader.ask("DELETE", "/_admin/outbox").body) == {"deleted": 0}
    answer = reader.ask("DELETE", "/_admin/outbox?account=123412341234&region=eu-west-1")
    assert json.loads(answer.body) == {"deleted": 1}


@pytest.mark.parametrize(
    "target", ["/_admin/outbox", "/_admin/outbox/1", "/_admin/sms/opted-out/15550100"]
)
def test_credentials_are_needed(server: Server, relaxed_server: Server, target: str) -> None:
    method = "PUT" if "sms" in target else "GET"
    answer = fetch(server.url, target, method)
    assert answer.status == 403
    assert "needs credentials" in json.loads(answer.body)["error"]
    assert fetch(relaxed_server.url, target, method).status in (200, 404)


def test_presigned_parameters_are_credentials(reader: Reader, server: Server) -> None:
    reader.write("+15550100")
    signed = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{reader.sns.account}/20260101/us-east-1/sns/aws4_request",
        "X-Amz-Date": "20260101T000000Z",
        "X-Amz-Expires": "60",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": "0" * 64,
        "protocol": "sms",
    }
    answer = fetch(server.url, f"/_admin/outbox?{urlencode(signed)}")
    assert (answer.status, len(json.loads(answer.body)["messages"])) == (200, 1)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("limit=0", "The query parameter `limit` is refused: allowed is 1 to 1000."),
        ("limit=1001", "The query parameter `limit` is refused: allowed is 1 to 1000."),
        ("limit=ten", "The query parameter `limit` is 'ten': a whole number is expected."),
        ("after_id=-1", "The query parameter `after_id` is refused: expected a whole number >= 0."),
        ("after_id=" + f"{10**18}", "The query parameter `after_id` is refused: expected a whole"),
        ("after_id=" + "9" * 30, "The query parameter `after_id` is '9999999"),
        ("account=me", "The query parameter `account` is refused: expected a string matching"),
        (
            "kind=Spam",
            "kind is one of Invocation, Notification, SubscriptionConfirmation, VerificationCode.",
        ),
        (
            "protocol=sqs",
            "protocol is one of application, aws-sdk, codebuild, codepipeline, ecs, email, "
            "email-json, events, firehose, inspector, kinesis, lambda, sagemaker, sms, states.",
        ),
        ("kind=", "kind is one of Invocation"),
        ("destination=", "The query parameter `destination` is refused"),
        ("destination=%00", "%00 holds a NUL character."),
        ("destination=%08", "The query parameter `destination` is refused"),
        ("region=a&region=b", "The query parameter `region` is there twice."),
        (
            "acount=1",
            "The query parameter `acount` is not known. Known are `account`, `region`, `protocol`, "
            "`destination`, `topic_arn`, `kind`, `after_id`, `limit`.",
        ),
    ],
)
def test_bad_parameters(reader: Reader, query: str, text: str) -> None:
    status, refusal = reader.refusal("GET", f"/_admin/outbox?{query}")
    assert (status, refusal[: len(text)]) == (400, text)


def test_bad_requests(reader: Reader) -> None:
    status, text = reader.refusal("DELETE", "/_admin/outbox?limit=1")
    assert (status, "`account`, `region`" in text) == (400, True)
    for last in ("abc", "-1", "9" * 40):
        assert reader.refusal("GET", f"/_admin/outbox/{last}")[0] == 400
    assert reader.refusal("GET", f"/_admin/outbox/{'9' * 18}")[0] == 404
    assert reader.refusal("PUT", "/_admin/sms/opted-out/hello") == (
        400,
        "Invalid parameter: PhoneNumber Reason: input incorrectly formatted",
    )
    assert reader.refusal("PUT", "/_admin/sms/opted-out/15550100?account=1")[0] == 400
    assert reader.ask("POST", "/_admin/outbox").status == 405


def test_pages_have_one_label_in_metrics(reader: Reader, server: Server) -> None:
    reader.ask("GET", "/_admin/outbox/4711")
    reader.ask("PUT", "/_admin/sms/opted-out/15550147")
    paths = set(re.findall(r'path="([^"]*)"', server.metrics("http_requests")))
    assert "/_admin" in paths
    assert not any("4711" in path or "15550147" in path for path in paths)


PARTS = st.text(max_size=20) | st.sampled_from(["1", "-1", "\x00", "sms", "9" * 25, "💥"])
NAMES = st.sampled_from(["account", "region", "kind", "after_id", "limit", "X-Amz-Credential", "?"])


@FUZZ
@given(
    method=st.sampled_from(["GET", "DELETE", "PUT", "HEAD"]),
    path=st.sampled_from(["outbox", "outbox/", "sms/opted-out/", "sms/"]),
    last=PARTS,
    params=st.dictionaries(NAMES | PARTS, PARTS, max_size=4),
    authorization=st.none() | st.text("abc =/,AWS4-HMAC-SHA256 Credential", max_size=60),
)
def test_requests_of_any_kind(
    server: Server,
    method: str,
    path: str,
    last: str,
    params: dict[str, str],
    authorization: str | None,
) -> None:
    target = f"/_admin/{path}{quote(last, safe='')}?{urlencode(params)}"
    with Connection(server.url) as connection:
        headers = {"Host": connection.host}
        if authorization is not None:
            headers["Authorization"] = authorization.strip()
        connection.send(request_bytes(method, target, headers))
        assert connection.answer(to_head=method == "HEAD").status < 500
