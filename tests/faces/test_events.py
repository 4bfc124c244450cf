"""/_admin/events: what happens to the messages of an account, told by whichever process it is."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.cli.processes import children
from tests.faces.channels.client import Channels
from tests.faces.clients import Sqs, authorization
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Background, Server
from tests.faces.sns_client import Sns
from tests.faces.web_hooks import WebHook
from tests.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Two processes on one port: an ask goes to either, and so does what it asks about."""
    with Server("--workers", "2") as running:
        yield running


class Events:
    """The events of the account of a client, from a place on."""

    def __init__(self, client: Sqs | Sns | Scheduler | Channels) -> None:
        self.client = client
        self.after = self.page()["next"]

    def ask(self, method: str = "GET", header: str = "", **params: Any) -> Answer:
        with Connection(self.client.url) as connection:
            self.send(connection, method, header, **params)
            return connection.answer()

    def send(
        self, connection: Connection, method: str = "GET", header: str = "", **params: Any
    ) -> None:
        headers = {
            "Host": connection.host,
            "Authorization": authorization(self.client.account),
            "Accept": header or "*/*",
        }
        path = f"/_admin/events?{urlencode(params)}"
        connection.send(request_bytes(method, path, headers))

    def page(self, method: str = "GET", **params: Any) -> dict[str, Any]:
        answer = self.ask(method, **params)
        assert answer.status == 200, answer.text
        page: dict[str, Any] = json.loads(answer.body)
        return page

    def refusal(self, **params: Any) -> str:
        answer = self.ask(**params)
        assert answer.status == 400, answer.text
        error: str = json.loads(answer.body)["error"]
        return error

    def next(self, count: int = 1, **params: Any) -> list[dict[str, Any]]:
        """So many events, and no other behind the place; it moves on."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            page = self.page(wait=30, after=self.after, **params)
            assert page["events"], found
            assert page["lost"] == 0
            found += page["events"]
            self.after = page["next"]
        assert len(found) == count, found
        return found

    def kinds(self, count: int, **params: Any) -> list[tuple[str, str]]:
        return [(one["kind"], one["queue"]) for one in self.next(count, **params)]


def _redrive(client: Sqs, name: str) -> str:
    arn = f"arn:aws:sqs:us-east-1:{client.account}:{name}"
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})


@pytest.mark.parametrize("is_fifo", [False, True])
def test_messages_are_followed_to_their_end(server: Server, is_fifo: bool) -> None:
    """Also those that a queue hands over as dead letters, which are received once less."""
    with Sqs("json", server.url) as sqs:
        ending = ".fifo" if is_fifo else ""
        create = sqs.create_fifo if is_fifo else sqs.create
        create(f"dead{ending}")
        url = create(f"orders{ending}", RedrivePolicy=_redrive(sqs, f"dead{ending}"))
        events = Events(sqs)
        more = [{"MessageGroupId": group} for group in "ab"] if is_fifo else [{}, {}]
        ids = [sqs.send(url, f"{n}", **more[n])["MessageId"] for n in range(2)]
        first, second = sqs.receive(url, VisibilityTimeout=1)
        sqs.delete(url, first)
        server.advance(2)
        assert sqs.receive(url) == []
        found = events.next(6)
        assert {one["queue"] for one in found} == {f"orders{ending}"}
        assert [(one["kind"], one["message_id"]) for one in found] == [
            *[("sent", one) for one in ids],
            *[("received", one["MessageId"]) for one in (first, second)],
            ("deleted", first["MessageId"]),
            ("dead_lettered", second["MessageId"]),
        ]
        assert [one.get("receive_count") for one in found[2:4]] == [1, 1]
        assert found[5]["dead_letter_queue"] == f"dead{ending}"
        # The dead letter is a message of the other queue now.
        [letter] = sqs.receive(sqs.url_of(f"dead{ending}"))
        sqs.delete(sqs.url_of(f"dead{ending}"), letter)
        assert events.kinds(2) == [("received", f"dead{ending}"), ("deleted", f"dead{ending}")]


def test_a_receive_that_waits_is_an_event_of_the_send(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        url = sqs.create()
        events = Events(sqs)
        waiting = Background(sqs.receive, url, WaitTimeSeconds=20)
        server.until_parked()
        sqs.send(url)
        assert [one["kind"] for one in events.next(2)] == ["sent", "received"]
        waiting.result()


@pytest.mark.parametrize("kind", ["standard", "fifo", "urgent"])
def test_expired_messages_differ_from_deleted_ones(server: Server, kind: str) -> None:
    """A worker expires them by the clock of the account: after 15 s at most, or at once if the
    message has its own expiry."""
    with Channels(server.url) as channels, Sqs("json", server.url, channels.account) as sqs:
        events = Events(sqs)
        if kind == "urgent":
            channels.publish("orders", priority=5, ttl=60)
        else:
            create = sqs.create_fifo if kind == "fifo" else sqs.create
            url = create("orders.fifo" if kind == "fifo" else "orders", MessageRetentionPeriod="60")
            sqs.send(url, **({"MessageGroupId": "a"} if kind == "fifo" else {}))
        [sent] = events.next()
        server.advance(61)
        [expired] = events.next()
        assert expired["kind"] == "expired"
        assert expired["message_id"] == sent["message_id"]
        assert expired["at"] > sent["at"]


def test_purged_and_moved_messages_are_deleted_and_sent(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        dead = sqs.create("dead")
        url = sqs.create("orders", RedrivePolicy=_redrive(sqs, "dead"))
        sqs.send(dead)
        events = Events(sqs)
        sqs.call("StartMessageMoveTask", SourceArn=sqs.arn(dead), DestinationArn=sqs.arn(url))
        assert sorted(events.kinds(2)) == [("deleted", "dead"), ("sent", "orders")]
        sqs.call("PurgeQueue", QueueUrl=url)
        assert events.kinds(1) == [("deleted", "orders")]
        sqs.send(url)
        assert events.kinds(1) == [("sent", "orders")]
        # Nobody deletes the messages of a deleted queue: they go with it.
        sqs.call("DeleteQueue", QueueUrl=url)
        assert events.page(quiet=300, after=events.after)["quiet"]


def test_web_hooks_and_schedules(server: Server, hook: WebHook) -> None:
    with Sns("query", server.url) as sns:
        events = Events(sns)
        topic = sns.create()
        sns.subscribe(topic, "http", hook.url)
        asked: dict[str, Any] = {"kind": "delivered,failed", "topic": "news"}
        [confirmation] = events.next(**asked)
        token = hook.next().envelope["Token"]
        sns.call("ConfirmSubscription", TopicArn=topic, Token=token)
        hook.statuses.append(400)
        ids = [sns.publish(topic)["MessageId"]]
        [failed] = events.next(**asked)
        ids.append(sns.publish(topic)["MessageId"])
        [delivered] = events.next(**asked)
    assert [one["message_id"] for one in (failed, delivered)] == ids
    assert [one["status"] for one in (confirmation, failed, delivered)] == [200, 400, 200]
    assert failed["kind"] == "failed"
    assert delivered["endpoint"] == hook.url
    assert delivered["attempt"] == 1
    scheduler = Scheduler(server.url)
    try:
        with Sqs("json", server.url, scheduler.account) as sqs:
            sqs.create("q")
            events = Events(scheduler)
            scheduler.create(ScheduleExpression="rate(1 minute)")
            server.advance(60)
            [fired] = events.next(kind="fired", queue="q")
            assert (fired["schedule"], fired["attempt"]) == ("one", 1)
            # Behind a gap, if this process heard of the recording late.
            sent = [one for one in events.page(kind="sent")["events"] if one["kind"] == "sent"]
            assert [one["queue"] for one in sent] == ["q"]
    finally:
        scheduler.close()


def test_waits_end_when_it_happens(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        url = sqs.create()
        events = Events(sqs)
        message_id = sqs.send(url)["MessageId"]
        [message] = sqs.receive(url)
        asked = {"kind": "deleted", "queue": "orders", "message_id": message_id.upper()}
        assert events.page(**asked)["events"] == []
        assert events.page(**asked, wait=1)["events"] == []
        waiting = Background(events.page, **asked, wait=30)
        sqs.delete(url, message)
        [deleted] = waiting.result()["events"]
        assert deleted["message_id"] == message_id
        # Whoever asks later is told at once.
        assert events.page(**asked, wait=30)["events"] == [deleted]
        assert events.page(kind="deleted", queue="others", wait=1)["events"] == []


def test_quiet_is_a_question(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        url = sqs.create()
        events = Events(sqs)
        sqs.send(url)
        events.next()
        assert events.page(quiet=100) == events.page(quiet=100, after=events.after)
        assert events.page(quiet=100)["quiet"]
        waiting = Background(events.page, quiet=20_000, kind="sent", after=events.after)
        sqs.receive(url)
        sqs.send(url)
        page = waiting.result()
        assert [one["kind"] for one in page["events"]] == ["sent"]
        assert not page["quiet"]
        # With more time, it waits for the silence behind what came.
        page = events.page(quiet=200, wait=30, after=events.after)
        assert [one["kind"] for one in page["events"]] == ["received", "sent"]
        assert page["quiet"]


def test_a_stream_goes_on_where_it_ended(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        url = sqs.create()
        events = Events(sqs)
        with Connection(sqs.url) as connection:
            events.send(connection, header="text/event-stream", kind="sent")
            assert "content-type: text/event-stream" in connection.head()
            first = sqs.send(url)["MessageId"]
            connection.some(first.encode())
            cursor = events.page()["next"]
        seconds = [sqs.send(url)["MessageId"] for _ in range(300)]
        with Connection(sqs.url) as connection:
            headers = {
                "Host": connection.host,
                "Authorization": authorization(sqs.account),
                "Accept": "text/event-stream",
                "Last-Event-ID": cursor,
            }
            connection.send(request_bytes("GET", "/_admin/events", headers))
            connection.some(seconds[-1].encode())
            assert events.page("DELETE") == {"account": sqs.account, "recording": False}
            connection.some(b"event: end")
        assert "another recording" in events.refusal(after=cursor)
        assert events.page("PUT")["recording"]
        assert events.page()["events"] == []


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"kind": "exploded"}, "kind is one of sent, received"),
        ({"kind": "sent,"}, "kind is one of sent, received"),
        ({"wait": "1e9"}, "`wait` is '1e9': a whole number is expected"),
        ({"wait": "61"}, "`wait` is refused: allowed is 0 to 60"),
        ({"quiet": "0"}, "`quiet` is refused: allowed is 1 to 60000"),
        ({"limit": "10001"}, "`limit` is refused: allowed is 1 to 10000"),
        ({"after": "never"}, "after is the cursor"),
        ({"after": "1.2"}, "after is the cursor"),
        ({"after": "1.--2.3"}, "after is the cursor"),
        ({"after": "\u0663.1.1"}, "after is the cursor"),
        ({"after": f"1.1.{'9' * 30}"}, "after is the cursor"),
        ({"after": "0.0.0"}, "another recording"),
        ({"account": "12"}, "`account` is refused"),
        ({"queue": "\0"}, "NUL character"),
        ({"queue": ""}, "`queue` is refused"),
        ({"queues": "orders"}, "`queues` is not known. Known are `account`"),
    ],
)
def test_bad_questions_are_refused(server: Server, params: dict[str, str], text: str) -> None:
    with Sqs("json", server.url) as sqs:
        assert text in Events(sqs).refusal(**params)


def test_places_of_the_future_and_strangers_are_refused(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        events = Events(sqs)
        recording = events.after.partition(".")[0]
        assert "another recording" in events.refusal(after=f"{recording}.99999.99")
        assert events.ask("PATCH").status == 405
        assert events.ask("OPTIONS").headers["allow"] == "DELETE, GET, HEAD, OPTIONS, POST, PUT"
        with Connection(sqs.url) as connection:
            events.send(connection, "HEAD", header="text/event-stream")
            assert connection.answer(to_head=True).headers["content-type"] == "application/json"
        with Connection(sqs.url) as connection:
            connection.send(request_bytes("GET", "/_admin/events", {"Host": connection.host}))
            assert connection.answer().status == 403


def test_a_killed_process_takes_nothing_of_the_others() -> None:
    """The process in its place knows no earlier events, and says so."""
    with Server("--workers", "2") as server, Sqs("json", server.url) as sqs:
        url = sqs.create()
        events = Events(sqs)
        sent = [sqs.send(url)["MessageId"] for _ in range(3)]
        events.next(3)
        first, _ = children(server.process.pid)
        os.kill(first, signal.SIGKILL)
        until(
            lambda: children(server.process.pid),
            lambda found: len(found) == 2 and first not in found,
        )
        with Sqs("json", server.url, sqs.account) as other:
            sent.append(other.send(url)["MessageId"])

        def is_unknown() -> bool:
            page = events.page(wait=30, after=events.after)
            ids = [one.get("message_id") for one in page["events"]]
            if page["lost"] == 0:
                assert ids == sent[3:]
                return False
            assert page["lost"] is None
            assert page["events"][0]["kind"] == "gap"
            assert ids[1:] == sent[3:] or not ids[1:]
            return True

        until(is_unknown)
