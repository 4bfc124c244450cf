"""Each refusal of Publish and PublishBatch (docs/contract/sns.md 3.5), on both wires and ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faces.clients import Refused
from tests.faces.connections import Answer
from tests.faces.servers import Server
from tests.faces.sns_client import PUBLISH_WIRES, Sns
from tests.faces.test_mobile import application, device, outbox
from tests.faces.test_publish import RAW, binary, text

INVALID = "Invalid parameter: "
STRUCTURE = f"{INVALID}Message Structure - "
INEXPRESSIBLE = f"{INVALID}Message Reason: the message has characters that XML cannot express"
NAME_OF = " was found in the message attribute name. Can only include alphanumeric characters, "
NAME_TEXT = f"{NAME_OF}hyphens, underscores, or dots."
TYPE_TEXT = (
    "The message attribute 'n' has an invalid message attribute type, the set of supported type "
    "prefixes is Binary, Number, and String."
)
ID_TEXT = " can only include alphanumeric and punctuation characters. 1 to 128 in length"


def missing(member: str) -> str:
    return (
        f"1 validation error detected: Value null at '{member}' failed to satisfy constraint: "
        "Member must not be null"
    )


def no_value(data_type: str) -> str:
    return (
        "The message attribute 'n' must contain non-empty message attribute value for message "
        f"attribute type '{data_type}'."
    )


def other_field(data_type: str, field: str) -> str:
    return f"The message attribute 'n' with type '{data_type}' must use field '{field}'."


def number(text: str) -> dict[str, str]:
    return {"DataType": "Number", "StringValue": text}


# Members beside Message, and the text of the refusal.
INVALID_MEMBERS: list[tuple[dict[str, Any], str]] = [
    ({"Message": ""}, f"{INVALID}Empty message"),
    ({"Message": "x" * 262_145}, f"{INVALID}Message too long"),
    ({"Message": "\u00fc" * 131_073}, f"{INVALID}Message too long"),
    ({"Message": "a\0b"}, INEXPRESSIBLE),
    ({"Message": "a\x1fb"}, INEXPRESSIBLE),
    ({"Message": "a\ufffeb"}, INEXPRESSIBLE),
    ({"Message": "a\uffffb"}, INEXPRESSIBLE),
    ({"Subject": ""}, f"{INVALID}Subject"),
    ({"Subject": "s" * 101}, f"{INVALID}Subject"),
    *[
        ({"Subject": f"a{character}b"}, f"{INVALID}Subject")
        for character in "\n\r\t\0\x1b\x7f\ufffe\uffff"
    ],
    ({"MessageStructure": "xml"}, f"{INVALID}MessageStructure"),
    ({"MessageStructure": "json"}, f"{STRUCTURE}JSON message body failed to parse"),
    (
        {"MessageStructure": "json", "Message": "["},
        f"{STRUCTURE}JSON message body failed to parse",
    ),
    (
        {"MessageStructure": "json", "Message": '["default"]'},
        f"{STRUCTURE}JSON message body failed to parse",
    ),
    (
        {"MessageStructure": "json", "Message": "[" * 100_000},
        f"{STRUCTURE}JSON message body failed to parse",
    ),
    (
        {"MessageStructure": "json", "Message": '{"default": "\\ud800"}'},
        f"{STRUCTURE}JSON message body failed to parse",
    ),
    (
        {"MessageStructure": "json", "Message": '{"sqs": "x"}'},
        f"{STRUCTURE}No default entry in JSON message body",
    ),
    (
        {"MessageStructure": "json", "Message": '{"default": 1}'},
        f"{STRUCTURE}No default entry in JSON message body",
    ),
    (
        {"MessageStructure": "json", "Message": '{"default": null}'},
        f"{STRUCTURE}No default entry in JSON message body",
    ),
    ({"MessageStructure": "json", "Message": '{"default": "\\u0000"}'}, INEXPRESSIBLE),
    (
        {"MessageStructure": "json", "Message": '{"default": "x", "sqs": "\\ufffe"}'},
        INEXPRESSIBLE,
    ),
    (
        {"MessageDeduplicationId": "d"},
        f"{INVALID}MessageDeduplicationId Reason: The request includes MessageDeduplicationId "
        "parameter that is not valid for this topic type",
    ),
    ({"MessageGroupId": ""}, f"{INVALID}MessageGroupId Reason: MessageGroupId{ID_TEXT}"),
    ({"MessageGroupId": "g" * 129}, f"{INVALID}MessageGroupId Reason: MessageGroupId{ID_TEXT}"),
    ({"MessageGroupId": "a\0"}, f"{INVALID}MessageGroupId Reason: MessageGroupId{ID_TEXT}"),
]
GROUP = {"MessageGroupId": "g"}
FIFO_MEMBERS: list[tuple[dict[str, Any], str]] = [
    ({}, f"{INVALID}The MessageGroupId parameter is required for FIFO topics"),
    (
        {"MessageGroupId": "", "MessageDeduplicationId": "d"},
        f"{INVALID}The MessageGroupId parameter is required for FIFO topics",
    ),
    (
        GROUP,
        f"{INVALID}The topic should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly",
    ),
    *[
        (
            GROUP | {"MessageDeduplicationId": value},
            f"{INVALID}MessageDeduplicationId Reason: MessageDeduplicationId{ID_TEXT}",
        )
        for value in ("", "d" * 129, "a b", "\u00fc", "a\0", "\ufffe")
    ],
]
ATTRIBUTES: list[tuple[dict[str, Any], str]] = [
    *[
        ({"n": {"DataType": data_type}}, no_value(data_type))
        for data_type in ("String", "Number", "Binary", "String.Array", "Number.int")
    ],
    ({"n": text("")}, no_value("String")),
    ({"n": binary(b"")}, no_value("Binary")),
    ({"n": text("x", "Binary")}, other_field("Binary", "Binary")),
    ({"n": binary(b"x") | {"DataType": "String"}}, other_field("String", "String")),
    ({"n": binary(b"x") | {"DataType": "Number"}}, other_field("Number", "String")),
    *[
        ({"n": text("x", data_type)}, TYPE_TEXT)
        for data_type in ("", "string", "Text", "List", ".String", "String\0", "Bool.String")
    ],
    *[
        ({name: text("x")}, f"Invalid non-alphanumeric character '#x{code}'{NAME_TEXT}")
        for name, code in (
            ("a^b", "5E"),
            ("a b", "20"),
            ("n\0", "0"),
            ("\ufffe", "FFFE"),
        )
    ],
    ({".n": text("x")}, "Invalid message attribute name starting with character '.' was found."),
    ({"n.": text("x")}, "Invalid message attribute name ending with character '.' was found."),
    ({"n..m": text("x")}, "Message attribute name can not have successive '.' character."),
    (
        {"n" * 257: text("x")},
        "Length of message attribute name must be less than 256 bytes.",
    ),
    ({"": text("x")}, "The message attribute name must not be empty."),
    *[
        ({"n": number(value)}, "Could not cast message attribute 'n' value to number.")
        for value in ("one", "1_0", "\u0663", "NaN", "1e999999999", " 1", "0x10")
    ],
    ({"n": text("a\0")}, "The message attribute 'n' has characters that XML cannot express."),
    ({"n": text("\uffff")}, "The message attribute 'n' has characters that XML cannot express."),
]


def assert_refused(refused: Refused, code: str, text: str, status: int = 400) -> None:
    assert (refused.status, refused.code, refused.text) == (status, code, text)
    assert refused.fault == "Sender"


def short(value: object) -> str:
    return re.sub(r"(.)\1{9,}", r"\1\1", ascii(value))[:60]


class Listening:
    """A topic of which a queue hears everything. Where nothing comes of a test, many may use it."""

    def __init__(self, sns: Sns, topic: str, queue: str) -> None:
        self.sns = sns
        self.topic = topic
        self.url = sns.subscribe_queue(topic, queue, **RAW)
        sns.warm(topic)

    def refusal(self, **members: Any) -> Refused:
        return self.sns.refusal("Publish", **{"TopicArn": self.topic, "Message": "x"} | members)

    def batch_refusal(self, entries: list[dict[str, Any]]) -> Refused:
        members = {"TopicArn": self.topic, "PublishBatchRequestEntries": entries}
        return self.sns.refusal("PublishBatch", **members)

    def nothing_came(self) -> None:
        assert self.sns.sqs().bodies(self.url) == []


@pytest.fixture(scope="module", params=PUBLISH_WIRES)
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Sns]:
    with Sns(request.param, server.url) as sns:
        yield sns


@pytest.fixture(scope="module")
def news(client: Sns) -> Listening:
    return Listening(client, client.create(), "orders")


@pytest.fixture(scope="module")
def ordered(client: Sns) -> Listening:
    topic = client.create_fifo(ContentBasedDeduplication="false")
    return Listening(client, topic, "orders.fifo")


@pytest.mark.parametrize(("members", "reason"), INVALID_MEMBERS, ids=short)
def test_invalid_members(news: Listening, members: dict[str, Any], reason: str) -> None:
    assert_refused(news.refusal(**members), "InvalidParameter", reason)
    news.nothing_came()


# An empty message alone fails alone.
@pytest.mark.parametrize(("members", "reason"), INVALID_MEMBERS[1:], ids=short)
def test_an_entry_with_invalid_members_fails_its_batch(
    news: Listening, members: dict[str, Any], reason: str
) -> None:
    entries: list[dict[str, Any]] = [{"Id": "good", "Message": "x"}]
    entries.append({"Id": "bad", "Message": "x"} | members)
    refused = news.batch_refusal(entries)
    if reason.endswith("too long"):
        text = "The length of all the messages put together is more than the limit."
        assert_refused(refused, "BatchRequestTooLong", text)
    else:
        assert_refused(refused, "InvalidParameter", reason)
    news.nothing_came()


@pytest.mark.parametrize(("members", "reason"), FIFO_MEMBERS, ids=short)
def test_ids_of_fifo_topics(ordered: Listening, members: dict[str, Any], reason: str) -> None:
    assert_refused(ordered.refusal(**members), "InvalidParameter", reason)
    good = {"Id": "good", "Message": "x", **GROUP, "MessageDeduplicationId": "good"}
    refused = ordered.batch_refusal([good, {"Id": "bad", "Message": "x"} | members])
    assert_refused(refused, "InvalidParameter", reason)
    ordered.nothing_came()


@pytest.mark.parametrize(("attributes", "reason"), ATTRIBUTES, ids=short)
def test_attributes(news: Listening, attributes: dict[str, Any], reason: str) -> None:
    refused = news.refusal(MessageAttributes=attributes)
    if "\0" in reason:
        reason = reason.replace("\0", "\ufffd")
    assert_refused(refused, "ParameterValueInvalid", reason)
    entries: list[dict[str, Any]] = [
        {"Id": "good", "Message": "x"},
        {"Id": "bad", "Message": "x", "MessageAttributes": attributes},
    ]
    assert_refused(news.batch_refusal(entries), "ParameterValueInvalid", reason)
    news.nothing_came()


def test_what_must_be_there(news: Listening) -> None:
    publisher = news.sns
    refused = publisher.refusal("Publish", TopicArn=news.topic)
    assert_refused(refused, "ValidationError", missing("message"))
    refused = news.refusal(MessageAttributes={"n": {"StringValue": "x"}})
    assert_refused(refused, "ValidationError", missing("messageAttributes.n.member.dataType"))
    refused = publisher.refusal("Publish", Message="x")
    assert_refused(
        refused,
        "InvalidParameter",
        f"{INVALID}TopicArn or TargetArn Reason: no value for required parameter",
    )
    refused = publisher.refusal("PublishBatch", TopicArn=news.topic)
    assert_refused(refused, "ValidationError", missing("publishBatchRequestEntries"))
    for entry, member in (({"Id": "a"}, "message"), ({"Message": "x"}, "id")):
        path = f"publishBatchRequestEntries.2.member.{member}"
        refused = news.batch_refusal([{"Id": "good", "Message": "x"}, entry])
        assert_refused(refused, "ValidationError", missing(path))
    entries = {"PublishBatchRequestEntries": [{"Id": "a", "Message": "x"}]}
    refused = publisher.refusal("PublishBatch", **entries)
    assert_refused(refused, "ValidationError", missing("topicArn"))
    news.nothing_came()


def test_an_empty_batch(news: Listening) -> None:
    publisher = news.sns
    more = {"PublishBatchRequestEntries": ""} if publisher.is_query else {}
    members: dict[str, Any] = {"TopicArn": news.topic}
    if not publisher.is_query:
        members["PublishBatchRequestEntries"] = []
    answer = publisher.ask("PublishBatch", members, more=more)
    assert_refused(
        Refused(answer),
        "ValidationError",
        "1 validation error detected: Value '[]' at 'publishBatchRequestEntries' failed to "
        "satisfy constraint: Member must have length greater than or equal to 1",
    )


def test_batches(news: Listening) -> None:
    entries = [{"Id": str(count), "Message": "x"} for count in range(11)]
    refused = news.batch_refusal(entries)
    text = "The batch request contains more entries than permissible."
    assert_refused(refused, "TooManyEntriesInBatchRequest", text)
    refused = news.batch_refusal([{"Id": "a", "Message": "x"}] * 2)
    text = "Two or more batch entries in the request have the same Id."
    assert_refused(refused, "BatchEntryIdsNotDistinct", text)
    beginning = "The Id of a batch entry in the batch request"
    for bad, ending in (
        ("", "contains an impermissible character: "),
        ("a b", "contains an impermissible character: a b"),
        ("\u00fc", "contains an impermissible character: \u00fc"),
        ("<&>", "contains an impermissible character: <&>"),
        ("i" * 81, "is too long: " + "i" * 81),
    ):
        refused = news.batch_refusal([{"Id": "a", "Message": "x"}, {"Id": bad, "Message": "x"}])
        assert_refused(refused, "InvalidBatchEntryId", f"{beginning} {ending}")
    news.nothing_came()


@pytest.mark.parametrize("entry_id", ["a\0", "\ufffe", "a\x1b", "a\r\nb"])
def test_what_is_quoted_can_be_read_on_both_wires(news: Listening, entry_id: str) -> None:
    refused = news.batch_refusal([{"Id": entry_id, "Message": "x"}])
    assert (refused.status, refused.code) == (400, "InvalidBatchEntryId")
    phone = news.sns.refusal("Publish", PhoneNumber=entry_id, Message="x")
    assert (phone.status, phone.code) == (400, "InvalidParameter")


@pytest.mark.parametrize(
    ("arn", "status", "code", "text"),
    [
        (
            "news",
            400,
            "InvalidParameter",
            f"{INVALID}TopicArn Reason: An ARN must have at least 6 elements, not 1",
        ),
        (
            "arn:aws:sns:us-east-1:1",
            400,
            "InvalidParameter",
            f"{INVALID}TopicArn Reason: An ARN must have at least 6 elements, not 5",
        ),
        ("arn:aws:sqs:us-east-1:{}:news", 400, "InvalidParameter", f"{INVALID}TopicArn"),
        ("arn:aws:sns:eu-west-1:{}:news", 400, "InvalidParameter", f"{INVALID}TopicArn"),
        ("arn:aws:sns:us-east-1:{}:ne\0ws", 400, "InvalidParameter", f"{INVALID}TopicArn"),
        ("arn:aws:sns:us-east-1:{}:" + "n" * 257, 400, "InvalidParameter", f"{INVALID}TopicArn"),
        ("arn:aws:sns:us-east-1:{}:missing", 404, "NotFound", "Topic does not exist"),
        ("arn:aws:sns:us-east-1:000000000001:news", 404, "NotFound", "Topic does not exist"),
    ],
)
def test_arns(news: Listening, arn: str, status: int, code: str, text: str) -> None:
    sns = news.sns
    arn = arn.format(sns.account)
    refused = sns.refusal("Publish", TopicArn=arn, Message="x")
    assert_refused(refused, code, text, status)
    entries = [{"Id": "a", "Message": "x"}]
    refused = sns.refusal("PublishBatch", TopicArn=arn, PublishBatchRequestEntries=entries)
    assert_refused(refused, code, text, status)
    refused = sns.refusal("Publish", TargetArn=arn, Message="x")
    assert_refused(refused, code, text.replace("TopicArn", "TargetArn"), status)


def test_a_topic_of_another_region_is_not_ours(news: Listening) -> None:
    """Also when the gateway knows it well."""
    with news.sns.other(region="eu-west-1") as elsewhere:
        refused = elsewhere.refusal("Publish", TopicArn=news.topic, Message="x")
        assert_refused(refused, "InvalidParameter", f"{INVALID}TopicArn")
    news.nothing_came()


def test_a_deleted_topic(publisher: Sns) -> None:
    news = Listening(publisher, publisher.create(), "orders")
    news.sns.publish(news.topic, "before")
    news.sns.call("DeleteTopic", TopicArn=news.topic)
    assert_refused(news.refusal(), "NotFound", "Topic does not exist", 404)
    assert news.sns.sqs().bodies(news.url) == ["before"]


def test_endpoints_and_phone_numbers(publisher: Sns) -> None:
    app = application(publisher)
    endpoint = device(publisher, app)
    gone = endpoint[:-12] + "0" * 12
    assert_refused(
        publisher.refusal("Publish", TargetArn=gone, Message="x"),
        "InvalidParameter",
        f"{INVALID}TargetArn Reason: No endpoint found for the target arn specified",
    )
    for bad in ("x", "+1555x", "+0", "+1 555 01 00", "+\u0661555010000"):
        assert_refused(
            publisher.refusal("Publish", PhoneNumber=bad, Message="x"),
            "InvalidParameter",
            f"{INVALID}PhoneNumber Reason: {bad} is not valid to publish to",
        )
    for target in ({"TargetArn": endpoint}, {"PhoneNumber": "+15550100"}):
        for members, reason in INVALID_MEMBERS:
            if "MessageGroupId" in members or "MessageDeduplicationId" in members:
                continue
            refused = publisher.refusal("Publish", **{"Message": "x"} | target | members)
            if "PhoneNumber" in target and len(members.get("Message", "")) > 1600:
                # A text message is shorter than others: which rule it breaks first is no matter.
                assert refused.code == "InvalidParameter"
            else:
                assert_refused(refused, "InvalidParameter", reason)
        for attributes, reason in ATTRIBUTES:
            members = {"Message": "x", "MessageAttributes": attributes} | target
            refused = publisher.refusal("Publish", **members)
            assert_refused(refused, "ParameterValueInvalid", reason)
    assert outbox(publisher) == []


def _raw(sns: Sns, body: bytes) -> Answer:
    members: dict[str, Any] = {"TopicArn": "x", "Message": "x"}
    head, _, _ = sns.encode("Publish", members).partition(b"\r\n\r\n")
    head = re.sub(rb"(?i)content-length: \d+", b"Content-Length: %d" % len(body), head)
    connection = sns.connection()
    connection.send(head + b"\r\n\r\n" + body)
    return connection.answer()


def test_text_that_is_not_unicode(news: Listening) -> None:
    """Lone surrogates, and bytes that are no UTF-8."""
    sns, topic = news.sns, news.topic.encode()
    if sns.is_query:
        form = b"Action=Publish&Version=2010-03-31&TopicArn=" + topic
        bodies = [
            form + b"&" + name + b"=" + value
            for name in (b"Message", b"Message=x&Subject", b"Message=x&MessageGroupId")
            for value in (b"%ED%A0%80", b"%ff", b"\xff", b"%C0%80", b"%f5%80%80%80")
        ]
    else:
        bodies = [
            b'{"TopicArn":"%b","Message":%b}' % (topic, value)
            for value in (b'"\\ud800"', b'"\xff"', b'"a', b"1", b'{"a":1}', b'"\xed\xa0\x80"')
        ]
    for body in bodies:
        answer = _raw(sns, body)
        assert 400 <= answer.status < 500, (body, answer)
        assert Refused(answer).code
    news.nothing_came()
