"""Messages of the native API: sent, received, hidden, deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from queuegate.gateway.faces.json import decoding
from queuegate.gateway.faces.rest.message_endpoints import Ids
from tests.faces.rest.client import Rest
from tests.faces.servers import Background, Server

KINDS = pytest.mark.parametrize("fifo", [False, True])


def _group(fifo: bool) -> dict[str, str]:
    return {"group_id": "g"} if fifo else {}


@KINDS
def test_what_is_sent_is_received(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    headers = {"tenant": "acme", "priority": 3, "late": True, "none": None, "more": {"a": [1]}}
    message = {"job": "resize", "image": 7}
    sent = rest.send(name, message, headers=headers, **_group(fifo))
    [received] = rest.receive(name)
    assert (received["id"], received["message"], received["headers"]) == (sent, message, headers)
    assert received["read_ct"] == 1
    assert received.get("group_id") == _group(fifo).get("group_id")
    enqueued_at = datetime.fromisoformat(received["enqueued_at"])
    visible_at = datetime.fromisoformat(received["visible_at"])
    assert timedelta(seconds=29) < visible_at - enqueued_at < timedelta(seconds=60)
    assert len(received["message_id"]) == 36


@KINDS
def test_an_array_is_sent_in_order(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    many = [{"message": number} | _group(fifo) for number in range(500)]
    ids = rest.call("POST", f"/v1/queues/{name}/messages", many, status=201)["ids"]
    assert ids == sorted(set(ids))
    assert len(ids) == 500
    received = rest.receive(name, max=100)
    # A group gives ten at once.
    count = 10 if fifo else 100
    assert [one["message"] for one in received] == [*range(count)]
    assert [one["id"] for one in received] == ids[:count]


@KINDS
def test_an_answer_does_not_grow_with_its_messages(rest: Rest, fifo: bool) -> None:
    """A hundred long messages would be a hundred megabytes, in the memory of a small gateway."""
    name = rest.create(fifo=fifo)
    for number in range(12):
        rest.send(name, str(number) + "x" * 300_000, **_group(fifo))
    received = rest.receive(name, max=100)
    assert len(received) == 10
    deleted = rest.call(
        "DELETE", f"/v1/queues/{name}/messages", {"ids": [one["id"] for one in received]}
    )
    assert len(deleted["deleted"]) == 10
    assert len(rest.receive(name, max=100)) == 2


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({"message": 1, "delay": 901}, "`delay` of entry 3 is refused: allowed is 0 to 900."),
        ({"message": 1, "headers": {"AWS.x": 1}}, "Message 3: The header name `AWS.x`"),
        ({"message": 1, "deduplication_id": "d"}, "Message 3: deduplication_id is for FIFO"),
        ({"message": 1, "group_id": ""}, "group_id is invalid"),
        ({"message": 1, "group_id": "a b"}, "group_id is invalid"),
        ({"message": "x" * 1_048_575}, "Message 3: the message and its headers have 1048577 bytes"),
        ({"headers": {}}, "`message` of entry 3 is missing"),
        (7, "Entry 3 is refused: expected an object"),
    ],
)
def test_one_bad_message_refuses_the_array(rest: Rest, bad: object, expected: str) -> None:
    rest.create()
    many = [{"message": 1}, {"message": 2}, bad]
    assert expected in rest.refusal("POST", "/v1/queues/jobs/messages", many)
    assert rest.receive("jobs") == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], "expected an array of length >= 1"),
        ([{"message": 1}] * 501, "expected an array of length <= 500"),
        ("hello", "expected an object or an array, got a string"),
        ({"message": 1, "headers": {"a..b": 1}}, "The header name `a..b` is refused: a period"),
        ({"message": 1, "headers": {"": 1}}, "The header name `` is refused: it is empty"),
        ({"message": 1, "headers": {"a\n": 1}}, "allowed are letters"),
        ({"message": 1, "headers": {"h" * 257: 1}}, "more than 256 characters"),
        ({"message": 1, "headers": [1]}, "`headers` is refused: expected an object"),
        ({"message": 1, "delay": -1}, "`delay` is refused: allowed is 0 to 900."),
        ({"message": 1, "delay": 1.5}, "`delay` is refused: expected a whole number"),
        ({"message": 1, "delay": "5"}, "`delay` is refused: expected a whole number"),
        ({"message": 1, "Delay": 5}, "`Delay` is not known. Known are `message`, `headers`"),
        ({"message": 1, "deduplication_id": "ż"}, "for parameter deduplication_id is invalid"),
    ],
)
def test_bad_messages_are_refused(rest: Rest, body: object, expected: str) -> None:
    rest.create()
    assert expected in rest.refusal("POST", "/v1/queues/jobs/messages", body)
    assert rest.receive("jobs") == []


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, "needs a group_id"),
        ({"delay": 3}, "needs a group_id"),
        ({"group_id": "g", "delay": 3}, "no delay of their own"),
        ({"group_id": "ż", "delay": 3}, "for parameter group_id"),
        ({"deduplication_id": "ż"}, "for parameter deduplication_id"),
    ],
)
def test_bad_messages_of_fifo_queues(rest: Rest, members: dict[str, object], expected: str) -> None:
    rest.create(fifo=True)
    body = {"message": 1} | members
    assert expected in rest.refusal("POST", "/v1/queues/jobs/messages", body)


def test_null_means_absent(rest: Rest) -> None:
    rest.create()
    absent = dict.fromkeys(("headers", "delay", "group_id", "deduplication_id"))
    rest.send("jobs", 1, **absent)
    assert rest.messages("jobs") == [1]


def test_a_number_may_be_written_with_a_fraction_of_nothing(rest: Rest, server: Server) -> None:
    rest.create()
    many = [{"message": 1.0, "delay": 60.0}, {"message": {"n": 2.0}, "delay": 6e1}]
    rest.call("POST", "/v1/queues/jobs/messages", many, status=201)
    assert rest.receive("jobs") == []
    server.advance(61)
    answer = rest.ask("GET", "/v1/queues/jobs/messages?max=2")
    # The messages themselves are as they were written.
    assert b'"message":1.0,' in answer.body
    assert b'"message":{"n": 2.0}' in answer.body


def test_no_more_numbers_are_looked_at_than_there_may_be(rest: Rest) -> None:
    """One by one: millions of them would take seconds of the loop that everybody shares."""
    rest.create()
    raw = b'{"ids":[' + b"1.0," * 10_000 + b"1]}"
    assert decoding.with_whole_numbers(Ids, raw) == b'{"ids":[' + b"1," * 500 + b"1]}"
    answer = rest.ask("DELETE", "/v1/queues/jobs/messages", raw=raw)
    assert answer.status == 400
    assert "expected an array of length <= 500" in answer.text


def test_a_duplicate_has_the_id_of_the_first(rest: Rest) -> None:
    name = rest.create(fifo=True)
    first = rest.send(name, 1, group_id="g", deduplication_id="d")
    assert rest.send(name, 2, group_id="g", deduplication_id="d") == first
    assert rest.send(name, 1, group_id="g") != rest.send(name, 1, group_id="g")
    assert rest.messages(name) == [1, 1, 1]


def test_a_group_on_a_standard_queue_is_a_label(rest: Rest) -> None:
    rest.create()
    rest.send("jobs", 1, group_id="tenant-1")
    assert [one["group_id"] for one in rest.receive("jobs")] == ["tenant-1"]


def test_a_delay_hides_for_so_long(rest: Rest, server: Server) -> None:
    rest.create()
    rest.send("jobs", 1, delay=600)
    assert rest.messages("jobs") == []
    server.advance(601)
    assert rest.messages("jobs") == [1]


@KINDS
def test_the_timeout_is_that_of_the_receive(rest: Rest, server: Server, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    rest.send(name, 1, **_group(fifo))
    assert rest.messages(name, vt=100) == [1]
    server.advance(50)
    assert rest.messages(name) == []
    server.advance(51)
    [again] = rest.receive(name, vt=0)
    assert again["read_ct"] == 2
    assert rest.messages(name, fifo="true") == [1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("max=0", "`max` is refused: allowed is 1 to 100."),
        ("max=101", "`max` is refused: allowed is 1 to 100."),
        ("vt=43201", "`vt` is refused: allowed is 0 to 43200."),
        ("wait=21", "`wait` is refused: allowed is 0 to 20."),
        ("wait=1.5", "`wait` is '1.5': a whole number is expected."),
        ("fifo=maybe", "`fifo` is 'maybe': true or false is expected."),
        ("visibility=3", "`visibility` is not known. Known are `max`, `vt`, `wait`, `fifo`."),
    ],
)
def test_bad_parameters_of_a_receive(rest: Rest, query: str, expected: str) -> None:
    rest.create()
    assert expected in rest.refusal("GET", f"/v1/queues/jobs/messages?{query}")


@KINDS
def test_a_long_poll_ends_with_a_send(rest: Rest, server: Server, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    poll = Background(rest.messages, name, wait=20)
    server.until_parked()
    rest.send(name, 1, **_group(fifo))
    assert poll.result() == [1]


@KINDS
def test_a_client_that_goes_away_takes_no_message_with_it(
    rest: Rest, server: Server, fifo: bool
) -> None:
    name = rest.create(fifo=fifo)
    with Rest(rest.url, rest.account) as leaving:
        request = leaving.encode("GET", f"/v1/queues/{name}/messages?wait=20")
        leaving.connection().send(request)
        server.until_parked(1)
    server.until_parked(0)
    rest.send(name, 1, **_group(fifo))
    [received] = rest.receive(name)
    assert received["read_ct"] == 1


@KINDS
def test_deleting_one(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    rest.send(name, 1, **_group(fifo))
    [received] = rest.receive(name)
    path = f"/v1/queues/{name}/messages/{received['id']}"
    rest.call("DELETE", path, status=204)
    text = rest.refusal("DELETE", path, status=404)
    assert text == f"Queue '{name}' holds no message {received['id']}."


@KINDS
def test_deleting_many_names_those_that_were_there(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    for number in range(3):
        rest.send(name, number, **({"group_id": str(number)} if fifo else {}))
    first, second, third = [one["id"] for one in rest.receive(name)]
    path = f"/v1/queues/{name}/messages"
    wanted = {"ids": [third, 1 << 62, first, third]}
    assert rest.call("DELETE", path, wanted) == {"deleted": [third, first]}
    assert rest.call("DELETE", path, {"ids": [second, first]}) == {"deleted": [second]}
    assert rest.call("GET", f"/v1/queues/{name}")["queue_length"] == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "`ids` is missing"),
        ({"ids": []}, "length >= 1"),
        ({"ids": ["a"]}, "expected a whole number, got a string"),
        ({"ids": [1 << 63]}, "9223372036854775807"),
        ({"ids": [0]}, "allowed is 1 to"),
        ({"ids": [*range(1, 502)]}, "length <= 500"),
    ],
)
def test_bad_deletes_delete_nothing(rest: Rest, body: object, expected: str) -> None:
    rest.create()
    rest.send("jobs")
    assert expected in rest.refusal("DELETE", "/v1/queues/jobs/messages", body)
    assert rest.call("GET", "/v1/queues/jobs")["queue_length"] == 1


@pytest.mark.parametrize("wrong", ["abc", "0", "-1", "1.0", str(1 << 63), "9" * 30, "%31%20"])
@pytest.mark.parametrize(("method", "body"), [("DELETE", None), ("PATCH", {"vt": 1})])
def test_bad_ids(rest: Rest, method: str, body: Any, wrong: str) -> None:
    rest.create()
    assert "`id`" in rest.refusal(method, f"/v1/queues/jobs/messages/{wrong}", body)


@KINDS
def test_hiding_longer_and_showing_again(rest: Rest, server: Server, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    rest.send(name, 1, **_group(fifo))
    [received] = rest.receive(name)
    path = f"/v1/queues/{name}/messages/{received['id']}"
    changed = rest.call("PATCH", path, {"vt": 600})
    assert changed["id"] == received["id"]
    now = datetime.fromisoformat(server.now())
    left = datetime.fromisoformat(changed["visible_at"]) - now
    assert timedelta(seconds=550) < left < timedelta(seconds=601)
    server.advance(100)
    poll = Background(rest.messages, name, wait=20)
    server.until_parked()
    rest.call("PATCH", path, {"vt": 0})
    assert poll.result() == [1]
    rest.refusal("PATCH", f"/v1/queues/{name}/messages/{1 << 62}", {"vt": 0}, status=404)
    assert "allowed is 0 to 43200" in rest.refusal("PATCH", path, {"vt": 43_201})
    assert "`vt` is missing" in rest.refusal("PATCH", path, {})


def test_a_message_that_may_be_lost_is_there_all_the_same(rest: Rest) -> None:
    rest.create()
    rest.send("jobs", 1, sync_commit=False)
    assert rest.messages("jobs") == [1]


def test_messages_are_counted_like_those_of_sqs(counting_server: Server) -> None:
    with Rest(counting_server.url) as rest:
        name = rest.create(f"counted{rest.account}")
        rest.call("POST", f"/v1/queues/{name}/messages", [{"message": 1}] * 3, status=201)
        for one in rest.receive(name):
            rest.call("DELETE", f"/v1/queues/{name}/messages/{one['id']}", status=204)
    for what in ("sent", "received", "deleted"):
        assert counting_server.metric(f'queue_messages_{what}_total{{queue="{name}"}}') == 3
    path = 'path="/v1/queues/{name}/messages"'
    assert counting_server.metric(f'http_requests_total{{method="POST",{path},status="201"}}') >= 1
