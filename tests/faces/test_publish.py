"""Publishing over both wires and both ways through the gateway: what succeeds, and what arrives."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import md5
from typing import Any
from urllib.parse import urlencode

import pytest

from queuegate.protocol import sns_envelopes
from tests.faces.connections import fetch
from tests.faces.servers import Server
from tests.faces.sns_client import PUBLISH_WIRES, Sns
from tests.faces.test_mobile import application, device, outbox

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RAW = {"RawMessageDelivery": "true"}
BYTES = 262_144
# What JSON and XML escape, or might mistake for something of their own.
ODD_TEXTS = [
    'say "hi" \\ / \\u0041 </Message> & <![CDATA[ ]]> %41 +',
    "tab\tline\nreturn\rboth\r\n",
    "\u00fc \u4e2d \U0001f4a5 \u2028\u2029\u0085 \ud7ff\ue000\ufffd",
    '\n  "Signature" : "",\n',
    " leading and trailing ",
    "\u007f\u0080\u009f",
    "{} [] null",
]


def text(value: str, data_type: str = "String") -> dict[str, str]:
    return {"DataType": data_type, "StringValue": value}


def binary(value: bytes) -> dict[str, Any]:
    return {"DataType": "Binary", "BinaryValue": value}


def envelopes(sns: Sns, url: str) -> list[dict[str, Any]]:
    return [json.loads(body) for body in sns.sqs().bodies(url)]


def test_publish_answers_with_an_id(publisher: Sns) -> None:
    topic = publisher.warm(publisher.create())
    url = publisher.subscribe_queue(topic, "orders", **RAW)
    publisher.warm(topic)
    answers = [publisher.publish(topic, message) for message in ("one", "two")]
    assert [list(answer) for answer in answers] == [["MessageId"]] * 2
    assert all(UUID.fullmatch(answer["MessageId"]) for answer in answers)
    assert publisher.sqs().bodies(url) == ["one", "two"]


def test_the_bytes_of_an_answer(publisher: Sns) -> None:
    topic = publisher.warm(publisher.create())
    for entries in (None, [{"Id": "a", "Message": "x"}, {"Id": "b", "Message": ""}]):
        if entries is None:
            answer = publisher.ask("Publish", {"TopicArn": topic, "Message": "x"})
        else:
            members = {"TopicArn": topic, "PublishBatchRequestEntries": entries}
            answer = publisher.ask("PublishBatch", members)
        assert answer.status == 200
        shown = UUID.sub("ID", answer.text).replace("\n", "")
        if not publisher.is_query:
            assert answer.headers["content-type"] == "application/x-amz-json-1.0"
            wanted: Any = {"MessageId": "ID"}
            if entries:
                failed = {
                    "Id": "b",
                    "Code": "InvalidParameter",
                    "Message": "Invalid parameter: Empty message",
                    "SenderFault": True,
                }
                wanted = {"Failed": [failed], "Successful": [{"Id": "a", **wanted}]}
            assert json.loads(shown) == wanted
            continue
        assert answer.headers["content-type"] == "text/xml"
        action = "PublishBatch" if entries else "Publish"
        result = "<MessageId>ID</MessageId>"
        if entries:
            result = (
                "<Failed><member><Code>InvalidParameter</Code>"
                "<Message>Invalid parameter: Empty message</Message>"
                "<SenderFault>true</SenderFault><Id>b</Id></member></Failed>"
                "<Successful><member><MessageId>ID</MessageId><Id>a</Id></member></Successful>"
            )
        inner = re.sub(r"<(/?)(\w+)[^>]*>", r"<\1\2>", shown.partition("?>")[2] or shown)
        # The order, too, is recorded (docs/contract/protocol.md 1.3).
        assert re.findall(r"<\w+>[^<]*</\w+>", result) == [
            part for part in re.findall(r"<\w+>[^<]*</\w+>", inner) if "RequestId" not in part
        ]
        assert 'xmlns="http://sns.amazonaws.com/doc/2010-03-31/"' in shown
        assert inner.startswith(f"<{action}Response><{action}Result>")
        assert inner.endswith(
            f"</{action}Result><ResponseMetadata><RequestId>ID</RequestId></ResponseMetadata>"
            f"</{action}Response>"
        )
        assert f"<RequestId>{answer.headers['x-amzn-requestid']}</RequestId>" in answer.text


def test_a_fifo_topic_answers_with_a_number(publisher: Sns) -> None:
    topic = publisher.create_fifo()
    url = publisher.subscribe_queue(topic, "orders.fifo")
    publisher.warm(topic)
    one = publisher.publish(topic, "one", MessageGroupId="g")
    again = publisher.publish(topic, "one", MessageGroupId="g")
    two = publisher.publish(topic, "two", MessageGroupId="g", MessageDeduplicationId="d")
    assert again == one
    assert one["SequenceNumber"] < two["SequenceNumber"]
    assert all(re.fullmatch(r"1000[0-9]{16}", each["SequenceNumber"]) for each in (one, two))
    found = envelopes(publisher, url)
    assert [one["Message"] for one in found] == ["one", "two"]
    assert [each["SequenceNumber"] for each in found] == [
        each["SequenceNumber"] for each in (one, two)
    ]
    assert not {"Signature", "SigningCertURL", "SignatureVersion"} & found[0].keys()


def test_a_batch_answers_entry_by_entry(publisher: Sns) -> None:
    topic = publisher.create_fifo()
    url = publisher.subscribe_queue(topic, "orders.fifo", **RAW)
    publisher.warm(topic)
    entries = [
        {"Message": message, "MessageGroupId": group}
        for message, group in (("a", "g"), ("", "h"), ("b", "g"), ("a", "g"))
    ]
    answer = publisher.publish_batch(topic, *entries)
    assert [one["Id"] for one in answer["Successful"]] == ["0", "2", "3"]
    first, second, same = answer["Successful"]
    assert (same["MessageId"], same["SequenceNumber"]) == (
        first["MessageId"],
        first["SequenceNumber"],
    )
    assert first["SequenceNumber"] < second["SequenceNumber"]
    assert answer["Failed"] == [
        {
            "Id": "1",
            "Code": "InvalidParameter",
            "Message": "Invalid parameter: Empty message",
            "SenderFault": True,
        }
    ]
    assert publisher.sqs().bodies(url) == ["a", "b"]


def test_a_batch_on_a_fifo_topic_closes_a_group_behind_what_failed(publisher: Sns) -> None:
    """The failed entries, corrected and published again, keep every group in order."""
    topic = publisher.create_fifo()
    url = publisher.subscribe_queue(topic, "orders.fifo", **RAW)
    publisher.warm(topic)
    groups = "ghggh"
    entries = [{"Message": f"{n}", "MessageGroupId": group} for n, group in enumerate(groups)]
    answer = publisher.publish_batch(
        topic, *entries[:2], entries[2] | {"Message": ""}, *entries[3:]
    )
    assert [one["Id"] for one in answer["Successful"]] == ["0", "1", "4"]
    failed = [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]]
    assert failed == [("2", "InvalidParameter", True), ("3", "PriorRequestNotComplete", False)]
    assert "message group g " in answer["Failed"][1]["Message"]
    publisher.publish_batch(topic, *entries[2:4])
    assert sorted(publisher.sqs().bodies(url), key=lambda n: groups[int(n)]) == [*"02314"]


def test_a_batch_on_a_standard_topic_closes_no_group(publisher: Sns) -> None:
    topic = publisher.warm(publisher.create())
    entries = [{"Message": message, "MessageGroupId": "g"} for message in ("a", "", "b")]
    answer = publisher.publish_batch(topic, *entries)
    assert [one["Id"] for one in answer["Successful"]] == ["0", "2"]


def test_a_batch_in_which_every_entry_fails_is_a_success(publisher: Sns) -> None:
    topic = publisher.warm(publisher.create())
    answer = publisher.publish_batch(topic, {"Message": ""}, {"Message": ""})
    assert [one["Id"] for one in answer["Failed"]] == ["0", "1"]
    assert answer.get("Successful", []) == []


def test_ten_entries_with_the_longest_ids(publisher: Sns) -> None:
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders", **RAW)
    publisher.warm(topic)
    ids = [f"{number}" + "A-_9" * 19 + "xyz" for number in range(10)]
    assert {len(each) for each in ids} == {80}
    answer = publisher.publish_batch(topic, *[{"Id": each, "Message": each} for each in ids])
    assert [one["Id"] for one in answer["Successful"]] == ids
    assert publisher.sqs().bodies(url) == ids


def test_target_arn_may_be_a_topic(publisher: Sns) -> None:
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders", **RAW)
    publisher.warm(topic)
    assert publisher.call("Publish", TargetArn=topic, Message="x")["MessageId"]
    assert publisher.sqs().bodies(url) == ["x"]


def test_phone_numbers_and_endpoints_go_to_the_outbox(publisher: Sns) -> None:
    endpoint = device(publisher, application(publisher))
    texts = json.dumps({"default": "d", "GCM": "for GCM", "sms": "for phones"})
    more: dict[str, Any] = {
        "Message": texts,
        "MessageStructure": "json",
        "Subject": "about",
        "MessageAttributes": {"n": text("1", "Number")},
    }
    pushed = publisher.call("Publish", TargetArn=endpoint, **more)
    sent = publisher.call("Publish", PhoneNumber="+15550100", **more)
    found = {one["protocol"]: one for one in outbox(publisher)}
    assert {name: (one["destination"], one["body"]) for name, one in found.items()} == {
        "application": (endpoint, "for GCM"),
        "sms": ("+15550100", "for phones"),
    }
    assert found["application"]["message_id"] == pushed["MessageId"]
    assert found["sms"]["message_id"] == sent["MessageId"]


def test_subscribed_endpoints_get_the_text_of_their_platform(publisher: Sns) -> None:
    topic = publisher.create()
    apps = {name: application(publisher, name, name) for name in ("GCM", "APNS")}
    for name, app in apps.items():
        publisher.subscribe(topic, "application", device(publisher, app, f"{name}-token"))
    publisher.warm(topic)
    texts = {"default": "d", "GCM": "for GCM", "application": "nobody's"}
    publisher.publish(topic, json.dumps(texts), MessageStructure="json")
    assert sorted(one["body"] for one in outbox(publisher)) == ["d", "for GCM"]


def test_other_accounts_topics_may_be_published_to(publisher: Sns) -> None:
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders")
    with publisher.other(account="999999999999") as other:
        other.warm(topic)
        other.publish(topic, "from elsewhere")
    [envelope] = envelopes(publisher, url)
    assert (envelope["Message"], envelope["TopicArn"]) == ("from elsewhere", topic)


@pytest.mark.parametrize("message", ODD_TEXTS)
def test_texts_arrive_as_they_were_published(publisher: Sns, message: str) -> None:
    topic = publisher.create()
    plain = publisher.subscribe_queue(topic, "plain", **RAW)
    wrapped = publisher.subscribe_queue(topic, "wrapped")
    publisher.warm(topic)
    subject = re.sub(r"[\x00-\x1f\x7f]", "-", message)[:100]
    attributes = {"odd": text(message), "bytes": binary(bytes(range(256)))}
    publisher.publish(topic, message, Subject=subject, MessageAttributes=attributes)
    for wire in ("json", "query"):
        sqs = publisher.sqs()
        with sqs.other(wire=wire) as reader:
            [received] = reader.receive(plain, MessageAttributeNames=["All"], VisibilityTimeout=0)
            assert received["Body"] == message
            assert received["MessageAttributes"] == attributes
            [received] = reader.receive(wrapped, VisibilityTimeout=0)
            assert received["MD5OfBody"] == md5(received["Body"].encode()).hexdigest()
        envelope = json.loads(received["Body"])
        assert (envelope["Message"], envelope["Subject"]) == (message, subject)
        assert envelope["MessageAttributes"] == {
            "odd": {"Type": "String", "Value": message},
            "bytes": {"Type": "Binary", "Value": b64encode(bytes(range(256))).decode()},
        }
        pem = fetch(publisher.url, "/" + envelope["SigningCertURL"].rpartition("/")[2]).text
        assert sns_envelopes.verify(pem, envelope)


def test_limits_at_the_edge(publisher: Sns) -> None:
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders", **RAW)
    publisher.warm(topic)
    name = "n" * 256
    attributes = {name: text("v" * 100), "b": binary(b"\0" * 50)}
    taken = len(name) + len("String") + 100 + 1 + len("Binary") + 50
    longest = "\u00fc" * ((BYTES - taken) // 2) + "x" * ((BYTES - taken) % 2)
    more: dict[str, Any] = {"MessageAttributes": attributes, "Subject": "\u00fc" * 100}
    publisher.publish(topic, longest, **more)
    [received] = publisher.sqs().receive(url, MessageAttributeNames=["All"])
    assert received["Body"] == longest
    assert received["MessageAttributes"] == attributes
    refused = publisher.refusal("Publish", TopicArn=topic, Message=longest + "x", **more)
    assert (refused.code, refused.text) == (
        "InvalidParameter",
        "Invalid parameter: Message too long",
    )
    half = {"Message": longest[: len(longest) // 2]}
    assert len(publisher.publish_batch(topic, half, half)["Successful"]) == 2
    entries = [{"Id": each, **half} for each in ("a", "b", "c")]
    refused = publisher.refusal("PublishBatch", TopicArn=topic, PublishBatchRequestEntries=entries)
    assert (refused.status, refused.code, refused.text) == (
        400,
        "BatchRequestTooLong",
        "The length of all the messages put together is more than the limit.",
    )
    assert len(publisher.sqs().receive(url)) == 2


def test_links_lead_where_the_request_came_from(publisher: Sns) -> None:
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders")
    publisher.warm(topic)
    headers = {"Host": "sns.localhost"}
    members = {"TopicArn": topic, "Message": "x"}
    assert publisher.ask("Publish", members, headers=headers).status == 200
    publisher.publish(topic, "y")
    named, plain = envelopes(publisher, url)
    for envelope, base in ((named, "http://sns.localhost"), (plain, publisher.url)):
        assert envelope["UnsubscribeURL"].startswith(f"{base}/?Action=Unsubscribe&Sub")
        assert re.fullmatch(
            re.escape(base) + r"/SimpleNotificationService-[0-9a-f]{32}\.pem",
            envelope["SigningCertURL"],
        )


@pytest.mark.parametrize("value", ['a"b', "a\\b", 'x","Type":"y', "\u00fc\u0085", "a b", "{}"])
def test_no_header_breaks_an_envelope(publisher: Sns, value: str) -> None:
    topic = publisher.create()
    wrapped = publisher.subscribe_queue(topic, "wrapped")
    publisher.warm(topic)
    for name in ("Host", "X-Forwarded-Proto", "X-Amzn-Trace-Id"):
        members = {"TopicArn": topic, "Message": name}
        # What cannot be a host ends its connection.
        with publisher.other() as other:
            answer = other.ask("Publish", members, headers={name: value})
        assert answer.status in (200, 400), answer
    for envelope in envelopes(publisher, wrapped):
        assert envelope["Type"] == "Notification"
        assert sns_envelopes.string_to_sign(envelope)


def test_the_trace_id_is_passed_on(publisher: Sns) -> None:
    topic = publisher.create()
    urls = [publisher.subscribe_queue(topic, "plain", **RAW)]
    urls.append(publisher.subscribe_queue(topic, "wrapped"))
    publisher.warm(topic)
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    entries = [{"Id": "a", "Message": "y"}]
    headers = {"X-Amzn-Trace-Id": trace}
    publisher.ask("Publish", {"TopicArn": topic, "Message": "x"}, headers=headers)
    members = {"TopicArn": topic, "PublishBatchRequestEntries": entries}
    publisher.ask("PublishBatch", members, headers=headers)
    for url in urls:
        received = publisher.sqs().receive(url, AttributeNames=["All"])
        assert [one["Attributes"]["AWSTraceHeader"] for one in received] == [trace] * 2


@pytest.mark.parametrize("member", ["TopicArn", "TargetArn"])
def test_an_empty_target_beside_a_topic_is_none(publisher: Sns, member: str) -> None:
    topic = publisher.warm(publisher.create())
    empty = {"PhoneNumber": "", "TopicArn": "", "TargetArn": ""}
    members = empty | {member: topic, "Message": "x"}
    assert publisher.decode("Publish", publisher.ask("Publish", members))["MessageId"]


def test_the_configured_address_goes_into_links() -> None:
    base = "https://queues.example.com"
    # The gateway tells its configured address, where it is not to be reached from here.
    with Server(QUEUEGATE_BASE_URL=base) as server:
        for wire in PUBLISH_WIRES:
            with Sns(wire, server.listens_at) as sns:
                topic = sns.create()
                url = sns.subscribe_queue(topic, "orders")
                sns.warm(topic)
                headers = {"X-Forwarded-Proto": "ftp"}
                sns.ask("Publish", {"TopicArn": topic, "Message": "x"}, headers=headers)
                [envelope] = envelopes(sns, url)
                assert envelope["UnsubscribeURL"].startswith(f"{base}/?Action=Unsubscribe")
                assert envelope["SigningCertURL"].startswith(f"{base}/SimpleNotif")


def test_an_attribute_shows_the_field_of_its_type(publisher: Sns) -> None:
    """Both fields are given: the type says which one counts."""
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders")
    publisher.warm(topic)
    both = {"StringValue": "text", "BinaryValue": b"bytes"}
    attributes = {"s": {"DataType": "String", **both}, "b": {"DataType": "Binary", **both}}
    publisher.publish(topic, "x", MessageAttributes=attributes)
    [envelope] = envelopes(publisher, url)
    assert envelope["MessageAttributes"] == {
        "s": {"Type": "String", "Value": "text"},
        "b": {"Type": "Binary", "Value": b64encode(b"bytes").decode()},
    }


def test_an_empty_text_for_queues_is_no_error_of_ours(publisher: Sns) -> None:
    topic = publisher.create()
    url = publisher.subscribe_queue(topic, "orders", **RAW)
    publisher.warm(topic)
    publisher.publish(topic, '{"default": "d", "sqs": ""}', MessageStructure="json")
    publisher.publish(topic, "behind")
    assert publisher.sqs().bodies(url)[-1] == "behind"


def test_envelopes_are_signed_wherever_they_were_moved(query_sns: Sns) -> None:
    """Their signature is made when they are received: also from a dead-letter queue, and back."""
    sqs = query_sns.sqs()
    dead = sqs.create("dead")
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1})
    url = sqs.create("orders", RedrivePolicy=policy)
    topic = query_sns.create()
    query_sns.subscribe(topic, "sqs", sqs.arn(url))
    query_sns.publish(topic, "x")
    first = sqs.bodies(url, VisibilityTimeout=0)
    assert json.loads(first[0])["Signature"]
    assert sqs.bodies(url) == []
    assert sqs.bodies(dead, VisibilityTimeout=0) == first
    sqs.call("StartMessageMoveTask", SourceArn=sqs.arn(dead))
    assert sqs.bodies(url, WaitTimeSeconds=20) == first


def test_a_publish_by_a_link(query_sns: Sns) -> None:
    """Query strings carry actions, too, and may ask for an answer in JSON."""
    topic = query_sns.create()
    url = query_sns.subscribe_queue(topic, "orders", **RAW)
    credential = f"{query_sns.account}/20260101/us-east-1/sns/aws4_request"
    more = {
        "Action": "Publish",
        "Version": "2010-03-31",
        "TopicArn": topic,
        "Message": "by link",
        "X-Amz-Credential": credential,
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Date": "20260101T000000Z",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Expires": "60",
        "X-Amz-Signature": "0" * 64,
    }
    answer = fetch(query_sns.url, f"/?{urlencode(more)}")
    assert query_sns.decode("Publish", answer)["MessageId"]
    assert query_sns.sqs().bodies(url) == ["by link"]
