"""Every row of cl-sqs (docs/seeds.md 3): how the queue works, methods, parameters, headers,
statuses."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from tests.databases import Databases
from tests.faces.connections import fetch
from tests.faces.text.client import Text, one_line
from tests.seed.gateways import SharedServer
from tests.seed.rows import Table

shows = Table(
    # 3.1
    "ordered by the time stamp of the database",
    "a group is a queue of its own",
    "no duplicate until the delete",
    "received, not deleted",
    "one message of a group",
    "a receipt for each read",
    "the timeout is changed by receipt",
    "no configuration",
    "any format",
    "under concurrency",
    # 3.2
    "POST",
    "GET",
    "DELETE",
    "PATCH",
    # 3.3
    "group-id",
    "deduplication-id",
    "visibility-timeout of GET",
    "receipt-id",
    "visibility-timeout of PATCH",
    # 3.4
    "Message-Id",
    "Message-Md5",
    "Message-Timestamp",
    "Message-Receipt-Id",
    "Content-Type",
    # 3.5
    "200",
    "204",
    "401",
    "404",
    "405",
    "422",
    "500",
)
shows.linked(
    "tests/faces/text/test_text.py",
    {
        "ordered by the time stamp of the database": "test_timestamps_are_in_the_order_of_sending",
        "any format": "test_any_text_survives",
    },
)

_KEY = "a-key-that-nobody-guesses"


@pytest.fixture
def text(server: SharedServer) -> Iterator[Text]:
    """A client in an account of its own."""
    with Text(server.url) as client:
        yield client


@pytest.fixture
def keyed(databases: Databases) -> Iterator[SharedServer]:
    """A gateway with a key."""
    with SharedServer(databases.copy(), API_KEY=_KEY) as running:
        yield running


@shows("POST", "200", "Message-Id", "Message-Md5", "Message-Timestamp", "Content-Type")
def test_a_message_is_sent_and_told_in_headers(text: Text) -> None:
    answer = text.text("POST", "Waddap", group_id="my-fancy-group")
    facts = answer.headers
    assert (answer.status, answer.body, facts["content-type"]) == (200, b"", "text/plain")
    assert str(UUID(facts["message-id"])) == facts["message-id"]
    assert facts["message-md5"] == "c59688cd1ef3ed3c377f240939d63a5a"
    later = text.text("POST", "Waddap", group_id="another").headers
    assert 1e15 < int(facts["message-timestamp"]) < int(later["message-timestamp"]) < 1e16


@shows("GET", "Message-Receipt-Id", "204")
def test_a_message_is_received_with_its_facts(text: Text) -> None:
    sent = text.text("POST", "Waddap", group_id="my-fancy-group").headers
    answer = text.text("GET", visibility_timeout=10)
    assert (answer.status, answer.text) == (200, "Waddap")
    assert answer.headers["content-type"] == "text/plain"
    for name in ("message-id", "message-timestamp"):
        assert answer.headers[name] == sent[name]
    assert answer.headers["message-receipt-id"]
    nothing = text.text("GET", visibility_timeout=10)
    assert (nothing.status, nothing.body) == (204, b"")
    assert not [name for name in nothing.headers if name.startswith("message-")]


@shows("no duplicate until the delete", "deduplication-id")
def test_a_duplicate_is_not_added_until_the_first_is_deleted(text: Text) -> None:
    first = text.post("Waddap", "my-fancy-group")
    assert first
    assert text.post("Waddap", "my-fancy-group") is None
    # It is made of the payload.
    digest = hashlib.sha1(b"Waddap", usedforsecurity=False).hexdigest()
    assert text.post("other", "my-fancy-group", deduplication_id=digest) is None
    assert text.post("Waddap", "my-fancy-group", deduplication_id="no-dupes")
    assert text.post("Waddap", "another-group")
    assert text.delete(text.taken())
    assert text.post("Waddap", "my-fancy-group") not in (None, first)
    line = text.refused("POST", "x", group_id="g", deduplication_id="x" * 129)
    assert line.startswith("deduplication-id")


@shows("group-id", "422")
def test_a_group_is_1_to_128_characters_of_any_kind(text: Text) -> None:
    for group in ("x", "ein Fach", "\U0001f600" * 128):
        assert text.post("a", group)
    for group in ("", "x" * 129):
        assert text.refused("POST", "a", group_id=group).startswith("group-id")
    assert text.refused("POST", "a").startswith("group-id is missing")


@shows("one message of a group", "a group is a queue of its own")
def test_a_group_waits_for_its_message_and_others_do_not(text: Text) -> None:
    for number in range(3):
        text.post(f"a{number}", "a")
    text.post("b0", "b")
    first = text.taken()
    assert (first.payload, text.taken().payload, text.get()) == ("a0", "b0", None)
    assert text.delete(first)
    assert text.taken().payload == "a1"


@shows("received, not deleted", "visibility-timeout of GET")
def test_a_message_comes_again_after_its_timeout(text: Text) -> None:
    text.post("first")
    text.post("second")
    assert text.taken(visibility_timeout=1).payload == "first"
    assert text.get() is None
    assert text.taken(wait=10, visibility_timeout=0).payload == "first"
    for _ in range(3):
        assert text.taken(visibility_timeout=0).payload == "first"
    assert text.taken(visibility_timeout=86_400).payload == "first"
    for wrong in (-1, 86_401, "x", ""):
        text.refused("GET", visibility_timeout=wrong)


@shows("DELETE", "receipt-id", "a receipt for each read")
def test_only_the_last_receipt_deletes(text: Text) -> None:
    text.post("Waddap")
    first, last = text.taken(visibility_timeout=0), text.taken(visibility_timeout=0)
    assert first.receipt_id != last.receipt_id
    assert not text.delete(first)
    # Its timeout is over, but nobody else has received it.
    assert text.delete(last)
    assert not text.delete(last)
    assert text.get() is None
    assert "receipt-id" in text.refused("DELETE")


@shows("PATCH", "visibility-timeout of PATCH", "the timeout is changed by receipt")
def test_a_receipt_shows_and_hides_its_message(text: Text) -> None:
    text.post("Waddap")
    text.post("later", "another")
    first = text.taken()
    assert text.patch(first, 0)
    last = text.taken(visibility_timeout=0)
    assert last.payload == "Waddap"
    assert not text.patch(first, 0)
    assert text.patch(last, 30)
    assert text.taken().payload == "later"
    assert text.get() is None
    # The seed's example has a second question mark.
    query = f"receipt-id={last.receipt_id}?visibility-timeout=30"
    line = one_line(text.ask("PATCH", f"/queue?{query}"))
    assert "visibility-timeout" in line


@shows("no configuration")
def test_the_first_message_makes_the_queue(text: Text) -> None:
    assert text.get() is None
    assert text.post("Waddap")
    assert text.taken().payload == "Waddap"


@shows("405")
def test_other_methods_are_not_allowed(text: Text) -> None:
    for method in ("PUT", "HEAD", "PROPFIND"):
        answer = text.text(method)
        assert answer.status == 405
        assert answer.headers["allow"] == "DELETE, GET, OPTIONS, PATCH, POST"


@shows("404")
def test_what_is_not_there_is_not_found(text: Text) -> None:
    assert text.text("GET", queue="nobody-made-it").status == 404
    assert text.ask("GET", "/queues").status >= 400


@shows("401")
def test_a_key_is_wanted_where_there_is_one(keyed: SharedServer) -> None:
    target = "/queue?group-id=g"
    answer = fetch(keyed.url, target, "POST", b"x")
    assert one_line(answer, 401).endswith("send it in the header api-key.")
    with Text(keyed.url) as text:
        for key, status in ((_KEY, 200), (_KEY[:-1], 401), ("", 401)):
            headers = {"api-key": key, "Authorization": ""}
            assert text.ask("POST", target, raw=b"x", headers=headers).status == status


@shows("500")
def test_an_unexpected_error_is_told_without_its_detail(keyed: SharedServer) -> None:
    """It takes a table away."""
    with Text(keyed.url) as text:
        headers = {"api-key": _KEY, "Authorization": ""}
        target = "/queue?group-id=another"
        assert text.ask("POST", target, raw=b"x", headers=headers).status == 200
        keyed.rows("ALTER TABLE fifo_dedup RENAME TO fifo_away")
        answer = text.ask("POST", target, raw=b"y", headers=headers)
    assert one_line(answer, 500) == "We encountered an internal error. Please try again."


class _Crowd:
    """Ten producers, each with ten groups of its own, and ten consumers of all, on two gateways."""

    groups = 100
    each = 5

    def __init__(self, clients: tuple[Text, Text]) -> None:
        self.seen: dict[str, list[str]] = {}
        self.overlaps: list[str] = []
        self._clients = clients
        self._out: set[str] = set()
        self._left = self.groups * self.each
        self._lock = threading.Lock()

    def run(self) -> None:
        with ThreadPoolExecutor(20) as pool:
            running = [pool.submit(self._produce, n) for n in range(10)]
            running += [pool.submit(self._consume, n) for n in range(10)]
            for one in running:
                one.result(60)

    def _produce(self, mine: int) -> None:
        client = self._clients[mine % 2]
        for number in range(self.each):
            for group in range(mine, self.groups, 10):
                assert client.post(f"{group} {number}", f"g{group}", deduplication_id=number)

    def _consume(self, mine: int) -> None:
        client = self._clients[1 - mine % 2]
        while self._left > 0:
            message = client.get(wait=1)
            if message is not None:
                self._work(*message.payload.split())
                assert client.delete(message)

    def _work(self, group: str, number: str) -> None:
        with self._lock:
            if group in self._out:
                self.overlaps.append(group)
            self._out.add(group)
            self.seen.setdefault(group, []).append(number)
            self._left -= 1
        with self._lock:
            self._out.remove(group)


@shows("under concurrency")
def test_ten_producers_and_ten_consumers_leave_nothing_and_double_nothing(
    server: SharedServer,
) -> None:
    """With a hundred groups, over two gateways, which takes its time."""
    with (
        SharedServer(server.dsn) as second,
        Text(server.url) as one,
        Text(second.url, one.account) as two,
    ):
        crowd = _Crowd((one, two))
        crowd.run()
        assert one.get() is None
    assert crowd.overlaps == []
    # Of each group all, once, in order.
    wanted = [str(number) for number in range(crowd.each)]
    assert crowd.seen == {str(group): wanted for group in range(crowd.groups)}


def test_every_row_is_shown() -> None:
    assert shows.missing == []
