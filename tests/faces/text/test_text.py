"""The text face beside its seed's rows (tests/seed/test_text_rows.py): other queues, other faces,
hostile requests, limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import Connection
from tests.faces.servers import Server
from tests.faces.text.client import Text, one_line


def test_it_describes_itself_in_text_and_headers(text: Text) -> None:
    answer = text.ask("GET", "/queue/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    document = json.loads(answer.text)
    send = document["paths"]["/queue"]["post"]
    assert list(send["requestBody"]["content"]) == ["text/plain"]
    assert {one["name"] for one in send["parameters"]} == {
        "queue",
        "group-id",
        "deduplication-id",
        "ttl",
    }
    assert document["components"]["responses"]["422"]["content"] == {
        "text/plain": {"schema": {"type": "string"}}
    }
    assert document["components"]["securitySchemes"]["credentials"]["name"] == "api-key"
    assert text.ask("HEAD", "/queue/openapi.json").status == 200
    refused = text.ask("POST", "/queue/openapi.json")
    assert one_line(refused, 405) == "POST is not allowed here. Allowed are GET, HEAD, OPTIONS."
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS"
    assert text.ask("GET", "/queue/openapi").status == 404


def test_other_queues_are_made_at_their_first_message(text: Text) -> None:
    assert text.post("a", queue="mail")
    assert text.get() is None
    assert text.taken(queue="mail").payload == "a"
    shown = text.call("GET", "/v1/queues")
    assert [(one["name"], one.get("serial")) for one in shown] == [("mail", True)]


def test_a_queue_that_nobody_made_is_absent(text: Text) -> None:
    for method, more in (
        ("GET", {}),
        ("DELETE", {"receipt_id": "x"}),
        ("PATCH", {"receipt_id": "x", "visibility_timeout": 0}),
    ):
        answer = text.text(method, queue="orders", **more)
        assert one_line(answer, 404) == "Queue 'orders' does not exist."
    answer = text.text("POST", "a", group_id="g", queue="orders.fifo")
    assert one_line(answer, 404) == "Queue 'orders.fifo' does not exist."


def test_nothing_is_made_for_a_message_that_is_refused(text: Text) -> None:
    assert text.refused("POST", "a").startswith("group-id is missing")
    assert text.refused("POST", "", group_id="g").startswith("The payload is empty")
    assert text.call("GET", "/v1/queues") == []


def test_text_queues_are_created_over_rest(text: Text) -> None:
    assert text.call("POST", "/v1/queues", {"name": "t", "serial": True}, status=201)["serial"]
    assert text.call("POST", "/v1/queues", {"name": "t"}, status=201)["serial"]
    text.create("plain")
    refusal = text.refusal("POST", "/v1/queues", {"name": "plain", "serial": True}, status=409)
    assert "serial" in refusal
    text.refusal("POST", "/v1/queues", {"name": "x.fifo", "serial": True})


def test_sqs_works_on_a_text_queue(text: Text) -> None:
    with Sqs("json", text.url, text.account) as sqs:
        text.post("first", "ein Fach", deduplication_id="eins zwei")
        url = sqs.url_of("default")
        attributes = sqs.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        assert "FifoQueue" not in attributes["Attributes"]
        refused = sqs.refusal("SendMessage", QueueUrl=url, MessageBody="x")
        assert refused.status == 400
        sent = sqs.call("SendMessage", QueueUrl=url, MessageBody="second", MessageGroupId="h")
        again = sqs.call("SendMessage", QueueUrl=url, MessageBody="second", MessageGroupId="h")
        # By the SHA-1 of the body, as long as it is there.
        assert again["MessageId"] == sent["MessageId"]
        sqs.call("SendMessage", QueueUrl=url, MessageBody="third", MessageGroupId="ein Fach")
        found = sqs.call(
            "ReceiveMessage",
            QueueUrl=url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=1000,
            AttributeNames=["All"],
        )["Messages"]
        assert [one["Body"] for one in found] == ["first", "second"]
        facts = found[0]["Attributes"]
        assert facts["MessageGroupId"] == "ein Fach"
        assert facts["MessageDeduplicationId"] == "eins zwei"
        assert int(facts["SequenceNumber"]) > 0
        assert text.get() is None
        sqs.call("DeleteMessage", QueueUrl=url, ReceiptHandle=found[0]["ReceiptHandle"])
        assert text.taken().payload == "third"


def test_dead_letters_of_a_text_queue_go_to_one_of_its_kind(text: Text) -> None:
    with Sqs("json", text.url, text.account) as sqs:
        for name in ("work", "dead"):
            text.call("POST", "/v1/queues", {"name": name, "serial": True}, status=201)
        work, dead = (sqs.url_of(n) for n in ("work", "dead"))
        plain = sqs.create("plain")

        def redrive(target: str) -> dict[str, object]:
            policy = {"deadLetterTargetArn": sqs.arn(target), "maxReceiveCount": 1}
            return {"QueueUrl": work, "Attributes": {"RedrivePolicy": json.dumps(policy)}}

        assert sqs.refusal("SetQueueAttributes", **redrive(plain)).status == 400
        sqs.call("SetQueueAttributes", **redrive(dead))
        text.post("bad", queue="work")
        text.post("good", queue="work")
        assert text.taken(queue="work", visibility_timeout=0).payload == "bad"
        assert text.taken(queue="work").payload == "good"
        letter = text.taken(queue="dead", visibility_timeout=0)
        assert letter.payload == "bad"
        # What it was sent with is free again in its own queue.
        assert text.post("bad", queue="work")
        sqs.call("StartMessageMoveTask", SourceArn=sqs.arn(dead))


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
def test_queues_of_other_kinds_are_served(text: Text, name: str) -> None:
    text.create(name)
    assert text.post("a", queue=name)
    first = text.taken(queue=name, visibility_timeout=0)
    again = text.taken(queue=name)
    assert (first.payload, again.payload) == ("a", "a")
    assert not text.delete(first, queue=name)
    assert text.patch(again, 0, queue=name) or name == "orders.fifo"
    last = text.taken(queue=name)
    assert text.delete(last, queue=name)
    assert not text.delete(last, queue=name)


def test_a_standard_queue_takes_no_deduplication_id(text: Text) -> None:
    text.create("orders")
    line = text.refused("POST", "a", queue="orders", deduplication_id="d")
    assert line == "deduplication-id requires a queue with groups: leave it out for this queue."
    assert text.text("POST", "a", queue="orders").status == 200


def test_a_message_may_expire(text: Text) -> None:
    assert text.post("a", ttl=1)
    assert text.post("b")
    with Sqs("json", text.url, text.account) as sqs:
        url = sqs.url_of("default")

        def visible() -> str:
            names = ["ApproximateNumberOfMessages"]
            found = sqs.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
            shown: str = found["Attributes"][names[0]]
            return shown

        assert visible() == "2"
        assert text.taken(visibility_timeout=1).payload == "a"
        found = text.get(wait=10)
        assert found is not None
        assert (found.payload, visible()) == ("b", "0")


def test_a_long_poll_gets_what_is_sent_meanwhile(text: Text, server: Server) -> None:
    text.post("before")
    held = text.taken()
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(text.taken(wait=20).payload))
    waiting.start()
    server.until_parked(1)
    text.post("behind")
    assert text.delete(held)
    waiting.join()
    assert found == ["behind"]


def test_a_full_queue_takes_no_more(text: Text) -> None:
    members = {"name": "small", "serial": True, "max_messages": 1}
    text.call("POST", "/v1/queues", members, status=201)
    first = text.text("POST", "a", group_id="g", queue="small")
    assert int(first.headers["message-timestamp"]) > 0
    assert text.post("a", queue="small") is None
    one_line(text.text("POST", "b", group_id="g", queue="small"), 429)
    taken = text.taken(queue="small")
    assert taken.timestamp == int(first.headers["message-timestamp"])
    assert text.delete(taken, queue="small")
    assert text.post("a", queue="small")


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("group-id=%zz", "The query string is not percent-encoded at byte 9: write `%`"),
        ("group-id=%", "The query string is not percent-encoded"),
        ("group-id=%ff", "%ff is not UTF-8, percent-encoded."),
        ("group-id=%ed%a0%80", "%ed%a0%80 is not UTF-8"),
        ("group-id=a%00b", "a%00b holds a NUL character."),
        ("group-id=a%01b", "group-id must have 1 to 128 characters"),
        ("group-id=", "group-id must have 1 to 128 characters"),
        ("group-id=" + "x" * 129, "group-id must have 1 to 128 characters"),
        ("group-id=g&deduplication-id=" + "%F0%9F%98%80" * 129, "deduplication-id must have 1 to"),
        ("group-id=g&group-id=g", "The query parameter `group-id` is there twice."),
        ("group-id=g&group_id=g", "The query parameter `group_id` is not known. Known are"),
        ("group-id=g&%0d%0aevil=1", "The query parameter `??evil` is not known."),
        ("group-id=g&ttl=0", "The query parameter `ttl` is refused: allowed is 1 to 1209600."),
        ("group-id=g&ttl=x", "The query parameter `ttl` is 'x': a whole number is expected."),
        ("", "group-id is missing"),
    ],
)
def test_bad_parameters_are_refused_with_what_to_change(text: Text, query: str, line: str) -> None:
    assert one_line(text.ask("POST", f"/queue?{query}", raw=b"a")).startswith(line)


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (b"\xff\xfe", "The payload is not UTF-8 at byte 0"),
        (b"ab\x00c", "The payload has a control character"),
        (b"", "The payload is empty"),
        (b"x" * 1_048_577, "The request body is larger than the 1048576 bytes"),
    ],
)
def test_bad_payloads_are_refused_with_what_to_change(
    text: Text, payload: bytes, line: str
) -> None:
    answer = text.ask("POST", "/queue?group-id=g", raw=payload)
    assert one_line(answer).startswith(line)
    with Text(text.url, text.account) as another:
        assert another.get() is None


def test_any_text_survives(text: Text) -> None:
    payload = '(:a "b")\n<x/>\r\n\t\U0001f600\u00e4' + "x" * 100_000
    group = "/&?=+ #\U0001f600\u00fc"
    assert text.post(payload, group, deduplication_id=group)
    found = text.taken()
    assert found.payload == payload
    assert text.delete(found)


@pytest.mark.parametrize(
    "receipt_id",
    ["", "x", "2af18f7d-6475-5e64-87f3-e8e7334810ac", "QGF2AAAA.53d531ef229c4256aeb314e0fe2a30d5"],
)
@pytest.mark.parametrize("method", ["DELETE", "PATCH"])
def test_what_is_no_receipt_is_refused(text: Text, method: str, receipt_id: str) -> None:
    text.post("a")
    more = {"visibility_timeout": 5} if method == "PATCH" else {}
    line = text.refused(method, receipt_id=receipt_id, **more)
    assert line.startswith("receipt-id does not belong to queue 'default'")


def test_a_receipt_of_another_queue_is_refused(text: Text) -> None:
    text.post("a")
    text.post("b", queue="mail")
    taken = text.taken(queue="mail")
    assert text.refused("DELETE", receipt_id=taken.receipt_id).startswith(
        "receipt-id does not belong to"
    )
    assert text.delete(taken, queue="mail")


def test_only_the_path_itself_is_its(text: Text) -> None:
    """Below it are URLs of queues, which AWS's clients use."""
    for path in ("/queue/", "/queue/us-east-1/1/x", "/queues", "/Queue", "/%71ueue"):
        assert text.ask("GET", path).headers["content-type"] != "text/plain"


def test_a_client_that_goes_away_takes_nothing(text: Text, server: Server) -> None:
    text.post("a")
    held = text.taken()
    with contextlib.closing(Connection(text.url)) as waiting:
        waiting.send(text.encode("GET", "/queue?wait=20"))
        server.until_parked(1)
    server.until_parked(0)
    assert text.delete(held)
    text.post("b")
    assert text.taken().payload == "b"


def test_timestamps_are_in_the_order_of_sending(text: Text) -> None:
    sent = [text.text("POST", str(n), group_id=f"g{n}") for n in range(5)]
    stamps = [int(one.headers["message-timestamp"]) for one in sent]
    assert stamps == sorted({*stamps})
    assert 1e15 < stamps[0] < 1e16
    assert [text.taken().timestamp for _ in sent] == stamps


async def test_two_gateways_keep_one_message_of_a_group_out(server: Server) -> None:
    """Ten of them at once, over two processes: each gets at most one group."""
    with (
        Server(dsn=server.dsn) as other,
        Text(server.url) as one,
        Text(other.url, one.account) as two,
    ):
        for number in range(20):
            one.post(str(number), f"g{number % 5}", deduplication_id=number)
        asked = [asyncio.to_thread(client.get) for client in (one, two) * 5]
        found = [taken.payload for taken in await asyncio.gather(*asked) if taken is not None]
        assert sorted(found) == [*"01234"]
