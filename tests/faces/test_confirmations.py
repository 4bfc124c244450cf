"""The links of confirmations as browsers and web hooks follow them: unsigned, on bare sockets."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

from tests.faces.clients import authorization, read_xml
from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.web_hooks import WebHook

XMLNS = "http://sns.amazonaws.com/doc/2010-03-31/"
READER = "reader@example.com"
UNKNOWN = "0123456789abcdef" * 18


@pytest.fixture
def topic(sns: Sns) -> str:
    return sns.create()


def confirmation_of_mail(sns: Sns, number: int = -1) -> dict[str, str]:
    """Return a confirmation from the outbox, by default the last one."""
    with Connection(sns.url) as connection:
        headers = {
            "Host": connection.host,
            "Authorization": authorization(sns.account, sns.region, "sns"),
        }
        connection.send(request_bytes("GET", "/_admin/outbox", headers))
        messages = json.loads(connection.answer().body)["messages"]
    envelope: dict[str, str] = json.loads(messages[number]["body"])
    return envelope


def follow(sns: Sns, link: str) -> Answer:
    """GET a link as it is written, without credentials."""
    assert link.startswith(f"{sns.url}/?")
    return fetch(sns.url, link.removeprefix(sns.url))


def element(answer: Answer, name: str) -> str:
    found = read_xml(answer.body)
    text: str = (found.get("Error") or found["ConfirmSubscriptionResult"])[name]
    return text


def assert_refused(answer: Answer, status: int, code: str, text: str) -> None:
    assert (answer.status, element(answer, "Code")) == (status, code)
    assert element(answer, "Message") == text


def unsubscribe_link(sns: Sns, arn: str) -> str:
    return f"{sns.url}/?Action=Unsubscribe&SubscriptionArn={arn}"


def test_links_of_a_mail(sns: Sns, topic: str) -> None:
    arn = sns.subscribe(topic, "email", READER)
    envelope = confirmation_of_mail(sns)
    assert envelope["SubscribeURL"] == (
        f"{sns.url}/?Action=ConfirmSubscription&TopicArn={topic}&Token={envelope['Token']}"
    )
    assert envelope["Signature"]

    for _ in range(2):
        # A link cannot ask for what a signed call may.
        answer = follow(sns, f"{envelope['SubscribeURL']}&AuthenticateOnUnsubscribe=true")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/xml"
        assert answer.text == (
            f'<ConfirmSubscriptionResponse xmlns="{XMLNS}"><ConfirmSubscriptionResult>'
            f"<SubscriptionArn>{arn}</SubscriptionArn></ConfirmSubscriptionResult>"
            f"<ResponseMetadata><RequestId>{answer.headers['x-amzn-requestid']}</RequestId>"
            "</ResponseMetadata></ConfirmSubscriptionResponse>"
        )
    assert sns.subscription(arn)["ConfirmationWasAuthenticated"] == "false"

    answer = follow(sns, unsubscribe_link(sns, arn))
    assert answer.status == 200
    assert answer.text == (
        f'<UnsubscribeResponse xmlns="{XMLNS}"><ResponseMetadata><RequestId>'
        f"{answer.headers['x-amzn-requestid']}</RequestId></ResponseMetadata>"
        "</UnsubscribeResponse>"
    )
    assert sns.refusal("GetSubscriptionAttributes", SubscriptionArn=arn).status == 404
    assert follow(sns, unsubscribe_link(sns, arn)).status == 200

    back = confirmation_of_mail(sns)
    assert back["Type"] == "UnsubscribeConfirmation"
    assert element(follow(sns, back["SubscribeURL"]), "SubscriptionArn") == arn
    assert sns.subscription(arn)["PendingConfirmation"] == "false"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_following_a_link_does_what_it_says(sns: Sns, topic: str, method: str) -> None:
    arn = sns.subscribe(topic, "email", READER)
    follow(sns, confirmation_of_mail(sns)["SubscribeURL"])
    link = unsubscribe_link(sns, arn).removeprefix(sns.url)
    assert fetch(sns.url, link, method).status == 400
    assert sns.subscription(arn)["PendingConfirmation"] == "false"


def test_looking_at_a_link_is_not_following_it(sns: Sns, topic: str) -> None:
    """Mail readers and link checkers send HEAD."""
    arn = sns.subscribe(topic, "email", READER)
    follow(sns, confirmation_of_mail(sns)["SubscribeURL"])
    link = unsubscribe_link(sns, arn).removeprefix(sns.url)
    with Connection(sns.url) as connection:
        connection.send(request_bytes("HEAD", link, {"Host": connection.host}))
        assert connection.answer(to_head=True).status == 400
    assert sns.subscription(arn)["PendingConfirmation"] == "false"


def test_links_of_a_web_hook(sns: Sns, topic: str, hook: WebHook) -> None:
    arn = sns.subscribe(topic, "http", hook.url)
    asked = hook.next()
    assert asked.path == "/news"
    assert asked.headers["x-amz-sns-message-type"] == "SubscriptionConfirmation"
    assert asked.headers["x-amz-sns-topic-arn"] == topic
    assert asked.envelope["Signature"]
    assert element(follow(sns, asked.envelope["SubscribeURL"]), "SubscriptionArn") == arn

    assert follow(sns, unsubscribe_link(sns, arn)).status == 200

    told = hook.next()
    assert told.headers["x-amz-sns-message-type"] == "UnsubscribeConfirmation"
    assert told.headers["x-amz-sns-subscription-arn"] == arn
    assert told.envelope["Token"] != asked.envelope["Token"]
    assert told.envelope["Message"] == (
        f"You have chosen to deactivate subscription {arn}.\nTo cancel this operation and restore "
        "the subscription, visit the SubscribeURL included in this message."
    )
    assert sns.attributes(topic)["SubscriptionsDeleted"] == "1"
    assert element(follow(sns, told.envelope["SubscribeURL"]), "SubscriptionArn") == arn
    sns.publish(topic, "you are back")
    assert hook.next().envelope["Message"] == "you are back"


def test_pending_web_hook_is_asked_again(sns: Sns, topic: str, hook: WebHook) -> None:
    sns.subscribe(topic, "http", hook.url)
    first = hook.next().envelope
    sns.subscribe(topic, "http", hook.url)
    assert hook.next().envelope["Token"] == first["Token"]


@pytest.mark.parametrize("asked", [None, "false", "true", "True"])
def test_signed_confirmation_may_ask_for_authentication(
    sns: Sns, topic: str, asked: str | None
) -> None:
    arn = sns.subscribe(topic, "email", READER)
    members = {"TopicArn": topic, "Token": confirmation_of_mail(sns)["Token"]}
    more = {} if asked is None else {"AuthenticateOnUnsubscribe": asked}

    found = sns.call("ConfirmSubscription", **members, **more)

    assert found == {"SubscriptionArn": arn}
    assert sns.subscription(arn)["ConfirmationWasAuthenticated"] == "true"
    answer = follow(sns, unsubscribe_link(sns, arn))
    if asked in {"true", "True"}:
        assert (answer.status, element(answer, "Code")) == (403, "AuthorizationError")
        sns.call("Unsubscribe", SubscriptionArn=arn)
    assert sns.refusal("GetSubscriptionAttributes", SubscriptionArn=arn).status == 404


def test_unsigned_link_does_not_end_a_queues_subscription(sns: Sns, topic: str) -> None:
    arn = sns.subscribe(topic, "sqs", f"arn:aws:sqs:us-east-1:{sns.account}:orders")
    answer = follow(sns, unsubscribe_link(sns, arn))
    assert (answer.status, element(answer, "Code")) == (403, "AuthorizationError")
    assert sns.subscription(arn)["SubscriptionArn"] == arn


def test_links_may_be_posted_and_encoded(sns: Sns, topic: str) -> None:
    arn = sns.subscribe(topic, "email", READER)
    envelope = confirmation_of_mail(sns)
    parameters = urlencode(
        {"Action": "ConfirmSubscription", "TopicArn": topic, "Token": envelope["Token"]}
    )

    for answer in (
        fetch(sns.url, f"/?{parameters}"),
        fetch(sns.url, f"/?{parameters}", "POST"),
        fetch(sns.url, "/", "POST", parameters.encode()),
        fetch(sns.url, f"/?{parameters}&Version=2010-03-31"),
    ):
        assert answer.status == 200
        assert element(answer, "SubscriptionArn") == arn


def test_unsigned_errors(sns: Sns, topic: str) -> None:
    arn = sns.subscribe(topic, "email", READER)
    token = confirmation_of_mail(sns)["Token"]
    confirm = f"{sns.url}/?Action=ConfirmSubscription"
    missing = (
        "1 validation error detected: Value null at '{}' failed to satisfy constraint: Member "
        "must not be null"
    )
    for link, code, text in (
        (f"{confirm}&TopicArn={topic}", "ValidationError", missing.format("token")),
        (f"{confirm}&Token={token}", "ValidationError", missing.format("topicArn")),
        *(
            (f"{confirm}&TopicArn={topic}&Token={wrong}", "InvalidParameter", "Invalid token")
            for wrong in ("x", "abc", "g" * 288, "a" * 2000, "%00" * 288, "%C3%A9" * 288)
        ),
        *(
            (
                f"{confirm}&TopicArn={topic}&Token={unknown}",
                "InvalidParameter",
                "Invalid parameter: Token",
            )
            for unknown in (UNKNOWN, token[:-1] + "01"[token[-1] == "0"], token.upper())
        ),
        *(
            (
                f"{confirm}&TopicArn={wrong}&Token={token}",
                "InvalidParameter",
                "Invalid parameter: Topic",
            )
            for wrong in ("", "news", "arn:aws:sqs:us-east-1:1:n", "%00")
        ),
        (
            f"{confirm}&TopicArn={topic.replace('us-east-1', 'eu-west-1')}&Token={token}",
            "InvalidParameter",
            "Invalid parameter: Topic",
        ),
        (
            f"{sns.url}/?Action=Unsubscribe",
            "InvalidParameter",
            "Invalid parameter: SubscriptionArn Reason: no value for required parameter",
        ),
        (
            unsubscribe_link(sns, "news"),
            "InvalidParameter",
            "Invalid parameter: SubscriptionArn Reason: An ARN must have at least 6 elements, "
            "not 1",
        ),
        (unsubscribe_link(sns, topic), "InvalidParameter", "Invalid parameter: SubscriptionId"),
    ):
        assert_refused(follow(sns, link), 400, code, text)
    assert follow(sns, unsubscribe_link(sns, arn)).status == 400
    # The token decides, not the name of the topic.
    answer = follow(sns, f"{confirm}&TopicArn={sns.topic_arn('none')}&Token={token}")
    assert element(answer, "SubscriptionArn") == arn


@pytest.mark.parametrize("action", ["Subscribe", "GetSubscriptionAttributes", "ListSubscriptions"])
def test_everything_else_needs_credentials(server: Server, action: str) -> None:
    answer = fetch(server.url, f"/?Action={action}&Version=2010-03-31")
    assert (answer.status, element(answer, "Code")) == (403, "MissingAuthenticationToken")


def test_tokens_end_after_two_days(server: Server, query_sns: Sns) -> None:
    arn = query_sns.subscribe(query_sns.create(), "email", READER)
    link = confirmation_of_mail(query_sns)["SubscribeURL"]
    server.advance(2 * 24 * 3600)

    assert_refused(follow(query_sns, link), 400, "InvalidParameter", "Invalid parameter: Token")
    assert query_sns.refusal("GetSubscriptionAttributes", SubscriptionArn=arn).status == 404
    assert query_sns.call("ListSubscriptions")["Subscriptions"] == []
    # Its attributes do not stand in the way of a new one, either.
    topic, _, _ = arn.rpartition(":")
    assert query_sns.subscribe(topic, "email", READER, FilterPolicy='{"a": ["b"]}') != arn
