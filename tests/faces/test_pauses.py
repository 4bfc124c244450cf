"""Pauses over REST and by the command, as owners of queues and web hooks see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queuegate.gateway.cli import main
from tests.databases import Databases
from tests.faces.clients import Sqs, new_account
from tests.faces.rest.client import Rest
from tests.faces.servers import Background, Server
from tests.faces.sns_client import Sns
from tests.faces.web_hooks import WebHook

_SOON_SECONDS = 0.2


@pytest.fixture
def other() -> Iterator[WebHook]:
    """The web hook of another topic: when it gets something, workers have looked."""
    with WebHook() as hook:
        yield hook


def subscribe(rest: Rest, hook: WebHook, pattern: str = "orders") -> dict[str, Any]:
    path = f"/v1/events/{pattern}/subscriptions"
    made: dict[str, Any] = rest.call("POST", path, {"endpoint": hook.url}, status=201)
    return made


def publish(rest: Rest, key: str, message: str) -> None:
    rest.call("POST", f"/v1/events/{key}", {"message": message}, status=201)


@pytest.mark.parametrize("what", ["topic", "subscription"])
def test_deliveries_wait_and_copies_go_on(
    rest: Rest, hook: WebHook, other: WebHook, what: str
) -> None:
    made = subscribe(rest, hook)
    rest.create("jobs")
    rest.call("POST", "/v1/events/orders/subscriptions", {"queue_name": "jobs"}, status=201)
    subscribe(rest, other, "others")
    place = f"/v1/events/orders/subscriptions/{made['id']}"
    pause = f"{place if what == 'subscription' else '/v1/topics/orders'}/pause"
    for _ in range(2):
        rest.call("PUT", pause, status=204)
    publish(rest, "orders", "a")
    assert rest.messages("jobs", wait=5) == ["a"]
    for message in ("b", "c"):
        publish(rest, "others", message)
        assert other.next().body == f'"{message}"'.encode()
    assert hook.next_within(_SOON_SECONDS) is None
    shown = rest.call("GET", "/v1/topics/orders")
    [first, _] = rest.call("GET", "/v1/events/orders/subscriptions")
    assert (shown if what == "topic" else first).pop("paused_at")
    assert not {"paused_at"} & {*shown, *first}
    for _ in range(2):
        rest.call("DELETE", pause, status=204)
    assert hook.next().body == b'"a"'
    publish(rest, "orders", "d")
    assert hook.next().body == b'"d"'


def test_a_subscription_without_a_web_hook_cannot_be_paused(rest: Rest) -> None:
    rest.create("jobs")
    body = {"queue_name": "jobs"}
    made = rest.call("POST", "/v1/events/orders/subscriptions", body, status=201)
    place = f"/v1/events/orders/subscriptions/{made['id']}/pause"
    assert "Pause the queue" in rest.refusal("PUT", place)


@pytest.mark.parametrize(
    "place",
    [
        "queues/nowhere",
        "topics/nowhere",
        "events/orders/subscriptions/8f14e45f-ceea-467f-a9d5-1b2c3d4e5f60",
    ],
)
def test_what_is_not_there_is_404(rest: Rest, place: str) -> None:
    for method in ("PUT", "DELETE"):
        assert "does not exist" in rest.refusal(method, f"/v1/{place}/pause", status=404)


@pytest.mark.parametrize("wire", ["json", "query"])
def test_sqs_and_sns_show_no_pause(rest: Rest, wire: str) -> None:
    with Sns(wire, rest.url, rest.account) as sns, Sqs(wire, rest.url, rest.account) as sqs:
        url, topic = sqs.create("jobs"), sns.create("orders")

        def facts() -> list[Any]:
            return [
                sqs.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"]),
                sqs.call("ListQueueTags", QueueUrl=url),
                sns.attributes(topic),
                sns.call("ListTagsForResource", ResourceArn=topic),
            ]

        before = facts()
        rest.call("PUT", "/v1/queues/jobs/pause", status=204)
        rest.call("PUT", "/v1/topics/orders/pause", status=204)
        assert facts() == before
        # Nor does a change of attributes end it.
        sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "31"})
        assert rest.call("GET", "/v1/queues/jobs")["paused_at"]


def test_the_command_pauses_and_resumes(
    rest: Rest, hook: WebHook, capsys: pytest.CaptureFixture[str]
) -> None:
    made = subscribe(rest, hook)
    rest.create("jobs")
    place = ("--url", rest.url, "--account", rest.account)
    arn = made["subscription_arn"]
    pattern_and_id = f"orders:{made['id']}"
    for name in (("queue", "jobs"), ("topic", "orders"), ("subscription", arn)):
        assert main(["pause", *name, *place]) == 0
        assert capsys.readouterr().out == f"The {name[0]} {name[1]} is paused.\n"
    assert rest.call("GET", "/v1/queues/jobs")["paused_at"]
    assert rest.call("GET", "/v1/topics/orders")["paused_at"]
    [shown] = rest.call("GET", "/v1/events/orders/subscriptions")
    assert shown["paused_at"]
    for name in (("queue", "jobs"), ("topic", "orders"), ("subscription", pattern_and_id)):
        assert main(["resume", *name, *place]) == 0
        assert capsys.readouterr().out == f"The {name[0]} {name[1]} is resumed.\n"
    assert "paused_at" not in rest.call("GET", "/v1/queues/jobs")
    publish(rest, "orders", "a")
    assert hook.next().body == b'"a"'
    assert main(["pause", "queue", "nowhere", *place]) == 1
    assert "Queue 'nowhere' does not exist" in capsys.readouterr().err
    assert main(["pause", "queue", "", *place]) == 1
    assert "the name is empty" in capsys.readouterr().err
    for none in ("x", "orders:"):
        assert main(["pause", "subscription", none, *place]) == 1
        assert f"'{none}' is not the ARN of a subscription" in capsys.readouterr().err


def test_a_metric_says_what_is_paused(hook: WebHook) -> None:
    with Server() as server, Rest(server.url) as rest:
        made = subscribe(rest, hook)
        rest.create("jobs")
        rest.create("others")
        rest.call("PUT", "/v1/queues/jobs/pause", status=204)
        rest.call("PUT", "/v1/topics/orders/pause", status=204)
        rest.call("PUT", f"/v1/events/orders/subscriptions/{made['id']}/pause", status=204)
        lines = server.metrics("queuegate_paused").splitlines()
    names = {"queue": "jobs", "topic": "orders", "subscription": f"orders:{made['id']}"}
    expected = [
        f'queuegate_paused{{account="{rest.account}",kind="{kind}",name="{name}",'
        f'region="us-east-1"}} 1.0'
        for kind, name in names.items()
    ]
    assert [line for line in lines if not line.startswith("#")] == expected


def test_one_gateway_resumes_what_another_waits_for(databases: Databases) -> None:
    """A gateway that is restarted knows it, too."""
    account, dsn = new_account(), databases.copy()
    with Server(dsn=dsn) as one, Rest(one.url, account) as rest:
        rest.create("jobs")
        rest.send("jobs", "early")
        rest.call("PUT", "/v1/queues/jobs/pause", status=204)
        with Server(dsn=dsn) as other, Rest(other.url, account) as there:
            assert there.messages("jobs") == []
            poll = Background(there.messages, "jobs", wait=20)
            other.until_parked()
            rest.send("jobs", "late")
            there.send("jobs", "later")
            rest.call("DELETE", "/v1/queues/jobs/pause", status=204)
            assert sorted(poll.result()) == ["early", "late", "later"]
    databases.drop(dsn)
