"""Topics over HTTP: list, look at, publish, as SNS has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faces.rest.client import Rest
from tests.faces.rest.test_events import subscribe
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.web_hooks import WebHook
from tests.waiting import until

MISSING = "Topic does not exist"


@pytest.fixture(params=("json", "query"))
def sns(request: pytest.FixtureRequest, rest: Rest) -> Iterator[Sns]:
    """An SNS client of the same account, on each wire."""
    with Sns(request.param, rest.url, rest.account) as client:
        yield client


def test_topics_are_listed_by_page(rest: Rest, sns: Sns) -> None:
    assert rest.call("GET", "/v1/topics") == []
    arns = [sns.create("a"), sns.create_fifo("b.fifo"), sns.create("c")]
    everything = rest.call("GET", "/v1/topics")
    assert [one["arn"] for one in everything] == arns
    assert [(one["name"], one["fifo"]) for one in everything] == [
        ("a", False),
        ("b.fifo", True),
        ("c", False),
    ]
    found = []
    path: str | None = "/v1/topics?limit=2"
    while path is not None:
        answer = rest.ask("GET", path)
        found.append(json.loads(answer.body))
        link = answer.headers.get("link")
        path = None if link is None else link.partition("<")[2].partition(">")[0]
    assert found == [everything[:2], everything[2:]]


def test_patterns_and_topics_of_others_are_not_listed(rest: Rest, sns: Sns) -> None:
    sns.create("mine")
    rest.create("jobs")
    rest.call("POST", "/v1/events/order.*/subscriptions", {"queue_name": "jobs"}, status=201)
    with Rest(rest.url) as other, Rest(rest.url, rest.account, "eu-west-1") as elsewhere:
        assert other.call("GET", "/v1/topics") == elsewhere.call("GET", "/v1/topics") == []
        assert other.refusal("GET", "/v1/topics/mine", status=404) == MISSING
    assert [one["name"] for one in rest.call("GET", "/v1/topics")] == ["mine"]


def test_a_topic_is_described(rest: Rest, sns: Sns) -> None:
    arn = sns.create("news", DisplayName="News", MaximumMessageSize="2048")
    sns.subscribe_queue(arn, "jobs")
    shown = rest.call("GET", "/v1/topics/news")
    assert shown.pop("created_at")
    assert shown == {
        "name": "news",
        "arn": arn,
        "fifo": False,
        "display_name": "News",
        "content_based_deduplication": False,
        "max_message_bytes": 2048,
        "archive_days": 0,
        "subscriptions_confirmed": 1,
        "subscriptions_pending": 0,
        "subscriptions_deleted": 0,
    }
    sns.create_fifo("news.fifo")
    shown = rest.call("GET", "/v1/topics/news.fifo")
    assert (shown["fifo"], shown["content_based_deduplication"]) == (True, True)


@pytest.mark.parametrize("name", ["nowhere", "a%20b", "order.created", "x" * 257])
def test_a_missing_topic_is_404(rest: Rest, name: str) -> None:
    assert rest.refusal("GET", f"/v1/topics/{name}", status=404) == MISSING
    body = {"message": 1}
    assert rest.refusal("POST", f"/v1/topics/{name}/messages", body, status=404) == MISSING


def test_a_publish_reaches_the_subscriptions(rest: Rest, sns: Sns) -> None:
    arn = sns.create("news")
    enveloped = sns.subscribe_queue(arn, "enveloped")
    raw = sns.subscribe_queue(arn, "raw", RawMessageDelivery="true")
    body = {"message": {"n": 1}, "subject": "One", "headers": {"color": "red", "size": 2}}
    published = rest.call("POST", "/v1/topics/news/messages", body, status=201)
    assert list(published) == ["message_id"]
    [copy] = sns.sqs().call("ReceiveMessage", QueueUrl=enveloped, WaitTimeSeconds=5)["Messages"]
    envelope = json.loads(copy["Body"])
    facts = [envelope[name] for name in ("MessageId", "TopicArn", "Subject", "Message")]
    assert facts == [published["message_id"], arn, "One", '{"n": 1}']
    assert envelope["MessageAttributes"]["color"] == {"Type": "String", "Value": "red"}
    assert envelope["MessageAttributes"]["size"] == {"Type": "Number", "Value": "2"}
    [copy] = rest.receive("raw", wait=5)
    assert (copy["message"], copy["headers"]) == ({"n": 1}, {"color": "red", "size": 2})
    assert raw


def test_a_fifo_topic_answers_the_sequence_number(rest: Rest, sns: Sns) -> None:
    arn = sns.create_fifo("news.fifo", ContentBasedDeduplication="false")
    sns.subscribe_queue(arn, "jobs.fifo", RawMessageDelivery="true")
    path = "/v1/topics/news.fifo/messages"
    ids = {"group_id": "g", "deduplication_id": "1"}
    first = rest.call("POST", path, {"message": 1} | ids, status=201)
    assert list(first) == ["message_id", "sequence_number"]
    assert "0" * 12 not in first["sequence_number"]
    assert rest.call("POST", path, {"message": 2} | ids, status=201) == first
    assert rest.messages("jobs", wait=5) == [1]
    for missing in ids:
        given = {name: value for name, value in ids.items() if name != missing}
        assert rest.refusal("POST", path, {"message": 3} | given)


@pytest.mark.parametrize(
    "members",
    [
        {"subject": ""},
        {"subject": "x" * 101},
        {"subject": "two\nlines"},
        {"subject": "a line\n"},
        {"subject": "\ufffe"},
        {"deduplication_id": "1"},
        {"group_id": "a b"},
        {"headers": {"a b": 1}},
        {"message": "x" * 262_143},
        {"unknown": 1},
    ],
    ids=lambda members: str(members)[:30],
)
def test_what_cannot_be_published_is_refused(
    rest: Rest, sns: Sns, members: dict[str, object]
) -> None:
    arn = sns.create("news")
    sns.subscribe_queue(arn, "jobs", RawMessageDelivery="true")
    body = {"message": 1} | members
    assert rest.refusal("POST", "/v1/topics/news/messages", body)
    rest.call("POST", "/v1/topics/news/messages", {"message": 2, "subject": "é" * 100}, status=201)
    assert rest.messages("jobs", wait=5) == [2]


def test_a_topic_takes_messages_of_its_own_size(rest: Rest, sns: Sns) -> None:
    arn = sns.create("news", MaximumMessageSize="1048576")
    sns.subscribe_queue(arn, "jobs", RawMessageDelivery="true")
    text = "x" * (1_048_576 - 2)
    rest.call("POST", "/v1/topics/news/messages", {"message": text}, status=201)
    assert rest.messages("jobs", wait=5) == [text]
    told = rest.refusal("POST", "/v1/topics/news/messages", {"message": text + "x"})
    assert "1048577 bytes" in told


def test_a_trial_says_whom_a_message_would_reach_and_why_not(rest: Rest, sns: Sns) -> None:
    arn = sns.create("news")
    sns.subscribe_queue(arn, "all")
    sns.subscribe_queue(arn, "some", FilterPolicy='{"kind": ["a"]}')
    body_policy = {"FilterPolicy": '{"order": [{"numeric": [">", 100]}]}'}
    sns.subscribe_queue(arn, "big", FilterPolicyScope="MessageBody", **body_policy)
    gone = sns.subscribe_queue(arn, "gone")
    sns.sqs().call("DeleteQueue", QueueUrl=gone)
    subscribe(rest, "#", queue_name="all", filter_policy={"list": ["y"]})
    sns.subscribe(arn, "email", "somebody@example.com")
    attributes = {"list": {"DataType": "String.Array", "StringValue": '["x", "y"]'}}
    sample = {"message": {"order": 17}, "headers": {"kind": "b"}, "attributes": attributes}
    found = rest.call("POST", "/v1/topics/news/trials", sample)
    shown = found["subscriptions"]
    assert (found["reached"], found["tried"], len(shown)) == (2, 5, 5)
    reasons = {
        (one["endpoint"].rpartition(":")[2], not one["reasons"]): one["reasons"] for one in shown
    }
    assert reasons == {
        ("all", True): [],
        ("some", False): ['attribute `kind` is "b", and the policy wants ["a"]'],
        ("big", False): ['member `order` is 17, and the policy wants [{"numeric":[">",100]}]'],
        ("gone", False): ["the queue does not exist"],
    }
    assert rest.messages("all") == []
    published = {"message": {"order": 17}, "headers": {"kind": "b"}}
    rest.call("POST", "/v1/topics/news/messages", published, status=201)
    assert len(rest.messages("all", wait=5)) == 1


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({}, 400),
        ({"message": 1, "headers": {"AWS.x": 1}}, 400),
        ({"message": 1, "attributes": {"a": {"DataType": "String"}}}, 400),
        ({"message": 1, "attributes": {"a": {"DataType": 1, "StringValue": "x"}}}, 400),
        ({"message": 1, "attributes": {"a": "x"}}, 400),
        ({"message": 1, "unknown": 1}, 400),
        ({"message": "x" * 262_143}, 400),
    ],
    ids=lambda given: str(given)[:40],
)
def test_trials_that_are_refused(
    rest: Rest, sns: Sns, members: dict[str, object], status: int
) -> None:
    sns.create("news")
    assert rest.refusal("POST", "/v1/topics/news/trials", members, status=status)
    assert rest.refusal("POST", "/v1/topics/none/trials", {"message": 1}, status=404) == MISSING


def test_hostile_values_of_a_trial_stay_text(rest: Rest, sns: Sns) -> None:
    arn = sns.create("news")
    sns.subscribe_queue(arn, "some", FilterPolicy='{"<b>\\u202e": ["<script>"]}')
    hostile = {"DataType": "Number", "StringValue": "NaN\x00\u202e"}
    body = {"message": [[[]]], "attributes": {"<b>\u202e": hostile, "": hostile}}
    [one] = rest.call("POST", "/v1/topics/news/trials", body)["subscriptions"]
    assert "has a value that no condition can test" in one["reasons"][0]
    raw = b'{"message": 1, "attributes": {"a": {"DataType": "String", "StringValue": "\\ud800"}}}'
    assert rest.ask("POST", "/v1/topics/news/trials", raw=raw).status in (200, 400)


@pytest.mark.parametrize("name", ["news", "news.fifo"])
def test_subscriptions_come_by_pages(server: Server, name: str) -> None:
    with Rest(server.url) as rest, Sns("json", server.url, rest.account) as sns:
        is_fifo = name.endswith(".fifo")
        topic = sns.create(name, **({"FifoTopic": "true"} if is_fifo else {}))
        page = f"/v1/topics/{name}/subscriptions?limit=2"
        assert rest.call("GET", page) == []
        policy = {"FilterPolicy": '{"kind": ["new"]}'}
        suffix = ".fifo" if is_fifo else ""
        for number in range(3):
            endpoint = f"arn:aws:sqs:us-east-1:{rest.account}:q{number}{suffix}"
            members = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": endpoint}
            sns.call("Subscribe", **members, Attributes=policy)
        shown = []
        while page:
            answer = rest.ask("GET", page)
            shown += json.loads(answer.body)
            page = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
        assert [one["queue_name"] for one in shown] == [f"q{number}{suffix}" for number in range(3)]
        assert {one["is_confirmed"] for one in shown} == {True}
        assert shown[0]["filter_policy"] == {"kind": ["new"]}
        path = f"/v1/topics/{name}/subscriptions"
        for query in ("?limit=0", "?after=x", "?unknown=1"):
            assert rest.refusal("GET", path + query)
        with Rest(rest.url) as stranger:
            assert stranger.refusal("GET", path, status=404) == MISSING


def deliveries(rest: Rest, query: str = "") -> list[dict[str, object]]:
    found: list[dict[str, object]] = rest.call("GET", f"/v1/topics/news/deliveries{query}")
    return found


def test_failed_deliveries_are_listed_and_redriven(server: Server, hook: WebHook) -> None:
    policy = {"healthyRetryPolicy": {"numRetries": 0}}
    with Rest(server.url) as rest, Sns("json", server.url, rest.account) as sns:
        sns.create("news")
        subscribe(rest, "news", endpoint=hook.url, delivery_policy=policy)
        subscribe(rest, "#", endpoint="http://127.0.0.1:1/closed")
        assert deliveries(rest) == []
        hook.statuses += [503, 503]
        for number in range(2):
            body = {"message": number}
            rest.call("POST", "/v1/topics/news/messages", body, status=201)
            assert hook.next()
        failed = until(
            lambda: [one for one in deliveries(rest) if one["state"] == "exhausted"],
            lambda found: len(found) == 2,
        )
        assert {(one["attempts"], one["last_status"], one["due_at"]) for one in failed} == {
            (1, 503, None)
        }
        assert failed[0]["endpoint"] == hook.url
        shown = until(
            lambda: deliveries(rest), lambda found: all(one["last_error"] for one in found)
        )
        assert [one["state"] for one in shown] == ["pending"] * 2 + ["exhausted"] * 2
        assert shown[0]["endpoint"] == "http://127.0.0.1:1/closed"
        assert shown[0]["due_at"]
        assert deliveries(rest, "?limit=1") == [shown[0], shown[2]]
        page = "/v1/topics/news/deliveries?limit=1"
        for expected in ([shown[0], shown[2]], [shown[1], shown[3]], []):
            answer = rest.ask("GET", page)
            assert json.loads(answer.body) == expected
            page = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
        assert page == ""
        for place in ("1.2", "1.2.x", f"{10**17}.0.0", f"{10**16 - 1}.{10**19}.0", "", "-1.0.0"):
            assert rest.refusal("GET", f"/v1/topics/news/deliveries?after={place}"), place
        assert deliveries(rest, f"?after={10**16 - 1}.{10**18 - 1}.{10**18 - 1}") == []
        path = "/v1/topics/news/deliveries/redrive"
        with Rest(rest.url) as stranger:
            assert stranger.refusal("POST", path, {"ids": "all"}, status=404) == MISSING
            assert stranger.refusal("GET", path.rpartition("/")[0], status=404) == MISSING
        for ids in ([], [0], [1 << 63], "some", None):
            assert rest.refusal("POST", path, {"ids": ids})
        first = failed[0]["id"]
        done = {"redriven": 1, "has_more": False}
        assert rest.call("POST", path, {"ids": [first, first, 1 << 62]}) == done
        assert hook.next()
        with ThreadPoolExecutor(4) as threads:
            # Each thread has a connection of its own.
            asked = threads.map(lambda _: rest.call("POST", path, {"ids": "all"}), range(4))
            assert sum(one["redriven"] for one in asked) == 1
        assert hook.next()
        assert hook.next_within(0.3) is None
        until(lambda: deliveries(rest), lambda found: len(found) == 2)
