"""Events over HTTP: publish, subscribe, list, unsubscribe, and what SNS and SQS see of it.

These are the rows about events and subscriptions of docs/seeds.md 1.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from queuegate.protocol import sns_envelopes
from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.rest.client import Rest
from tests.faces.sns_client import Sns
from tests.faces.web_hooks import WebHook

UUID = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def sns(rest: Rest) -> Iterator[Sns]:
    """An SNS client of the same account."""
    with Sns("query", rest.url, rest.account) as client:
        yield client


def place(pattern: str) -> str:
    return f"/v1/events/{quote(pattern, safe='')}/subscriptions"


def subscribe(rest: Rest, pattern: str, **members: Any) -> dict[str, Any]:
    made: dict[str, Any] = rest.call("POST", place(pattern), members, status=201)
    return made


def publish(rest: Rest, key: str, message: Any = "hello", **members: Any) -> dict[str, Any]:
    body = {"message": message} | members
    published: dict[str, Any] = rest.call("POST", f"/v1/events/{key}", body, status=201)
    return published


def of_pattern(rest: Rest, pattern: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rest.call("GET", place(pattern))
    return found


def test_publish_answers_where_the_event_went(rest: Rest, hook: WebHook) -> None:
    rest.create("jobs")
    rest.create("others")
    subscribe(rest, "order.*", queue_name="jobs")
    subscribe(rest, "#", queue_name="others")
    subscribe(rest, "order.#", protocol="http", endpoint=hook.url)
    published = publish(rest, "order.created", {"n": [1, 2.50]}, headers={"a": True, "b": None})
    message_id, copies = published.pop("message_id"), published.pop("messages")
    assert published == {"queues_matched": 2, "deliveries": 1}
    for copy, name in zip(copies, ("jobs", "others"), strict=True):
        [message] = rest.receive(name)
        assert copy == {"queue": name, "id": message["id"]}
        assert message["message"] == {"n": [1, 2.5]}
        assert message["headers"] == {"a": True, "b": None}
    posted = hook.next()
    assert json.loads(posted.body) == {"n": [1, 2.5]}
    assert posted.headers["content-type"] == "application/json"
    assert posted.headers["x-amz-sns-message-id"] == message_id
    assert posted.headers["x-amz-sns-rawdelivery"] == "true"


def test_the_text_of_the_message_is_kept(rest: Rest, sqs_beside: Sqs) -> None:
    rest.create("jobs")
    subscribe(rest, "#", queue_name="jobs")
    raw = b'{"message": {"b" : 1.0e2, "a": "\xc3\xa4\\u00e4"}}'
    assert rest.ask("POST", "/v1/events/a.b", raw=raw).status == 201
    url = sqs_beside.url_of("jobs")
    [message] = sqs_beside.receive(url)
    assert message["Body"] == '{"b" : 1.0e2, "a": "ä\\u00e4"}'


def test_nobody_subscribes_and_that_is_fine(rest: Rest) -> None:
    for message in ("hello", "x" * 262_142):
        published = publish(rest, "nobody.listens", message)
        assert published["queues_matched"] == published["deliveries"] == 0
        assert published["messages"] == []


def test_a_delay_holds_the_event_back(rest: Rest) -> None:
    rest.create("jobs")
    subscribe(rest, "#", queue_name="jobs")
    publish(rest, "a.b", "late", delay=900)
    publish(rest, "a.b", "now", delay=None)
    assert rest.messages("jobs") == ["now"]


def test_sns_publish_reaches_patterns_and_events_reach_sns_subscriptions(
    rest: Rest, sns: Sns
) -> None:
    topic = sns.create("orders")
    url = sns.subscribe_queue(topic, "of-sns")
    rest.create("of-rest")
    subscribe(rest, "*", queue_name="of-rest")
    sns.publish(topic, "from sns")
    publish(rest, "orders", "from rest", headers={"color": "red"})
    assert rest.messages("of-rest") == ["from sns", "from rest"]
    first, second = [json.loads(one["Body"]) for one in sns.sqs().receive(url, 10)]
    assert [first["Message"], second["Message"]] == ["from sns", '"from rest"']
    assert second["MessageAttributes"] == {"color": {"Type": "String", "Value": "red"}}
    assert second["TopicArn"] == topic


def test_a_plain_name_is_a_topic(rest: Rest, sns: Sns) -> None:
    rest.create("jobs")
    made = subscribe(rest, "orders", queue_name="jobs")
    assert sns.call("ListTopics")["Topics"] == [{"TopicArn": sns.topic_arn("orders")}]
    [listed] = sns.call("ListSubscriptions")["Subscriptions"]
    assert listed["SubscriptionArn"] == made["subscription_arn"]
    assert sns.subscription(made["subscription_arn"])["RawMessageDelivery"] == "true"
    sns.publish(sns.topic_arn("orders"), '{"a":1}')
    assert rest.messages("jobs") == [{"a": 1}]
    sns.call("Unsubscribe", SubscriptionArn=made["subscription_arn"])
    assert of_pattern(rest, "orders") == []


def test_sns_does_not_list_patterns(rest: Rest, sns: Sns) -> None:
    rest.create("jobs")
    made = subscribe(rest, "order.#", queue_name="jobs")
    assert sns.call("ListTopics").get("Topics", []) == []
    assert sns.call("ListSubscriptions").get("Subscriptions", []) == []
    assert sns.subscription(made["subscription_arn"])["TopicArn"] == sns.topic_arn("order.#")
    sns.call("Unsubscribe", SubscriptionArn=made["subscription_arn"])
    assert of_pattern(rest, "order.#") == []


def test_a_subscription_is_shown_as_it_was_made(rest: Rest) -> None:
    rest.create("jobs")
    made = subscribe(rest, "order.#", queue_name="jobs")
    key, created_at = made.pop("id"), made.pop("created_at")
    assert created_at.endswith("Z")
    queue_arn = f"arn:aws:sqs:us-east-1:{rest.account}:jobs"
    assert made == {
        "pattern": "order.#",
        "protocol": "sqs",
        "endpoint": queue_arn,
        "queue_name": "jobs",
        "envelope": False,
        "raw": True,
        "is_confirmed": True,
        "subscription_arn": f"arn:aws:sns:us-east-1:{rest.account}:order.#:{key}",
    }
    assert of_pattern(rest, "order.#") == [made | {"id": key, "created_at": created_at}]
    policy = {"healthyRetryPolicy": {"numRetries": 1}}
    shown = subscribe(
        rest,
        "order.#",
        endpoint="https://me:secret@hooks.example/x",
        envelope=True,
        delivery_policy=policy,
        filter_policy={"color": ["red", {"prefix": "b"}]},
        dead_letter_queue="jobs",
    )
    assert (shown["protocol"], shown["queue_name"]) == ("https", None)
    assert shown["endpoint"] == "https://me:****@hooks.example/x"
    assert (shown["envelope"], shown["raw"]) == (True, False)
    assert shown["delivery_policy"]["healthyRetryPolicy"]["numRetries"] == 1
    assert shown["filter_policy"] == {"color": ["red", {"prefix": "b"}]}
    assert shown["filter_policy_scope"] == "MessageAttributes"
    assert shown["dead_letter_queue"] == "jobs"


def test_location_leads_to_what_can_be_deleted(rest: Rest) -> None:
    rest.create("jobs")
    answer = rest.ask("POST", place("a.#.*"), {"queue_name": "jobs"})
    location = answer.headers["location"]
    key = json.loads(answer.body)["id"]
    assert location == f"/v1/events/a.%23.*/subscriptions/{key}"
    assert rest.call("DELETE", location, status=204) is None
    assert rest.refusal("DELETE", location, status=404) == "Subscription does not exist"
    for wrong in (UUID, "x", key.upper(), "%00"):
        status = 400 if wrong == "%00" else 404
        rest.refusal("DELETE", f"{place('a.#.*')}/{wrong}", status=status)


def test_to_subscribe_again_answers_the_same_or_409(rest: Rest) -> None:
    rest.create("jobs")
    made = subscribe(rest, "order.*", queue_name="jobs")
    assert subscribe(rest, "order.*", queue_name="jobs", envelope=False) == made
    text = rest.refusal(
        "POST", place("order.*"), {"queue_name": "jobs", "envelope": True}, status=409
    )
    assert text.startswith("There is a subscription of this endpoint to 'order.*' with other set")
    assert of_pattern(rest, "order.*") == [made]


def test_subscriptions_come_in_pages(rest: Rest) -> None:
    rest.create("jobs")
    for number in range(5):
        subscribe(rest, f"p{number}.*", queue_name="jobs")
        subscribe(rest, "one.*", endpoint=f"https://hooks.example/{number}")
    for path, key in (("/v1/queues/jobs/subscriptions", "pattern"), (place("one.*"), "endpoint")):
        whole = rest.call("GET", path)
        assert len(whole) == 5
        found: list[Any] = []
        following: str | None = f"{path}?limit=2"
        while following:
            answer = rest.ask("GET", following)
            page = json.loads(answer.body)
            assert 1 <= len(page) <= 2
            found += page
            link = answer.headers.get("link")
            following = None if link is None else link[1:].partition(">")[0]
            assert link is None or link.endswith('; rel="next"')
        assert found == whole
        assert [one[key] for one in found] == sorted(one[key] for one in found)


def test_a_queue_lists_patterns_and_topics_of_sns(rest: Rest, sns: Sns) -> None:
    sns.subscribe_queue(sns.create("news"), "jobs")
    subscribe(rest, "order.#", queue_name="jobs")
    subscribe(rest, "plain", queue_name="jobs")
    found = rest.call("GET", "/v1/queues/jobs/subscriptions")
    assert [one["pattern"] for one in found] == ["news", "order.#", "plain"]
    assert [one["envelope"] for one in found] == [True, False, False]
    rest.create("idle")
    assert rest.call("GET", "/v1/queues/idle/subscriptions") == []
    text = rest.refusal("GET", "/v1/queues/gone/subscriptions", status=404)
    assert text == "Queue 'gone' does not exist"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", "/v1/events/a.*", {"message": 1}, 400, "The routing key is not valid"),
        ("POST", "/v1/events/a%20b", {"message": 1}, 400, "The routing key is not valid"),
        ("POST", "/v1/events/a%2Fb", {"message": 1}, 400, "The routing key is not valid"),
        ("POST", "/v1/events/a", {}, 400, "The field `message` is missing."),
        ("POST", "/v1/events/a", {"message": 1, "x": 1}, 400, "The field `x` is not known"),
        ("POST", "/v1/events/a", {"message": 1, "delay": -1}, 400, "`delay` is refused"),
        ("POST", "/v1/events/a", {"message": 1, "delay": 901}, 400, "`delay` is refused"),
        ("POST", "/v1/events/a", {"message": 1, "headers": [1]}, 400, "`headers` is refused"),
        ("POST", "/v1/events/a", {"message": 1, "headers": {"": 1}}, 400, "header name"),
        ("POST", "/v1/events/a", {"message": 1, "headers": {"AWS.x": 1}}, 400, "header name"),
        ("POST", "/v1/events/a", {"message": "x" * 262_143}, 400, "at most 262144"),
        ("GET", "/v1/events/a", None, 405, "GET is not allowed here"),
        ("PUT", "/v1/events/a/subscriptions", None, 405, "PUT is not allowed here"),
        ("POST", "/v1/events/a..b/subscriptions", {"queue_name": "q"}, 400, "The pattern is not"),
        ("GET", "/v1/events/a%20/subscriptions", None, 400, "The pattern is not valid"),
        ("DELETE", f"/v1/events/a%20/subscriptions/{UUID}", None, 400, "The pattern is not valid"),
        ("DELETE", f"/v1/events/a/subscriptions/{UUID}", None, 404, "Subscription does not exist"),
        ("POST", "/v1/events/a/subscriptions", {}, 400, "Say either queue_name or endpoint."),
        ("POST", "/v1/events/a/subscriptions", {"queue_name": 1}, 400, "`queue_name` is refused"),
        (
            "POST",
            "/v1/events/a/subscriptions",
            {"queue_name": "q"},
            404,
            "Queue 'q' does not exist",
        ),
        ("POST", "/v1/events/a/subscriptions", {"endpoint": "x"}, 400, "begins with http"),
        (
            "POST",
            "/v1/events/a/subscriptions",
            {"endpoint": "https://h.example/", "filter_policy": {"a": 1}},
            400,
            "FilterPolicy",
        ),
        (
            "POST",
            "/v1/events/a/subscriptions",
            {"endpoint": "https://h.example/", "delivery_policy": {"x": 1}},
            400,
            "DeliveryPolicy",
        ),
        ("GET", "/v1/events/a/subscriptions?limit=0", None, 400, "`limit`"),
        ("GET", "/v1/events/a/subscriptions?after=x", None, 400, "`after`"),
    ],
)
def test_refusals_teach_and_change_nothing(
    rest: Rest, sns: Sns, method: str, path: str, body: Any, status: int, text: str
) -> None:
    arguments = () if body is None else (body,)
    assert text in rest.refusal(method, path, *arguments, status=status)
    assert sns.call("ListTopics").get("Topics", []) == []


def test_credentials_are_needed(rest: Rest) -> None:
    for method, path in (
        ("POST", "/v1/events/a"),
        ("GET", "/v1/events/a/subscriptions"),
        ("POST", "/v1/events/a/subscriptions"),
        ("DELETE", f"/v1/events/a/subscriptions/{UUID}"),
        ("GET", "/v1/queues/a/subscriptions"),
    ):
        assert fetch(rest.url, path, method).status == 403


# Web hooks


def test_an_envelope_is_signed_and_its_link_ends_the_subscription(
    rest: Rest, hook: WebHook
) -> None:
    """Without credentials, with the wildcards of the pattern in the link; and the way back."""
    made = subscribe(rest, "order.*.#", endpoint=hook.url, envelope=True)
    publish(rest, "order.17.created", {"n": 1})
    posted = hook.next()
    envelope = posted.envelope
    assert envelope["Message"] == '{"n": 1}'
    assert envelope["TopicArn"] == f"arn:aws:sns:us-east-1:{rest.account}:order.17.created"
    assert posted.headers["x-amz-sns-topic-arn"] == envelope["TopicArn"]
    assert posted.headers["x-amz-sns-subscription-arn"] == made["subscription_arn"]
    assert posted.headers["content-type"] == "text/plain; charset=UTF-8"
    certificate = fetch(rest.url, envelope["SigningCertURL"].removeprefix(rest.url))
    assert sns_envelopes.verify(certificate.text, envelope)
    link = envelope["UnsubscribeURL"]
    assert link.endswith(made["subscription_arn"].replace("#", "%23"))
    assert fetch(rest.url, link.removeprefix(rest.url)).status == 200
    assert of_pattern(rest, "order.*.#") == []
    goodbye = hook.next()
    assert goodbye.headers["x-amz-sns-message-type"] == "UnsubscribeConfirmation"
    assert goodbye.headers["x-amz-sns-subscription-arn"] == made["subscription_arn"]
    back = goodbye.envelope["SubscribeURL"]
    assert fetch(rest.url, back.removeprefix(rest.url)).status == 200
    assert [one["id"] for one in of_pattern(rest, "order.*.#")] == [made["id"]]
    assert publish(rest, "order.1")["deliveries"] == 1
    assert hook.next().envelope["Message"] == '"hello"'


def test_an_envelope_in_a_queue_has_such_a_link_too(rest: Rest, sns: Sns) -> None:
    rest.create("jobs")
    subscribe(rest, "#", queue_name="jobs", envelope=True)
    publish(rest, "a.b")
    [envelope] = rest.messages("jobs")
    certificate = fetch(rest.url, envelope["SigningCertURL"].removeprefix(rest.url))
    assert sns_envelopes.verify(certificate.text, envelope)
    assert fetch(rest.url, envelope["UnsubscribeURL"].removeprefix(rest.url)).status == 200
    assert of_pattern(rest, "#") == []
