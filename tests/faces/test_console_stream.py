"""Live figures of queues at /console/stream: rows, readers, rights, and the end of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.servers import Background, Server
from tests.faces.signing import Verifying
from tests.faces.sns_client import Sns
from tests.faces.test_console import ACCOUNT, JSON, ask, create, session_of, sign_in
from tests.waiting import until

NAMES = ("kind", "account", "region", "name", "visible", "flight", "delayed", "oldest", "sent",
         "finished", "dead", "waiting", "read", "paused")  # fmt: skip


class FigureStream:
    """A page that follows figures."""

    def __init__(self, url: str, query: str = "", **headers: str) -> None:
        self.connection = Connection(url)
        self.rows: dict[str, dict[str, Any]] = {}
        self.last: dict[str, Any] = {}
        headers = {"Host": self.connection.host} | headers
        self.connection.send(request_bytes("GET", f"/console/stream{query}", headers))
        assert " 200 " in self.connection.head()

    def __enter__(self) -> FigureStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def next(self) -> list[str]:
        """Read an event; return the names of the rows that it has."""
        self.connection.until(b"data: ")
        self.last = json.loads(self.connection.until(b"\n\n"))
        if self.last.get("whole"):
            self.rows = {}
        changed = {row[3]: dict(zip(NAMES, row, strict=True)) for row in self.last.get("rows", ())}
        self.rows |= changed
        return [*changed]

    def until(self, found: Callable[[dict[str, dict[str, Any]]], object]) -> None:
        """Read until the rows are so."""
        while not found(self.rows):
            self.next()


def bearer(sqs: Sqs) -> dict[str, str]:
    return {"Authorization": f"Bearer {sqs.account}"}


def test_figures_follow_the_queues(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        dead = sqs.create("dead")
        arn = f"arn:aws:sqs:us-east-1:{sqs.account}:dead"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
        url = sqs.create("orders", RedrivePolicy=policy)
        sqs.send(dead)
        with FigureStream(server.url, **bearer(sqs)) as stream:
            assert stream.next() == ["dead", "orders"]
            assert stream.last["next"] is None
            assert stream.rows["orders"]["dead"] == 1
            assert stream.rows["dead"]["dead"] is None
            sqs.send(url)
            sqs.send(url, DelaySeconds=600)
            stream.until(lambda rows: rows["orders"]["visible"] == rows["orders"]["delayed"] == 1)
            assert stream.rows["orders"]["read"] is None
            sqs.receive(url)
            stream.until(lambda rows: rows["orders"]["flight"] == 1)
            assert stream.rows["orders"]["read"] >= stream.rows["orders"]["oldest"]
            sqs.call("DeleteQueue", QueueUrl=dead)
            stream.until(lambda rows: "dead" not in rows)
            assert stream.rows["orders"]["dead"] is None


def test_receives_that_wait_are_listed_by_address(server: Server) -> None:
    with Sqs("json", server.url) as sqs, Sqs("query", server.url, sqs.account) as other:
        url = sqs.create("read")
        waiting = [Background(one.receive, url, 1, WaitTimeSeconds=20) for one in (sqs, other)]
        path = "/v1/queues/read/messages?max=1&wait=20"
        answer = Background(fetch, server.url, path, **bearer(sqs))
        with FigureStream(server.url, "?name=read", **bearer(sqs)) as stream:
            stream.until(lambda rows: rows and rows["read"]["waiting"] == 3)
            assert stream.last["processes"] == 1
            for key, address, left in stream.last["receivers"]:
                assert key
                assert address == "127.0.0.1"
                assert 0 < left <= 20
            for _ in range(3):
                sqs.send(url)
            stream.until(lambda rows: rows["read"]["waiting"] == 0 and rows["read"]["flight"] == 3)
            assert stream.last["receivers"] == []
        assert all(one.result() for one in waiting)
        assert len(json.loads(answer.result().body)) == 1


def test_queues_are_found_by_a_part_of_their_names(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        for name in ("orders", "Orders-dead", "bills"):
            sqs.create(name)
        with FigureStream(server.url, "?find=RDER", **bearer(sqs)) as stream:
            assert sorted(stream.next()) == ["Orders-dead", "orders"]
        first = f"?first={sqs.account}/us-east-1/orders"
        with FigureStream(server.url, first, **bearer(sqs)) as stream:
            assert stream.next() == ["orders"]
        # A place before the account shows nothing of others.
        with FigureStream(server.url, "?first=0/a/b", **bearer(sqs)) as stream:
            assert sorted(stream.next()) == ["Orders-dead", "bills", "orders"]
            assert {row["account"] for row in stream.rows.values()} == {sqs.account}


def test_an_overview_has_each_kind_and_its_figures(server: Server) -> None:
    with Sqs("json", server.url) as sqs, Sns("json", server.url, sqs.account) as sns:
        sqs.create("orders")
        native = {"Content-Type": "application/json", **bearer(sqs)}

        def post(path: str, content: object, method: str = "POST") -> Any:
            answer = fetch(server.url, path, method, json.dumps(content).encode(), **native)
            assert answer.status < 300, answer.text
            return json.loads(answer.body or b"null")

        post("/v1/messages", {"channel": "alerts", "payload": "full", "priority": 3})
        topic = sns.call("CreateTopic", Name="news")["TopicArn"]
        arn = f"arn:aws:sqs:us-east-1:{sqs.account}:orders"
        sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn)
        post("/v1/logs", {"log": "audit", "partitions": 2})
        records = [{"key": key, "payload": "x"} for key in "abc"]
        post("/v1/logs/audit/records", {"records": records})
        with FigureStream(server.url, **bearer(sqs)) as stream:
            assert stream.next() == ["alerts", "audit", "news", "orders"]
            rows = stream.rows
            kinds = [one["kind"] for one in rows.values()]
            assert kinds == ["channel", "log", "topic", "queue"]
            assert (rows["alerts"]["visible"], rows["news"]["waiting"]) == (1, 1)
            assert (rows["audit"]["visible"], rows["audit"]["dead"]) == (None, None)
            group = "/v1/logs/audit/groups/billing"
            post(group, {"lease": 3600, "max_attempts": 1}, "PUT")
            session = post(f"{group}/subscribers/one", {}, "PUT")["session"]
            found = post(f"{group}/subscribers/one/fetch", {"session": session, "max": 2})
            first, *_ = found["records"]
            done = [{"receipt": first["receipt"], "do": "reject", "error": "bad"}]
            post(f"{group}/deliveries", {"deliveries": done})
            stream.until(lambda rows: rows["audit"]["dead"] == 1)
            figures = stream.rows["audit"]
            assert (figures["visible"], figures["flight"], figures["waiting"]) == (1, 1, 1)
            sns.call("Publish", TopicArn=topic, Message="hello")
            stream.until(lambda rows: rows["news"]["sent"] and rows["news"]["finished"])
        for kind, name in (("topic", "news"), ("log", "audit"), ("channel", "alerts")):
            with FigureStream(server.url, f"?kind={kind}", **bearer(sqs)) as stream:
                assert name in stream.next()
                assert {row["kind"] for row in stream.rows.values()} == {kind}


def test_deliveries_to_web_hooks_are_the_depth_of_a_topic(server: Server) -> None:
    with Sns("json", server.url) as sns:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {sns.account}"}
        hook = {
            "endpoint": "http://127.0.0.1:1/closed",
            "delivery_policy": {"healthyRetryPolicy": {"numRetries": 0}},
        }
        for path, content in (
            ("/v1/events/hooks/subscriptions", hook),
            ("/v1/topics/hooks/messages", {"message": "refused"}),
        ):
            body = json.dumps(content).encode()
            assert fetch(server.url, path, "POST", body, **headers).status < 300
        with FigureStream(server.url, "?kind=topic", **headers) as stream:
            stream.until(lambda rows: rows and rows["hooks"]["dead"] == 1)
            assert (stream.rows["hooks"]["visible"], stream.rows["hooks"]["waiting"]) == (0, 1)


def test_all_accounts_have_one_overview(server: Server) -> None:
    with Sqs("json", server.url) as sqs, Sqs("json", server.url) as other:
        sqs.create("of-the-first")
        other.create("of-the-second")
        with FigureStream(server.url, "?accounts=all&find=of-the", **bearer(sqs)) as stream:
            assert {"of-the-first", "of-the-second"} <= {*stream.next()}
            shown = {row["account"] for row in stream.rows.values()}
            assert {sqs.account, other.account} <= shown
            first = f"{other.account}/us-east-1/of-the-second"
        with FigureStream(server.url, f"?accounts=all&first={first}", **bearer(sqs)) as stream:
            assert stream.next()[0] == "of-the-second"


@pytest.mark.parametrize(
    "query",
    [
        "?find=",
        "?find=a%00b",
        "?find=%ff",
        "?name=%e2%80%ae",
        f"?find={'a' * 361}",
        "?a=b",
        "?kind=queues",
        "?accounts=some",
        "?name=a&find=b",
        "?name=a&accounts=all",
    ],
)
def test_unknown_parameters_are_refused(server: Server, query: str) -> None:
    answer = fetch(server.url, f"/console/stream{query}", Authorization="Bearer 000000000001")
    assert (answer.status, "Parameters are" in answer.text) == (400, True)


def test_a_head_has_no_stream(server: Server) -> None:
    with Connection(server.url) as connection:
        headers = {"Host": connection.host, "Authorization": "Bearer 000000000001"}
        connection.send(request_bytes("HEAD", "/console/stream", headers))
        assert connection.answer(to_head=True).status == 200
        connection.send(request_bytes("GET", "/console/session", headers))
        assert connection.answer().status == 200


def test_readers_are_known_by_the_clock_of_the_account(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        url = sqs.create("later")
        sqs.send(url)
        move = json.dumps({"account": sqs.account, "advance_seconds": 86_400}).encode()
        assert fetch(server.url, "/_admin/clock", "POST", move).status == 200
        sqs.receive(url)
        with FigureStream(server.url, **bearer(sqs)) as stream:
            stream.next()
            # The process may have asked for readers less than 2 s ago.
            while stream.rows["later"]["read"] is None:
                stream.next()
            assert abs(stream.last["at"] - stream.rows["later"]["read"]) < 60


def test_streams_of_a_queue_end_with_it(server: Server) -> None:
    with Sqs("json", server.url) as sqs:
        answer = ask(server, "/console/stream?name=absent", bearer(sqs))
        assert (answer.status, "does not exist" in answer.text) == (404, True)
        url = sqs.create("short")
        with FigureStream(server.url, "?name=short", **bearer(sqs)) as stream:
            assert stream.next() == ["short"]
            sqs.call("DeleteQueue", QueueUrl=url)
            assert stream.connection.some(b"\r\n0\r\n\r\n")


def test_receivers_of_all_processes_count() -> None:
    with ExitStack() as running:
        server = running.enter_context(Server("--workers", "2"))
        sqs = running.enter_context(Sqs("json", server.url))
        url = sqs.create("shared")
        waiting = []
        with FigureStream(server.url, "?name=shared", **bearer(sqs)) as stream:
            stream.until(lambda rows: rows)
            assert stream.last["processes"] == 2
            for _ in range(8):
                # Each has a connection of its own, which goes to any of the two.
                one = running.enter_context(Sqs("json", server.url, sqs.account))
                waiting.append(Background(one.receive, url, 1, WaitTimeSeconds=20))
            stream.until(lambda rows: rows["shared"]["waiting"] == 8)
            assert len(stream.last["receivers"]) == 8
            for _ in waiting:
                sqs.send(url)
            stream.until(lambda rows: rows["shared"]["read"])
        assert all(one.result() for one in waiting)


def test_a_stream_ends_when_the_gateway_stops() -> None:
    with Server() as server:
        headers = {"Authorization": "Bearer 000000000001"}
        with FigureStream(server.url, **headers) as stream:
            stream.next()
            server.process.terminate()
            assert stream.connection.rest().endswith(b"0\r\n\r\n")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with Verifying(tmp_path_factory.mktemp("console")) as running:
        yield running


def signed_in(gateway: Verifying, name: str, *more: str) -> tuple[dict[str, str], int]:
    """The headers of a session with a new key, and the number of the key."""
    made = json.loads(gateway.keys("create", name, "--account", ACCOUNT, "--json", *more))
    until(lambda: sign_in(gateway, made["key"]).status, lambda found: found == 200)
    return session_of(gateway, made["key"]), made["id"]


def test_a_stream_needs_the_token_and_the_right(gateway: Verifying, tmp_path: Any) -> None:
    assert fetch(gateway.url, "/console/stream").status == 403
    headers, _ = signed_in(gateway, "viewer")
    assert fetch(gateway.url, "/console/stream", Cookie=headers["Cookie"]).status == 403
    with FigureStream(gateway.url, **headers) as stream:
        stream.next()
    statement = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    headers, _ = signed_in(gateway, "sender", "--policy", str(policy))
    assert ask(gateway, "/console/stream", headers).status == 403


def test_a_stream_ends_with_its_key(gateway: Verifying) -> None:
    headers, key_id = signed_in(gateway, "leaver")
    with FigureStream(gateway.url, **headers) as stream:
        stream.next()
        gateway.keys("revoke", str(key_id))
        while "error" not in stream.last:
            stream.next()
        assert stream.connection.some(b"0\r\n\r\n")


def test_all_accounts_are_for_administrators(gateway: Verifying) -> None:
    headers, _ = signed_in(gateway, "curious")
    refused = ask(gateway, "/console/stream?accounts=all", headers)
    assert (refused.status, "administrator" in refused.text) == (403, True)
    first = gateway.first
    chief = session_of(gateway, first.access_key, first.secret)
    assert create(gateway, "of-the-members", headers).status == 201
    with FigureStream(gateway.url, "?accounts=all", **chief) as stream:
        assert "of-the-members" in stream.next()


def test_an_overview_leaves_out_what_the_key_may_not_see(gateway: Verifying, tmp_path: Any) -> None:
    statement = {"Effect": "Allow", "Action": ["sqs:*", "sns:CreateTopic"], "Resource": "*"}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    headers, _ = signed_in(gateway, "queues-only", "--policy", str(policy))
    create(gateway, "of-queues-only", headers)
    everything, _ = signed_in(gateway, "maker")
    fetch(gateway.url, "/v1/logs", "POST", b'{"log": "hidden"}', **JSON, **everything)
    with FigureStream(gateway.url, "?find=hidden", **everything) as stream:
        assert stream.next() == ["hidden"]
    with FigureStream(gateway.url, **headers) as stream:
        stream.next()
        assert {row["kind"] for row in stream.rows.values()} <= {"queue", "channel"}
    assert ask(gateway, "/console/stream?kind=log", headers).status == 403


def test_administrators_choose_an_account_and_everybody_a_region(gateway: Verifying) -> None:
    headers, _ = signed_in(gateway, "member")
    elsewhere = headers | {"X-Queuegate-Place": f"{ACCOUNT}/eu-west-1"}
    assert create(gateway, "abroad", elsewhere).status == 201
    assert ask(gateway, "/v1/queues/abroad", headers).status == 404
    shown = json.loads(ask(gateway, "/console/session", headers).body)
    assert "eu-west-1" in shown["accounts"][ACCOUNT]
    assert [*shown["accounts"]] == [ACCOUNT]
    for wrong in ("000000000009/us-east-1", f"{ACCOUNT}", f"{ACCOUNT}/EU", "x" * 9_000, "é/us"):
        refused = ask(gateway, "/v1/queues", headers | {"X-Queuegate-Place": wrong})
        assert refused.status == 403, wrong
    first = gateway.first
    assert sign_in(gateway, first.access_key).status == 403
    assert sign_in(gateway, first.access_key, "wrong").status == 403
    chief = session_of(gateway, first.access_key, first.secret)
    shown = json.loads(ask(gateway, "/console/session", chief).body)
    assert (shown["administrator"], "eu-west-1" in shown["accounts"][ACCOUNT]) == (True, True)
    with FigureStream(gateway.url, "?name=abroad", **chief | elsewhere_of(elsewhere)) as stream:
        assert stream.next() == ["abroad"]
    members = b'{"QueueNamePrefix": "abroad"}'
    wire = JSON | {
        "X-Amz-Target": "AmazonSQS.ListQueues",
        "Content-Type": "application/x-amz-json-1.0",
    }
    found = fetch(gateway.url, "/", "POST", members, **wire, **chief, **elsewhere_of(elsewhere))
    assert b"abroad" in found.body


def elsewhere_of(headers: dict[str, str]) -> dict[str, str]:
    return {"X-Queuegate-Place": headers["X-Queuegate-Place"]}
