"""Browsing over the native API: everything that lies in a queue, once, and nothing is touched."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.fuzz import drawing

_numbers = itertools.count()
KINDS = pytest.mark.parametrize("fifo", [False, True])
UNREAD = ("ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp")


def send(rest: Rest, name: str, message: Any = "x", **members: Any) -> int:
    if name.endswith(".fifo"):
        members = {"group_id": "g", "deduplication_id": f"d{next(_numbers)}"} | members
    return rest.send(name, message, **members)


def page(rest: Rest, name: str, **query: Any) -> dict[str, Any]:
    text = "&".join(f"{key}={quote(str(value))}" for key, value in query.items() if value)
    found: dict[str, Any] = rest.call("GET", f"/v1/queues/{name}/browse?{text}")
    return found


def pages(rest: Rest, name: str, **query: Any) -> Iterator[list[dict[str, Any]]]:
    """Page after page, as of the first one."""
    while True:
        found = page(rest, name, **query)
        yield found["messages"]
        if found["next"] is None:
            return
        query |= {"after": found["next"], "as_of": found["as_of"]}


def browse(rest: Rest, name: str, **query: Any) -> list[dict[str, Any]]:
    return [message for found in pages(rest, name, **query) for message in found]


def ids(messages: list[dict[str, Any]]) -> list[int]:
    return [message["id"] for message in messages]


def ranges(rest: Rest, name: str, parts: int) -> dict[str, Any]:
    found: dict[str, Any] = rest.call("GET", f"/v1/queues/{name}/browse/ranges?parts={parts}")
    return found


def as_received(message: dict[str, Any]) -> dict[str, Any]:
    """A message of SQS without what a browse does not have, or what the receive changed."""
    attributes = {k: v for k, v in message["Attributes"].items() if k not in UNREAD}
    return {
        "message_id": message["MessageId"],
        "body": message["Body"],
        "md5_of_body": message["MD5OfBody"],
        "message_attributes": {
            name: {
                key: base64.b64encode(one).decode() if isinstance(one, bytes) else one
                for key, one in value.items()
            }
            for name, value in message.get("MessageAttributes", {}).items()
        },
        "attributes": attributes,
    }


def as_browsed(message: dict[str, Any]) -> dict[str, Any]:
    attributes = {k: v for k, v in message["attributes"].items() if k not in UNREAD}
    kept = {k: v for k, v in message.items() if k not in ("id", "state", "visible_at")}
    return kept | {"attributes": attributes}


def test_all_of_a_fifo_queue_is_seen_though_its_groups_are_locked(
    rest: Rest, sqs_beside: Sqs
) -> None:
    name = rest.create(fifo=True)
    sent = [send(rest, name, n, group_id=f"g{n % 10}") for n in range(100)]
    assert len(sqs_beside.receive(sqs_beside.url_of(name))) == 10
    found = browse(rest, name, limit=7)
    assert sorted(ids(found)) == sent
    assert sum(message["state"] == "in_flight" for message in found) == 10
    assert sqs_beside.counts(sqs_beside.url_of(name)) == (90, 10, 0)


@KINDS
def test_nothing_is_received_by_looking(rest: Rest, sqs_beside: Sqs, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    sent = [send(rest, name) for _ in range(3)]
    for _ in range(5):
        found = browse(rest, name)
        assert ids(found) == sent
        assert {one["state"] for one in found} == {"visible"}
        assert {one["attributes"]["ApproximateReceiveCount"] for one in found} == {"0"}
        assert all("ApproximateFirstReceiveTimestamp" not in one["attributes"] for one in found)
    received = sqs_beside.receive(sqs_beside.url_of(name), AttributeNames=["All"])
    assert [one["Attributes"]["ApproximateReceiveCount"] for one in received] == ["1"] * 3
    for one, seen in zip(received, browse(rest, name), strict=True):
        assert {key: seen["attributes"][key] for key in UNREAD} == {
            key: one["Attributes"][key] for key in UNREAD
        }
        assert seen["state"] == "in_flight"
        assert seen["visible_at"] > found[0]["visible_at"]


@KINDS
def test_a_message_looks_as_its_receiver_sees_it(rest: Rest, sqs_beside: Sqs, fifo: bool) -> None:
    create = sqs_beside.create_fifo if fifo else sqs_beside.create
    url = create()
    name = url.rpartition("/")[2]
    attributes = {
        "text": {"DataType": "String.hello", "StringValue": 'ünï\tcödé "\\ \U0001f600'},
        "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
        "number": {"DataType": "Number", "StringValue": "-1e3"},
    }
    body = 'line\n\r\t "\\ é \u2028 \U0001f600 <&>'
    trace = {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
    sqs_beside.send(
        url,
        body,
        MessageAttributes=attributes,
        MessageSystemAttributes={"AWSTraceHeader": trace},
        MessageGroupId="!~",
    )
    send(rest, name, {"native": [1, "ü"]}, headers={"tenant": "acme", "late": True})
    seen = browse(rest, name)
    received = sqs_beside.receive(url, AttributeNames=["All"], MessageAttributeNames=["All"])
    by_id = {one["message_id"]: one for one in map(as_received, received)}
    if fifo:
        received = sqs_beside.receive(url, AttributeNames=["All"], MessageAttributeNames=["All"])
        by_id |= {one["message_id"]: one for one in map(as_received, received)}
    assert {one["message_id"]: as_browsed(one) for one in seen} == by_id
    assert len(by_id) == 2


def test_envelopes_are_signed(rest: Rest, server: Server) -> None:
    with Sns("query", server.url, rest.account) as sns:
        sqs = sns.sqs()
        url, topic = sqs.create(), sns.create()
        sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=sqs.arn(url))
        sns.call("Publish", TopicArn=topic, Message="hello")
        [seen] = browse(rest, "orders")
        [received] = sqs.receive(url)
        assert json.loads(seen["body"])["Signature"]
        assert (seen["body"], seen["md5_of_body"]) == (received["Body"], received["MD5OfBody"])


def test_delayed_messages_are_there(rest: Rest, server: Server) -> None:
    name = rest.create()
    late, now = send(rest, name, delay=600), send(rest, name)
    assert [(one["id"], one["state"]) for one in browse(rest, name)] == [
        (late, "delayed"),
        (now, "visible"),
    ]
    server.advance(601)
    assert {one["state"] for one in browse(rest, name)} == {"visible"}


def test_a_delayed_fifo_queue(rest: Rest, server: Server, sqs_beside: Sqs) -> None:
    url = sqs_beside.create_fifo(DelaySeconds="600")
    sqs_beside.send(url, MessageGroupId="g")
    assert [one["state"] for one in browse(rest, "orders.fifo")] == ["delayed"]
    server.advance(601)
    assert len(sqs_beside.receive(url, VisibilityTimeout=30)) == 1
    assert [one["state"] for one in browse(rest, "orders.fifo")] == ["in_flight"]
    server.advance(31)
    assert [one["state"] for one in browse(rest, "orders.fifo")] == ["visible"]


@KINDS
def test_what_is_sent_later_does_not_come(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    sent = [send(rest, name, group_id=group) for group in ("b", "d")]
    first = page(rest, name, limit=1)
    for group in ("a", "b", "c", "e"):
        send(rest, name, group_id=group)
    rest_of_it = browse(rest, name, after=first["next"], as_of=first["as_of"], limit=1)
    assert ids(first["messages"]) + ids(rest_of_it) == sent
    assert ids(browse(rest, name, as_of=first["as_of"])) == sent
    assert len(browse(rest, name)) == 6


@KINDS
def test_an_empty_queue_has_a_moment_too(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    empty = page(rest, name)
    assert (empty["messages"], empty["next"]) == ([], None)
    cut = ranges(rest, name, 5)
    assert cut["ranges"] == [{"after": None, "until": None}]
    send(rest, name)
    for moment in (empty["as_of"], cut["as_of"]):
        assert browse(rest, name, as_of=moment) == []


@KINDS
def test_deleted_and_purged_messages_are_gone(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    sent = [send(rest, name) for _ in range(4)]
    [first] = rest.receive(name, max=1)
    rest.call("DELETE", f"/v1/queues/{name}/messages/{first['id']}", status=204)
    assert ids(browse(rest, name)) == sent[1:]
    rest.call("POST", f"/v1/queues/{name}/purge")
    assert browse(rest, name) == []


@KINDS
def test_what_is_past_its_retention_is_not_there(
    rest: Rest, sqs_beside: Sqs, server: Server, fifo: bool
) -> None:
    create = sqs_beside.create_fifo if fifo else sqs_beside.create
    url = create(MessageRetentionPeriod="6000")
    name = url.rpartition("/")[2]
    send(rest, name)
    assert len(sqs_beside.receive(url, VisibilityTimeout=40_000)) == 1
    send(rest, name)
    server.advance(5_000)
    assert len(browse(rest, name)) == 2
    server.advance(2_000)
    assert browse(rest, name) == []


@KINDS
def test_a_dead_letter_came_when_it_was_moved(rest: Rest, sqs_beside: Sqs, fifo: bool) -> None:
    create = sqs_beside.create_fifo if fifo else sqs_beside.create
    suffix = ".fifo" if fifo else ""
    dead = create("dead" + suffix)
    policy = {"deadLetterTargetArn": sqs_beside.arn(dead), "maxReceiveCount": 1}
    source = create("source" + suffix, RedrivePolicy=json.dumps(policy))
    members = {"MessageGroupId": "g"} if fifo else {}
    message_id = sqs_beside.send(source, **members)["MessageId"]
    before = page(rest, "dead" + suffix)["as_of"]
    assert len(sqs_beside.receive(source, VisibilityTimeout=0)) == 1
    assert sqs_beside.receive(source, VisibilityTimeout=0) == []
    assert browse(rest, "dead" + suffix, as_of=before) == []
    [seen] = browse(rest, "dead" + suffix)
    assert seen["message_id"] == message_id
    assert seen["attributes"]["DeadLetterQueueSourceArn"] == sqs_beside.arn(source)
    assert seen["attributes"]["ApproximateReceiveCount"] == "1"
    again = page(rest, "dead" + suffix)["as_of"]
    assert len(sqs_beside.receive(dead, VisibilityTimeout=0)) == 1
    assert len(browse(rest, "dead" + suffix, as_of=again)) == 1


def test_a_queue_that_is_its_own_dead_letter_queue(rest: Rest, sqs_beside: Sqs) -> None:
    """A message that the queue dead-letters never leaves the queue."""
    url = sqs_beside.create()
    policy = {"deadLetterTargetArn": sqs_beside.arn(url), "maxReceiveCount": 1}
    members = {"QueueUrl": url, "Attributes": {"RedrivePolicy": json.dumps(policy)}}
    sqs_beside.call("SetQueueAttributes", **members)
    sent = send(rest, "orders")
    before = page(rest, "orders")["as_of"]
    assert len(sqs_beside.receive(url, VisibilityTimeout=0)) == 1
    assert sqs_beside.receive(url, VisibilityTimeout=0) == []
    [seen] = browse(rest, "orders", as_of=before)
    assert seen["id"] == sent
    assert "DeadLetterQueueSourceArn" in seen["attributes"]


@KINDS
def test_filters(rest: Rest, server: Server, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    first, second = (send(rest, name, n, group_id=f"g{n}") for n in range(2))
    assert rest.receive(name, max=1)[0]["id"] == first
    server.advance(2)
    third = send(rest, name, group_id="g0")
    by_id = {one["id"]: one for one in browse(rest, name)}
    sent_at = {key: int(one["attributes"]["SentTimestamp"]) for key, one in by_id.items()}

    def found(**query: Any) -> set[int]:
        return set(ids(browse(rest, name, limit=1, **query)))

    assert found(group_id="g0") == {first, third}
    assert found(group_id="g") == set()
    assert found(group_id="é\u20ac") == set()
    assert found(state="in_flight") == {first}
    assert found(state="visible") == {second, third}
    assert found(state="delayed") == set()
    assert found(min_receives=1) == {first}
    assert found(max_receives="0") == {second, third}
    assert found(min_receives=1, max_receives=1, group_id="g0") == {first}
    assert found(message_id=by_id[second]["message_id"]) == {second}
    several = f"{by_id[first]['message_id'].upper()},{uuid.uuid4()},{by_id[third]['message_id']}"
    assert found(message_id=several) == {first, third}
    early, late = rfc3339(sent_at[second]), rfc3339(sent_at[third])
    assert found(sent_since=late) == {third}
    assert found(sent_until=early) >= {second}
    assert third not in found(sent_until=early)
    assert found(sent_since=late, sent_until=late) == {third}
    assert found(sent_since="0001-01-01T00:00:00+14:00") == set(by_id)
    assert found(sent_since="9999-12-31T23:59:59-14:00") == set()


def rfc3339(milliseconds: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).isoformat()


@KINDS
def test_bodies_and_attributes_are_searched(rest: Rest, sqs_beside: Sqs, fifo: bool) -> None:
    """A search goes on by pages, and finds what other filters leave."""
    name = rest.create(fifo=fifo)
    for number in range(12):
        kind = "new" if number % 2 else "newer"
        members = {"headers": {"kind": kind, "number": number}}
        send(rest, name, {"order": number, "text": "ä'%_\\" if number > 5 else ""}, **members)
    sqs_beside.receive(name, 3, VisibilityTimeout=600)

    def orders(**query: Any) -> list[int]:
        return [json.loads(one["body"])["order"] for one in browse(rest, name, **query)]

    assert orders(text='"order": 1', limit=1) == [1, 10, 11]
    assert orders(text="'%_", limit=2) == [6, 7, 8, 9, 10, 11]
    assert orders(text="%") == [6, 7, 8, 9, 10, 11]
    assert orders(text="nowhere") == []
    assert orders(attribute="kind=new") == [1, 3, 5, 7, 9, 11]
    assert orders(attribute="kind=newe*", text="order", limit=3) == [0, 2, 4, 6, 8, 10]
    assert orders(attribute="kind=*", state="in_flight") == [0, 1, 2]
    assert orders(attribute="absent=*") == []
    assert orders(attribute="kind=new*", limit=12) == [*range(12)]


@KINDS
def test_the_link_leads_on_with_all_that_was_asked(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    sent = [send(rest, name, group_id="a&b") for _ in range(3)]
    query = "limit=2&group_id=a%26b&state=visible&min_receives=0&sent_since=1999-12-31T23:59:59Z"
    answer = rest.ask("GET", f"/v1/queues/{name}/browse?{query}")
    link, rel = answer.headers["link"].split("; ")
    assert rel == 'rel="next"'
    send(rest, name, group_id="a&b")
    last = rest.ask("GET", link[1:-1])
    assert "link" not in last.headers
    both = [json.loads(one.body)["messages"] for one in (answer, last)]
    assert [ids(one) for one in both] == [sent[:2], sent[2:]]


def test_a_page_has_a_few_megabytes_at_most(rest: Rest) -> None:
    name = rest.create()
    sent = [send(rest, name, "x" * 1_000_000) for _ in range(6)]
    found = [ids(one) for one in pages(rest, name, limit=1000)]
    assert [len(one) for one in found] == [5, 1]
    assert [one for part in found for one in part] == sent


@KINDS
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "after=x",
        "after=-1",
        "after=1.",
        "until=99999999999999999999",
        "as_of=1.g",
        "as_of=",
        "state=gone",
        "min_receives=-1",
        "max_receives=2147483648",
        "sent_since=yesterday",
        "sent_until=2030-01-31T09:00:00",
        "message_id=17",
        f"message_id={uuid.UUID(int=1)},",
        f"group_id={'g' * 129}",
        "group=g",
        "text=",
        f"text={'t' * 1025}",
        "attribute=kind",
        "attribute=kind=",
        "attribute==new",
        f"attribute={'k' * 257}=new",
    ],
)
def test_refusals(rest: Rest, fifo: bool, query: str) -> None:
    name = rest.create(fifo=fifo)
    assert query.partition("=")[0] in rest.refusal("GET", f"/v1/queues/{name}/browse?{query}")


def test_places_belong_to_a_kind_of_queue(rest: Rest) -> None:
    standard, fifo = rest.create(), rest.create("orders", fifo=True)
    text = rest.refusal("GET", f"/v1/queues/{standard}/browse?after=5.g")
    assert text == "'5.g' is not a place in queue 'jobs': give back what it answered."
    assert "'5'" in rest.refusal("GET", f"/v1/queues/{fifo}/browse?until=5")
    most = "9" * 19
    assert page(rest, standard, after=most, until=most, as_of=most)["messages"] == []
    assert page(rest, fifo, after=f"{most}.~", until=f"{most}.~~", as_of=most)["messages"] == []


@KINDS
def test_support_can_be_asked_for_without_a_queue(rest: Rest, fifo: bool) -> None:
    answer = rest.ask("OPTIONS", "/v1/queues/no-such-queue/browse")
    assert (answer.status, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    assert rest.ask("OPTIONS", "/v1/queues/no-such-queue/no-such-thing").status == 404
    for path in ("browse", "browse/ranges"):
        text = rest.refusal("GET", f"/v1/queues/absent/{path}", status=404)
        assert text == "Queue 'absent' does not exist"
    name = rest.create(fifo=fifo)
    assert rest.ask("HEAD", f"/v1/queues/{name}/browse").status == 200


@KINDS
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 1000])
def test_ranges_hold_about_as_many_messages_each(rest: Rest, fifo: bool, parts: int) -> None:
    name = rest.create(fifo=fifo)
    sent = [send(rest, name, group_id="deep" if n < 15 else f"g{n}") for n in range(20)]
    cut = ranges(rest, name, parts)
    found = [ids(browse(rest, name, **one, as_of=cut["as_of"])) for one in cut["ranges"]]
    assert sorted(one for part in found for one in part) == sent
    sizes = {len(one) for one in found}
    assert len(found) == min(parts, 20)
    assert max(sizes) - min(sizes) <= 1


Step = tuple[str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["send", "receive", "delete", "release"]), st.integers(1, 4)),
    max_size=25,
)


def apply(rest: Rest, name: str, step: Step, deleted: set[int]) -> None:
    """Something that others do with the queue meanwhile."""
    kind, count = step
    if kind == "send":
        for number in range(count):
            send(rest, name, group_id=f"g{number}")
        return
    received = ids(rest.receive(name, max=count))
    if kind == "delete" and received:
        path = f"/v1/queues/{name}/messages"
        deleted.update(rest.call("DELETE", path, {"ids": received})["deleted"])
    elif kind == "release":
        for one in received:
            rest.call("PATCH", f"/v1/queues/{name}/messages/{one}", {"vt": 0})


@drawing.few()
@given(
    fifo=st.booleans(),
    groups=st.lists(st.integers(0, 3), max_size=20),
    limit=st.integers(1, 4),
    parts=st.integers(1, 5),
    script=steps,
)
def test_each_message_comes_once_whatever_happens_meanwhile(
    server: Server, fifo: bool, groups: list[int], limit: int, parts: int, script: list[Step]
) -> None:
    with Rest(server.url) as rest:
        name = rest.create(fifo=fifo)
        there = {send(rest, name, group_id=f"g{group}") for group in groups}
        cut = ranges(rest, name, parts)
        readers = [
            pages(rest, name, **one, as_of=cut["as_of"], limit=limit) for one in cut["ranges"]
        ]
        deleted: set[int] = set()
        seen: list[int] = []
        meanwhile = iter(script)
        while readers:
            for reader in list(readers):
                found = next(reader, None)
                if found is None:
                    readers.remove(reader)
                else:
                    seen += ids(found)
                step = next(meanwhile, None)
                if step is not None:
                    apply(rest, name, step, deleted)
    assert len(seen) == len(set(seen))
    assert set(seen) <= there
    assert there - deleted <= set(seen)


@KINDS
def test_each_message_comes_once_while_others_are_at_work(server: Server, fifo: bool) -> None:
    """Sends that are answered before the browse begins are seen; later ones never."""
    with Rest(server.url) as rest:
        name = rest.create(fifo=fifo)
        stop = threading.Event()
        answered: list[int] = []
        begun_after: list[int] = []
        deleted: set[int] = set()
        fixed = threading.Event()

        def sending(number: int) -> None:
            while not stop.is_set():
                is_later = fixed.is_set()
                sent = send(rest, name, group_id=f"g{number % 2}")
                (begun_after if is_later else answered).append(sent)

        def deleting() -> None:
            while not stop.is_set():
                received = ids(rest.receive(name, max=3))
                if received:
                    path = f"/v1/queues/{name}/messages"
                    deleted.update(rest.call("DELETE", path, {"ids": received})["deleted"])

        threads = [threading.Thread(target=sending, args=(n,)) for n in range(4)]
        threads.append(threading.Thread(target=deleting))
        for thread in threads:
            thread.start()
        try:
            while len(answered) < 150:
                assert all(thread.is_alive() for thread in threads)
                stop.wait(0.01)
            before = list(answered)
            cut = ranges(rest, name, 3)
            fixed.set()
            while not begun_after:
                assert all(thread.is_alive() for thread in threads)
                stop.wait(0.01)
            seen = [
                one
                for stretch in cut["ranges"]
                for one in ids(browse(rest, name, **stretch, as_of=cut["as_of"], limit=10))
            ]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert len(seen) == len(set(seen))
    assert set(before) - deleted <= set(seen)
    assert not set(begun_after) & set(seen)
