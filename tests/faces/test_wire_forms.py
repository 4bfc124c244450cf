"""Forms of answers on each wire: headers, ids, void and empty results, refusals."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest
import xmltodict

from tests.faces.clients import Refused, Sqs, authorization, read_xml
from tests.faces.connections import Answer, request_bytes
from tests.protocol import contract

FORMS: list[dict[str, Any]] = [
    case for case in contract.load("query_forms")["serialized"] if case["service"] == "sqs"
]
JSON_RPC: dict[str, Any] = contract.load("sqs_json_rpc")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
VOID = (
    "DeleteMessage",
    "ChangeMessageVisibility",
    "SetQueueAttributes",
    "TagQueue",
    "UntagQueue",
    "AddPermission",
    "RemovePermission",
    "PurgeQueue",
    "DeleteQueue",
)
EMPTY = ("ReceiveMessage", "ListQueueTags", "GetQueueAttributes", "ListDeadLetterSourceQueues")


def post(sqs: Sqs, body: bytes, path: str = "/", **headers: str | None) -> Answer:
    """A POST with the client's credentials and these headers (`_` for `-`); None drops one."""
    given = {
        "Host": sqs.url.partition("://")[2],
        "Authorization": authorization(sqs.account),
        "Content-Type": "application/x-amz-json-1.0",
    }
    changes = {name.replace("_", "-"): value for name, value in headers.items()}
    merged = {name: value for name, value in (given | changes).items() if value is not None}
    sqs.connection().send(request_bytes("POST", path, merged, body))
    return sqs.connection().answer()


def form(sqs: Sqs, path: str = "/", **params: str) -> Answer:
    """A POST of a form."""
    body = urlencode(params).encode()
    return post(sqs, body, path, Content_Type="application/x-www-form-urlencoded")


def _assert_request_id(answer: Answer, is_query: bool) -> None:
    request_id = answer.headers["x-amzn-requestid"]
    assert UUID(request_id)
    if is_query:
        assert f"<RequestId>{request_id}</RequestId>" in answer.text


def _void_members(sqs: Sqs, url: str, action: str) -> dict[str, Any]:
    sqs.send(url)
    handle = sqs.receive(url)[0]["ReceiptHandle"]
    permission = {"Label": "l", "AWSAccountIds": [sqs.account], "Actions": ["SendMessage"]}
    if action == "RemovePermission":
        sqs.call("AddPermission", QueueUrl=url, **permission)
    members: dict[str, dict[str, Any]] = {
        "DeleteMessage": {"ReceiptHandle": handle},
        "ChangeMessageVisibility": {"ReceiptHandle": handle, "VisibilityTimeout": 1},
        "SetQueueAttributes": {"Attributes": {"DelaySeconds": "1"}},
        "TagQueue": {"Tags": {"a": "b"}},
        "UntagQueue": {"TagKeys": ["a"]},
        "AddPermission": permission,
        "RemovePermission": {"Label": "l"},
    }
    return {"QueueUrl": url} | members.get(action, {})


@pytest.mark.parametrize("action", VOID)
def test_void_actions(sqs: Sqs, action: str) -> None:
    members = _void_members(sqs, sqs.create(), action)
    answer = sqs.ask(action, members)
    assert answer.status == 200
    _assert_request_id(answer, sqs.is_query)
    if sqs.is_query:
        assert answer.headers["content-type"] == "text/xml"
        metadata = {"RequestId": answer.headers["x-amzn-requestid"]}
        space = "http://queue.amazonaws.com/doc/2012-11-05/"
        assert xmltodict.parse(answer.body) == {
            f"{action}Response": {"@xmlns": space, "ResponseMetadata": metadata}
        }
    else:
        assert answer.headers["content-type"] == "application/x-amz-json-1.0"
        assert answer.body == b""


@pytest.mark.parametrize("action", EMPTY)
def test_nothing_to_return(sqs: Sqs, action: str) -> None:
    answer = sqs.ask(action, {"QueueUrl": sqs.create()})
    assert answer.status == 200
    _assert_request_id(answer, sqs.is_query)
    if sqs.is_query:
        assert f"<{action}Result/>" in answer.text
    else:
        assert answer.body == b"{}"


def test_no_queues(sqs: Sqs) -> None:
    answer = sqs.ask("ListQueues", {"QueueNamePrefix": "nothing"})
    assert ("<ListQueuesResult/>" in answer.text) if sqs.is_query else answer.body == b"{}"


def test_a_refusal_in_full(sqs: Sqs) -> None:
    answer = sqs.ask("GetQueueUrl", {"QueueName": "nope"})
    assert answer.status == 400
    _assert_request_id(answer, sqs.is_query)
    if sqs.is_query:
        assert answer.headers["content-type"] == "text/xml"
        assert (
            "<Error><Type>Sender</Type>"
            "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>"
            "<Message>The specified queue does not exist for this wsdl version.</Message>"
            "<Detail/></Error>"
        ) in answer.text
    else:
        recorded = next(r for r in JSON_RPC["responses"] if r["case"] == "error")
        assert json.loads(answer.body) == recorded["body"]
        for name in ("Content-Type", "x-amzn-query-error"):
            assert answer.headers[name.lower()] == recorded["headers"][name]


def test_request_ids_differ(sqs: Sqs) -> None:
    url = sqs.create()
    ids = {sqs.ask("ReceiveMessage", {"QueueUrl": url}).headers["x-amzn-requestid"] for _ in "abc"}
    assert len(ids) == 3


def test_texts_are_escaped(query_sqs: Sqs) -> None:
    url = query_sqs.create()
    body = '<a b="c">&\r\n]]>'
    query_sqs.send(url, body)
    answer = query_sqs.ask("ReceiveMessage", {"QueueUrl": url})
    assert "<Body>&lt;a b=&quot;c&quot;&gt;&amp;&#xD;\n]]&gt;</Body>" in answer.text


# Requests that the vectors hold


@pytest.mark.parametrize("case", FORMS, ids=lambda case: str(case["action"]))
def test_recorded_forms_mean_the_same_as_their_json(json_sqs: Sqs, case: dict[str, Any]) -> None:
    """Each form is understood: it succeeds, or is refused for what it names, as its JSON is."""
    sqs = json_sqs
    url = sqs.create("q")
    for _ in range(2):
        sqs.send(url)
    account = sqs.account.encode()
    encoded = case["encoded"].encode().replace(b"123456789012", account)
    answer = post(sqs, encoded, Content_Type="application/x-www-form-urlencoded; charset=utf-8")
    text = json.dumps(case["equals_json_input"]).replace("123456789012", sqs.account)
    if case["action"] == "CreateQueue":
        assert sqs.attributes("q.fifo", "VisibilityTimeout") == {"VisibilityTimeout": "60"}
        tags = sqs.call("ListQueueTags", QueueUrl="q.fifo")["Tags"]
        assert tags == {"env": "prod", "team": "a b"}
    members = contract.with_bytes(json.loads(text))
    if "WaitTimeSeconds" in members:
        members["WaitTimeSeconds"] = 0
    again = sqs.ask(case["action"], members)
    assert (answer.status, again.status) in {(200, 200), (400, 400), (404, 404), (200, 400)}
    if answer.status != 200:
        code = again.headers["x-amzn-query-error"].partition(";")[0]
        assert read_xml(answer.body)["Error"]["Code"] == code


@pytest.mark.parametrize("case", JSON_RPC["requests"], ids=lambda case: str(case["action"]))
def test_recorded_json_requests(json_sqs: Sqs, case: dict[str, Any]) -> None:
    json_sqs.create("q", VisibilityTimeout="40")
    request = case["request"]
    body = json.dumps(request["body"]).replace("123456789012", json_sqs.account).encode()
    headers = {name.replace("-", "_"): value for name, value in request["headers"].items()}
    answer = post(json_sqs, body, request["path"], **headers)
    assert answer.status == 200, answer.text


@pytest.mark.parametrize("case", [r for r in JSON_RPC["responses"] if "body_keys" in r])
def test_recorded_keys_of_a_sent_message(sqs: Sqs, case: dict[str, Any]) -> None:
    fifo = "FIFO" in case["case"]
    url = sqs.create_fifo() if fifo else sqs.create()
    sent = sqs.send(url, **({"MessageGroupId": "g"} if fifo else {}))
    assert sorted(sent) == case["body_keys"]


# The JSON wire


@pytest.mark.parametrize(
    "target", ["AmazonSQS.Nothing", "AmazonSQS.", "Nothing", "AmazonSNS.Publish"]
)
def test_unknown_targets(json_sqs: Sqs, target: str) -> None:
    answer = post(json_sqs, b"{}", X_Amz_Target=target)
    assert answer.status == 400
    assert answer.headers["x-amzn-query-error"] == "InvalidAction;Sender"
    assert json.loads(answer.body)["__type"] == (
        "com.amazon.coral.service#UnknownOperationException"
    )


def test_no_target(json_sqs: Sqs) -> None:
    answer = post(json_sqs, b"{}")
    assert answer.headers["x-amzn-query-error"] == "InvalidAction;Sender"


BROKEN = (
    b"{",
    b"[]",
    b'"text"',
    b"1",
    b"null",
    b"{'a':1}",
    b"\xff\xfe",
    b'{"QueueName":"\xff"}',
    b"{}x",
)


@pytest.mark.parametrize("body", BROKEN)
@pytest.mark.parametrize("action", ["CreateQueue", "SendMessage"])
def test_bodies_that_are_no_json_object(json_sqs: Sqs, action: str, body: bytes) -> None:
    answer = post(json_sqs, body, X_Amz_Target=f"AmazonSQS.{action}")
    assert answer.status == 400
    assert answer.headers["x-amzn-query-error"] == "MalformedInput;Sender"
    assert json.loads(answer.body)["__type"] == "com.amazon.coral.service#SerializationException"


@pytest.mark.parametrize("body", [b"", b"{}", b' {"QueueNamePrefix": null, "New": [1]} '])
def test_empty_bodies_nulls_and_unknown_members(json_sqs: Sqs, body: bytes) -> None:
    answer = post(json_sqs, body, X_Amz_Target="AmazonSQS.ListQueues")
    assert (answer.status, answer.body) == (200, b"{}")


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-amz-json-1.0",
        "application/x-amz-json-1.1",
        "Application/X-AMZ-JSON-1.0;charset=utf-8",
        "application/json",
        "text/plain",
        None,
    ],
)
def test_content_types_with_a_target(json_sqs: Sqs, content_type: str | None) -> None:
    target = "AmazonSQS.ListQueues"
    answer = post(json_sqs, b"{}", X_Amz_Target=target, Content_Type=content_type)
    assert (answer.status, answer.body) == (200, b"{}")


# The Query wire


def test_accept_json_on_a_query_get(query_sqs: Sqs) -> None:
    sqs = query_sqs
    url = sqs.create()
    sqs.send(url)
    headers = {
        "Host": sqs.url.partition("://")[2],
        "Authorization": authorization(sqs.account),
        "Accept": "application/json",
    }

    def ask(**params: str) -> Answer:
        sqs.connection().send(request_bytes("GET", "/?" + urlencode(params), headers))
        return sqs.connection().answer()

    listed = ask(Action="ListQueues")
    assert listed.headers["content-type"] == "application/json"
    answer = json.loads(listed.body)["ListQueuesResponse"]
    assert answer["ListQueuesResult"]["queueUrls"] == [url]
    assert answer["ResponseMetadata"]["RequestId"] == listed.headers["x-amzn-requestid"]
    received = json.loads(ask(Action="ReceiveMessage", QueueUrl=url).body)
    [message] = received["ReceiveMessageResponse"]["ReceiveMessageResult"]["messages"]
    assert message["Body"] == "hello"
    refused = json.loads(ask(Action="GetQueueUrl", QueueName="nope").body)["Error"]
    assert refused["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert refused["Type"] == "Sender"


@pytest.mark.parametrize("version", ["2012-11-05", "2009-02-01", "2011-10-01", ""])
def test_versions(query_sqs: Sqs, version: str) -> None:
    assert form(query_sqs, Action="ListQueues", Version=version).status == 200


def test_lists_with_gaps_in_any_order_and_without_an_index(query_sqs: Sqs) -> None:
    url = query_sqs.create()
    gaps = {
        "SendMessageBatchRequestEntry.7.Id": "b",
        "SendMessageBatchRequestEntry.7.MessageBody": "second",
        "SendMessageBatchRequestEntry.3.MessageBody": "first",
        "SendMessageBatchRequestEntry.3.Id": "a",
    }
    assert form(query_sqs, Action="SendMessageBatch", QueueUrl=url, **gaps).status == 200
    assert query_sqs.bodies(url) == ["first", "second"]
    old = {"Attribute.Name": "DelaySeconds", "Attribute.Value": "7"}
    assert form(query_sqs, Action="SetQueueAttributes", QueueUrl=url, **old).status == 200
    assert query_sqs.attributes(url, "DelaySeconds") == {"DelaySeconds": "7"}
    answer = form(
        query_sqs, Action="GetQueueAttributes", QueueUrl=url, AttributeName="DelaySeconds"
    )
    assert "<Name>DelaySeconds</Name><Value>7</Value>" in answer.text


def test_numbers_that_are_none(query_sqs: Sqs) -> None:
    url = query_sqs.create()
    answer = form(query_sqs, Action="ReceiveMessage", QueueUrl=url, MaxNumberOfMessages="many")
    assert answer.status == 400
    assert read_xml(answer.body)["Error"]["Code"] == "MalformedInput"


@pytest.mark.parametrize("body", [b"%", b"Action=%zz", b"=&=&&", b"Action", b"Action=&Version="])
def test_forms_that_are_none(query_sqs: Sqs, body: bytes) -> None:
    answer = post(query_sqs, body, Content_Type="application/x-www-form-urlencoded")
    assert 400 <= answer.status < 500


def test_text_that_is_not_utf_8(query_sqs: Sqs) -> None:
    url = query_sqs.create()
    for encoded in (b"%ff%fe", b"\xff\xfe"):
        body = urlencode({"Action": "SendMessage", "QueueUrl": url}).encode()
        answer = post(
            query_sqs,
            body + b"&MessageBody=" + encoded,
            Content_Type="application/x-www-form-urlencoded",
        )
        assert (answer.status, Refused(answer).code) == (400, "MalformedInput")
        assert answer.headers["content-type"] == "text/xml"
    assert query_sqs.counts(url) == (0, 0, 0)


def test_an_action_of_a_service_that_is_not_there(query_sqs: Sqs) -> None:
    """In XML, which every client of the Query wire can read."""
    answer = form(query_sqs, Action="GetUser", Version="2010-03-31")
    refused = Refused(answer)
    assert (refused.status, refused.code) == (400, "InvalidAction")
    assert refused.text == "The action GetUser is not valid for this endpoint."


def test_no_action_at_all(query_sqs: Sqs) -> None:
    refused = Refused(form(query_sqs, MessageBody="b"))
    assert (refused.status, refused.code) == (400, "InvalidAction")
    assert refused.text == "The request names no action in the parameter Action."
