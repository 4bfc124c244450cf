"""The clock of tests through running gateways: that of everybody, and that of one account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faces.clients import new_account
from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.scheduler_client import OFF, Scheduler
from tests.faces.servers import Background, Server
from tests.faces.web_hooks import WebHook
from tests.waiting import until

FIVE_MINUTES = timedelta(minutes=5)


def post(url: str, **move: Any) -> Answer:
    return fetch(url, "/_admin/clock", "POST", json.dumps(move).encode())


class Account(Scheduler):
    """An account, its boto3 clients, and its clock."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url)
        self.server = server
        self.sqs, self.sns = self.client("sqs"), self.client("sns")

    def move(self, **move: Any) -> dict[str, Any]:
        """Move the account's clock; where it stands then."""
        answer = post(self.url, account=self.account, **move)
        assert answer.status == 200, answer.text
        shown: dict[str, Any] = json.loads(answer.body)
        assert shown.pop("account") == self.account
        return shown

    def clock(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(
            fetch(self.url, f"/_admin/clock?account={self.account}").body
        )
        return shown

    def now(self) -> datetime:
        return datetime.fromisoformat(self.clock()["now"])

    def queue(self, name: str = "q", **attributes: str) -> str:
        """The URL of a queue."""
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        url: str = self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def send(self, url: str, body: str = "m", **members: Any) -> dict[str, Any]:
        if url.endswith(".fifo"):
            members = {"MessageGroupId": "g", "MessageDeduplicationId": body, **members}
        sent: dict[str, Any] = self.sqs.send_message(QueueUrl=url, MessageBody=body, **members)
        return sent

    def receive(self, url: str, wait: int = 0, **members: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.sqs.receive_message(
            QueueUrl=url,
            WaitTimeSeconds=wait,
            MaxNumberOfMessages=10,
            MessageSystemAttributeNames=["All"],
            **members,
        ).get("Messages", [])
        return found

    def bodies(self, url: str, wait: int = 0) -> list[str]:
        return [message["Body"] for message in self.receive(url, wait)]

    def schedule(self, seconds: int, queue: str = "q") -> None:
        """Something for the queue so many seconds from the account's present."""
        at = self.now() + timedelta(seconds=seconds)
        self.create(
            ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
            Target=self.target(self.queue_arn(queue), Input="fired"),
            FlexibleTimeWindow=OFF,
        )


class Pair(NamedTuple):
    """Two accounts on one gateway; only the clock of the first one is moved."""

    mine: Account
    other: Account


@pytest.fixture
def pair(server: Server) -> Iterator[Pair]:
    pair = Pair(Account(server), Account(server))
    yield pair
    for account in pair:
        account.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A gateway whose common clock may go back, and stand still."""
    with Server() as running:
        yield running


@pytest.fixture
def alone(own_server: Server) -> Iterator[Account]:
    """An account of the gateway whose common clock may be moved; both are put back."""
    account = Account(own_server)
    yield account
    account.move(ahead_seconds=0, back=True)
    assert post(own_server.url, ahead_seconds=0, back=True).status == 200
    account.close()


# One account


@pytest.mark.parametrize("name", ["q", "q.fifo"])
def test_a_visibility_timeout_ends_where_the_clock_moves(pair: Pair, name: str) -> None:
    urls = [account.queue(name, VisibilityTimeout="300") for account in pair]
    for account, url in zip(pair, urls, strict=True):
        account.send(url)
        assert account.bodies(url) == ["m"]
    pair.mine.move(advance="5m")
    assert pair.mine.bodies(urls[0], wait=5) == ["m"]
    assert pair.other.bodies(urls[1]) == []


@pytest.mark.parametrize("name", ["q", "q.fifo"])
def test_a_long_poll_wakes_where_the_clock_moves(pair: Pair, name: str) -> None:
    urls = [account.queue(name, DelaySeconds="300") for account in pair]
    polls = []
    for account, url in zip(pair, urls, strict=True):
        account.send(url)
        polls.append(Background(account.bodies, url, wait=20))
    pair.mine.server.until_parked(2)
    pair.mine.move(advance_seconds=300)
    assert polls[0].result() == ["m"]
    pair.mine.server.until_parked(1)
    pair.other.move(advance="1h")
    assert polls[1].result() == ["m"]


def test_deduplication_ends_where_the_clock_moves(pair: Pair) -> None:
    urls = [account.queue("q.fifo") for account in pair]
    first = [account.send(url) for account, url in zip(pair, urls, strict=True)]
    pair.mine.move(advance="4m 59s")
    pair.mine.move(advance="2 seconds")
    again = [account.send(url) for account, url in zip(pair, urls, strict=True)]
    assert again[0]["MessageId"] != first[0]["MessageId"]
    assert again[1]["MessageId"] == first[1]["MessageId"]


def test_retention_ends_where_the_clock_moves(pair: Pair) -> None:
    urls = [account.queue(MessageRetentionPeriod="60") for account in pair]
    for account, url in zip(pair, urls, strict=True):
        account.send(url)
    pair.mine.move(advance="61s")
    assert pair.mine.bodies(urls[0]) == []
    assert pair.other.bodies(urls[1]) == ["m"]


def test_clients_see_the_time_of_their_account(pair: Pair) -> None:
    pair.mine.move(advance="1d")
    sent = []
    for account in pair:
        url = account.queue()
        account.send(url)
        [message] = account.receive(url)
        sent.append(int(message["Attributes"]["SentTimestamp"]))
        attributes = account.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        created = int(attributes["Attributes"]["CreatedTimestamp"])
        assert abs(created - sent[-1] // 1000) <= 60
    assert 86_390_000 <= sent[0] - sent[1] <= 86_410_000


def test_a_batch_of_accounts_is_flushed_apart(pair: Pair) -> None:
    """Many senders at once share their flushes, whichever clock they go by."""
    pair.mine.move(advance="5m")
    urls = [account.queue() for account in pair]
    sends = [
        Background(account.send, url, f"{number}")
        for number in range(8)
        for account, url in zip(pair, urls, strict=True)
    ]
    for send in sends:
        send.result()
    for account, url in zip(pair, urls, strict=True):
        found: list[str] = []
        while len(found) < 8:
            found += account.bodies(url, wait=5)
        assert sorted(found) == [f"{number}" for number in range(8)]


def test_a_schedule_fires_where_the_clock_moves(pair: Pair) -> None:
    urls = [account.queue() for account in pair]
    for account in pair:
        account.schedule(280)
    pair.mine.move(advance="5m")
    assert pair.mine.bodies(urls[0], wait=20) == ["fired"]
    assert pair.other.bodies(urls[1]) == []
    assert pair.other.names() == ["one"]


def test_a_schedule_made_in_a_moved_account_fires_at_its_time(pair: Pair) -> None:
    pair.mine.move(advance="30d")
    url = pair.mine.queue()
    pair.mine.schedule(3_600)
    pair.mine.move(advance="1h")
    assert pair.mine.bodies(url, wait=20) == ["fired"]


def test_a_web_hook_is_tried_again_where_the_clock_moves(pair: Pair) -> None:
    """Each of the delays is twenty seconds, and nobody waits for one."""
    mine = pair.mine
    mine.move(advance="1m")
    topic = mine.sns.create_topic(Name="t")["TopicArn"]
    with WebHook() as hook:
        mine.sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=hook.url)
        link = hook.next().envelope["SubscribeURL"]
        assert fetch(mine.url, link.removeprefix(mine.url)).status == 200
        hook.statuses += [500] * 3
        mine.sns.publish(TopicArn=topic, Message="m")
        assert hook.next().envelope["Message"] == "m"
        for _ in range(3):
            # What came of the last one is written down in a moment, and then it has to wait.
            while (posted := hook.next_within(0.1)) is None:
                mine.move(advance="1h")
            assert posted.envelope["Message"] == "m"


def test_messages_are_moved_in_a_moved_account(pair: Pair) -> None:
    mine = pair.mine
    dead, url = mine.queue("dead"), mine.queue("q")
    policy = {"deadLetterTargetArn": mine.queue_arn("dead"), "maxReceiveCount": 1}
    mine.sqs.set_queue_attributes(
        QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": "30"}
    )
    mine.send(url)
    assert mine.bodies(url) == ["m"]
    mine.move(advance="31s", freeze=True)
    assert mine.bodies(url) == []
    mine.sqs.start_message_move_task(SourceArn=mine.queue_arn("dead"))
    assert mine.bodies(url, wait=20) == ["m"]
    assert mine.bodies(dead) == []


def test_copies_of_a_topic_go_by_the_clocks_of_their_queues(pair: Pair) -> None:
    mine = pair.mine
    urls = [account.queue() for account in pair]
    topic = mine.sns.create_topic(Name="t")["TopicArn"]
    for account in pair:
        policy = {
            "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]
        }
        mine.sns.set_topic_attributes(
            TopicArn=topic, AttributeName="Policy", AttributeValue=json.dumps(policy)
        )
        account.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=account.queue_arn())
    for advance in ("1s", "5m"):
        mine.move(advance=advance)
        mine.sns.publish(TopicArn=topic, Message=advance)
        for account, url in zip(pair, urls, strict=True):
            # Where the clock has moved, the one before is there again.
            message = account.receive(url, wait=5)[-1]
            assert json.loads(message["Body"])["Message"] == advance
            sent = int(message["Attributes"]["SentTimestamp"]) / 1000
            assert abs(sent - account.now().timestamp()) < 60


def test_accounts_keep_their_distance_from_the_common_clock(alone: Account) -> None:
    alone.move(advance="5m")
    ahead = alone.now()
    post(alone.url, advance="1h")
    assert alone.clock()["ahead_seconds"] == 300
    assert timedelta(hours=1) <= alone.now() - ahead < timedelta(hours=1, minutes=1)
    shown = json.loads(fetch(alone.url, "/_admin/clock").body)
    assert shown["ahead_seconds"] == 3_600
    assert shown["accounts"][alone.account]["ahead_seconds"] == 300
    assert alone.move(ahead_seconds=0, back=True)["ahead_seconds"] == 0
    assert alone.account not in json.loads(fetch(alone.url, "/_admin/clock").body)["accounts"]


# Absolute, back, frozen


def test_a_clock_is_set_to_an_instant(alone: Account) -> None:
    shown = alone.move(to="2034-05-06T07:08:09+02:00")
    assert shown["now"].startswith("2034-05-06T05:08:09")
    url = alone.queue()
    alone.send(url)
    [message] = alone.receive(url)
    sent = int(message["Attributes"]["SentTimestamp"]) // 1000
    assert 0 <= sent - datetime.fromisoformat("2034-05-06T05:08:09Z").timestamp() < 60


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    "move",
    [
        {"ahead_seconds": 0},
        {"advance_seconds": -1},
        {"to": "2026-01-01T00:00:00Z"},
        {"to": "2026-01-01T00:00:00Z", "freeze": True},
    ],
)
def test_going_back_has_to_be_asked_for(alone: Account, move: dict[str, Any], is_own: bool) -> None:
    account = {"account": alone.account} if is_own else {}
    assert post(alone.url, advance="1h", **account).status == 200
    refused = post(alone.url, **move, **account)
    assert refused.status == 400
    assert '\\"back\\": true' in refused.text
    before = alone.now()
    assert post(alone.url, **move, **account, back=True).status == 200
    assert alone.now() < before


def test_a_frozen_clock_stands_still_until_it_is_moved(alone: Account) -> None:
    url = alone.queue(VisibilityTimeout="1")
    instant = alone.move(to="2031-01-01T00:00:00Z", freeze=True)
    assert instant["now"] == "2031-01-01T00:00:00.000+00:00"
    assert instant["frozen"] is True
    alone.send(url)
    [message] = alone.receive(url)
    assert message["Attributes"]["SentTimestamp"] == "1924992000000"
    # Its timeout is a second, of which not one has passed by then.
    assert alone.bodies(url, wait=2) == []
    post(alone.url, advance="1h")
    assert alone.bodies(url) == []
    assert alone.move(advance="1s")["now"] == "2031-01-01T00:00:01.000+00:00"
    assert alone.bodies(url) == ["m"]
    shown = alone.move(freeze=False)
    assert shown["frozen"] is False
    assert timedelta(0) <= alone.now() - datetime.fromisoformat("2031-01-01T00:00:01Z")
    until(alone.now, lambda now: now > datetime.fromisoformat("2031-01-01T00:00:01.1Z"))


def test_with_the_common_clock_all_stand_still(alone: Account) -> None:
    alone.move(advance="5m")
    url = alone.queue(VisibilityTimeout="1")
    assert json.loads(post(alone.url, freeze=True).body)["frozen"] is True
    assert alone.clock()["frozen"] is True
    alone.send(url)
    assert alone.bodies(url) == ["m"]
    assert alone.bodies(url, wait=2) == []
    post(alone.url, advance="1s")
    assert alone.bodies(url) == ["m"]
    assert json.loads(post(alone.url, freeze=False).body)["frozen"] is False


def test_a_message_of_a_fifo_queue_is_shown_again_while_the_clock_stands(alone: Account) -> None:
    url = alone.queue("q.fifo")
    alone.move(freeze=True)
    alone.send(url)
    assert [message["Body"] for message in alone.receive(url, VisibilityTimeout=0)] == ["m"]
    assert alone.bodies(url, wait=5) == ["m"]


def test_a_schedule_waits_while_the_clock_stands(alone: Account) -> None:
    url = alone.queue()
    alone.move(freeze=True)
    alone.schedule(1)
    assert alone.bodies(url, wait=2) == []
    alone.move(advance="2s")
    assert alone.bodies(url, wait=20) == ["fired"]


# What is refused


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"null",
        b"{}",
        b'{"freeze": 1}',
        b'{"freeze": "true"}',
        b'{"back": true}',
        b'{"account": "111122223333"}',
        b'{"advance": 300}',
        b'{"advance": "5"}',
        b'{"advance": "5x"}',
        b'{"advance": "-5m"}',
        b'{"advance": ""}',
        b'{"advance": "m5"}',
        b'{"advance": "' + b"1s" * 2000 + b'"}',
        b'{"advance": "999999999w"}',
        b'{"advance_seconds": "300"}',
        b'{"advance_seconds": true}',
        b'{"advance_seconds": null}',
        b'{"advance_seconds": NaN}',
        b'{"advance_seconds": Infinity}',
        b'{"advance_seconds": 1e308}',
        b'{"advance_seconds": -1e308, "back": true}',
        b'{"advance_seconds": 1e400}',
        b'{"ahead_seconds": 99999999999999999999999999}',
        b'{"ahead_seconds": 1e18, "freeze": true}',
        b'{"to": 1893456000}',
        b'{"to": "2030-01-01"}',
        b'{"to": "2030-01-01T00:00:00"}',
        b'{"to": "0001-01-01T00:00:00+14:00", "back": true}',
        b'{"to": "1999-12-31T23:59:59Z", "back": true}',
        b'{"to": "2100-01-01T00:00:00Z"}',
        b'{"to": "9999-12-31T23:59:59-14:00"}',
        b'{"to": "294277-01-01T00:00:00Z"}',
        b'{"to": "tomorrow"}',
        b'{"advance": "5m", "advance_seconds": 300}',
        b'{"advance": "5m", "minutes": 5}',
        b'{"advance": "5m", "account": 111122223333}',
        b'{"advance": "5m", "account": "1111"}',
        b'{"advance": "5m", "account": "orders-team"}',
        '{"advance": "5m", "account": "١١١١٢٢٢٢٣٣٣٣"}'.encode(),
        b'{"advance": "5m", "account": "11112222333\\n"}',
        b'{"advance": "5m", "back": "yes"}',
    ],
)
def test_what_is_not_understood_changes_nothing(own_server: Server, body: bytes) -> None:
    before = json.loads(fetch(own_server.url, "/_admin/clock").body)
    answer = fetch(own_server.url, "/_admin/clock", "POST", body)
    assert answer.status == (413 if len(body) > 4096 else 400), answer.text
    assert json.loads(answer.body)["error"]
    after = json.loads(fetch(own_server.url, "/_admin/clock").body)
    for shown in (before, after):
        del shown["now"]
    assert after == before


def test_an_account_that_is_none_is_not_shown(own_server: Server) -> None:
    assert fetch(own_server.url, "/_admin/clock?account=me").status == 400


def test_a_client_that_hangs_up_leaves_no_traceback(tmp_path: Path) -> None:
    """Starts a gateway, whose log it reads."""
    log = tmp_path / "log"

    class Logged(Server):
        pass

    with log.open("w") as file:
        Logged.log = file
        with Logged(QUEUEGATE_LOG_LEVEL="info") as server:
            for _ in range(3):
                with Connection(server.url) as connection:
                    headers = {"Host": connection.host, "Content-Length": "40"}
                    connection.send(request_bytes("POST", "/_admin/clock", headers, b'{"adv'))
            assert fetch(server.url, "/_admin/clock").status == 200
            server.until("http_connections_active", 0)
    assert "Traceback" not in log.read_text()


# Several processes


def test_all_processes_know_of_a_move_when_it_is_answered() -> None:
    """Starts two processes, and asks them often enough to meet both."""
    account = new_account()
    with Server("--workers", "2") as server:
        for minutes in range(1, 5):
            assert post(server.url, account=account, advance="1m").status == 200
            assert post(server.url, advance="1s").status == 200
            shown = [
                json.loads(fetch(server.url, f"/_admin/clock?account={account}").body)
                for _ in range(6)
            ]
            assert {one["ahead_seconds"] for one in shown} == {60 * minutes}
            common = [json.loads(fetch(server.url, "/_admin/clock").body) for _ in range(6)]
            assert {one["ahead_seconds"] for one in common} == {minutes}


def test_the_polls_of_an_account_wake_in_all_processes() -> None:
    """Starts two processes."""
    with Server("--workers", "2") as server:
        pair = Pair(Account(server), Account(server))
        urls = [account.queue() for account in pair]
        for account, url in zip(pair, urls, strict=True):
            account.schedule(280)
            for _ in range(3):
                account.send(url, DelaySeconds=300)
        one_each = {"MaxNumberOfMessages": 1, "WaitTimeSeconds": 20}
        mine, others = [
            [Background(account.sqs.receive_message, QueueUrl=url, **one_each) for _ in range(4)]
            for account, url in zip(pair, urls, strict=True)
        ]
        server.until_parked(8)
        pair.mine.move(advance="5m")
        found = [poll.result()["Messages"][0]["Body"] for poll in mine]
        assert sorted(found) == ["fired", "m", "m", "m"]
        server.until_parked(4)
        pair.other.move(advance="5m")
        assert all(poll.result().get("Messages") for poll in others)
        for account in pair:
            account.close()
