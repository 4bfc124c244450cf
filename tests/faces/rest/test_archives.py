"""Archives over the native API: what any face deletes is kept, read, replayed and removed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.sns_client import Sns

_numbers = itertools.count()
KINDS = pytest.mark.parametrize("fifo", [False, True])


def send(rest: Rest, name: str, message: Any, **members: Any) -> int:
    if name.endswith(".fifo"):
        members = {"group_id": "g", "deduplication_id": f"d{next(_numbers)}"} | members
    return rest.send(name, message, **members)


def consume(rest: Rest, name: str, *messages: Any) -> list[int]:
    """Send, receive and delete."""
    ids = [send(rest, name, message) for message in messages]
    assert [one["id"] for one in rest.receive(name)] == ids
    rest.call("DELETE", f"/v1/queues/{name}/messages", {"ids": ids})
    return ids


def archive(rest: Rest, name: str, **query: Any) -> list[dict[str, Any]]:
    """One page."""
    text = "&".join(f"{key}={quote(str(value))}" for key, value in query.items())
    found: list[dict[str, Any]] = rest.call("GET", f"/v1/queues/{name}/archive?{text}")
    return found


def kept(rest: Rest, name: str, **query: Any) -> list[Any]:
    return [one["message"] for one in archive(rest, name, **query)]


def replay(rest: Rest, name: str, **body: Any) -> dict[str, Any]:
    done: dict[str, Any] = rest.call("POST", f"/v1/queues/{name}/archive/replays", body, status=201)
    return done


Delete = Callable[[Rest, Sqs, str, list[dict[str, Any]]], None]


def by_handle(rest: Rest, sqs: Sqs, name: str, messages: list[dict[str, Any]]) -> None:
    sqs.delete(sqs.url_of(name), *messages)


def by_batch(rest: Rest, sqs: Sqs, name: str, messages: list[dict[str, Any]]) -> None:
    entries = [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
        for number, message in enumerate(messages)
    ]
    sqs.call("DeleteMessageBatch", QueueUrl=sqs.url_of(name), Entries=entries)


@KINDS
@pytest.mark.parametrize("delete", [by_handle, by_batch])
def test_what_sqs_clients_delete_is_archived(
    rest: Rest, sqs_beside: Sqs, fifo: bool, delete: Delete
) -> None:
    name = rest.create(fifo=fifo, archive=True)
    for number in range(3):
        send(rest, name, {"n": number}, headers={"tenant": "acme", "late": True})
    messages = sqs_beside.receive(sqs_beside.url_of(name))
    delete(rest, sqs_beside, name, messages)
    # A client that did not hear of it tries once more.
    delete(rest, sqs_beside, name, messages)
    found = archive(rest, name)
    assert [one["message"] for one in found] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [one["message_id"] for one in found] == [one["MessageId"] for one in messages]
    assert {json.dumps(one["headers"]) for one in found} == {'{"tenant": "acme", "late": true}'}
    assert {one["read_ct"] for one in found} == {1}
    assert {one.get("group_id") for one in found} == ({"g"} if fifo else {None})


@KINDS
def test_what_is_deleted_by_id_is_archived(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo, archive=True)
    sent = [send(rest, name, number) for number in range(3)]
    rest.receive(name)
    path = f"/v1/queues/{name}/messages"
    rest.call("DELETE", f"{path}/{sent[0]}", status=204)
    rest.call("DELETE", f"{path}/{sent[0]}", status=404)
    assert rest.call("DELETE", path, {"ids": [*sent[::-1]]}) == {"deleted": [sent[2], sent[1]]}
    assert rest.call("DELETE", path, {"ids": sent}) == {"deleted": []}
    found = archive(rest, name)
    assert [(one["id"], one["message"]) for one in found] == [*zip(sent, range(3), strict=True)]
    one = rest.call("GET", f"/v1/queues/{name}/archive/{sent[1]}")
    assert one == found[1]
    text = rest.refusal("GET", f"/v1/queues/{name}/archive/{sent[2] + 1_000}", status=404)
    assert text == f"The archive of queue '{name}' has no message {sent[2] + 1_000}."


def test_what_is_purged_is_not_archived(rest: Rest) -> None:
    name = rest.create(archive=True)
    rest.send(name)
    assert rest.call("POST", f"/v1/queues/{name}/purge") == {"deleted": 1}
    assert archive(rest, name) == []


@KINDS
def test_archive_is_turned_on_and_off(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    path = f"/v1/queues/{name}"
    consume(rest, name, "before")
    changed = rest.call("PATCH", path, {"archive": True, "archive_days": 30})
    assert (changed["name"], changed["archive"], changed["archive_days"]) == (name, True, 30)
    shown = rest.call("GET", path)
    assert (shown["archive"], shown["archive_days"]) == (True, 30)
    consume(rest, name, "while it is on")
    assert rest.call("PATCH", path, {"archive": False})["archive_days"] == 30
    consume(rest, name, "after")
    assert kept(rest, name) == ["while it is on"]
    assert rest.call("PATCH", path, {"archive_days": None})["archive_days"] is None
    assert rest.call("PATCH", path, {})["archive"] is False


@pytest.mark.parametrize(
    "body",
    [
        {"archive": "yes"},
        {"archive": None},
        {"archive_days": 0},
        {"archive_days": 3_651},
        {"archive_days": 1.5},
        {"colour": "red"},
        [],
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(rest: Rest, body: Any) -> None:
    name = rest.create(archive=True, archive_days=7)
    rest.refusal("PATCH", f"/v1/queues/{name}", body)
    shown = rest.call("GET", f"/v1/queues/{name}")
    assert (shown["archive"], shown["archive_days"]) == (True, 7)


def test_an_archive_is_read_page_by_page(rest: Rest) -> None:
    name = rest.create(archive=True)
    ids = consume(rest, name, *range(7))
    path: str | None = f"/v1/queues/{name}/archive?limit=3"
    found: list[int] = []
    pages = 0
    while path is not None:
        answer = rest.ask("GET", path)
        assert answer.status == 200
        found += [one["id"] for one in json.loads(answer.body)]
        link = re.fullmatch(r'<(.*)>; rel="next"', answer.headers.get("link", ""))
        path = link[1] if link else None
        pages += 1
    assert (found, pages) == (ids, 3)
    assert [one["id"] for one in archive(rest, name, after=ids[4])] == ids[5:]


def test_an_archive_is_filtered_by_time_and_schedule(rest: Rest, server: Server) -> None:
    name = rest.create(archive=True)
    for number, schedule in enumerate(("nightly", "night", None, "nightly")):
        headers = {"_schedule": {"name": schedule, "at": "nightly"}} if schedule else {}
        rest.send(name, number, headers=headers)
        [message] = rest.receive(name)
        rest.call("DELETE", f"/v1/queues/{name}/messages/{message['id']}", status=204)
        server.advance(60)
    assert kept(rest, name, schedule="nightly") == [0, 3]
    assert kept(rest, name, schedule="night") == [1]
    assert kept(rest, name, schedule='night "ly"') == []
    first, second, third, _ = [one["archived_at"] for one in archive(rest, name)]
    assert kept(rest, name, since=second, until=third) == [1, 2]
    assert kept(rest, name, since=second, schedule="nightly") == [3]
    assert kept(rest, name, until=first) == [0]
    found: list[Any] = []
    place = f"/v1/queues/{name}/archive?limit=1&since={first}&schedule=nightly"
    while place:
        answer = rest.ask("GET", place)
        found += [one["message"] for one in json.loads(answer.body)]
        place = "".join(re.findall("<(.*)>", answer.headers.get("link", "")))
    assert found == [0, 3]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "after=-1",
        "after=x",
        "since=yesterday",
        "since=2030-01-01T00:00:00",
        "until=0001-01-01T00:00:00%2B14:00",
        "colour=red",
    ],
)
def test_a_query_that_makes_no_sense_is_refused(rest: Rest, query: str) -> None:
    name = rest.create(archive=True)
    assert rest.refusal("GET", f"/v1/queues/{name}/archive?{query}")


@KINDS
def test_messages_are_replayed_by_their_ids(rest: Rest, fifo: bool) -> None:
    name = rest.create(fifo=fifo, archive=True)
    ids = consume(rest, name, "a", "b", "c")
    done = replay(rest, name, ids=[ids[2], ids[0], ids[2] + 1_000])
    assert done == {"replayed": 2, "ids": done["ids"], "last_id": None}
    again = rest.receive(name)
    assert [(one["id"], one["message"]) for one in again] == [*zip(done["ids"], "ac", strict=True)]
    assert {one.get("group_id") for one in again} == ({"g"} if fifo else {None})
    assert {one["read_ct"] for one in again} == {1}


@KINDS
def test_a_stretch_is_replayed_to_another_queue(rest: Rest, server: Server, fifo: bool) -> None:
    name, target = rest.create(fifo=fifo, archive=True), rest.create("again", fifo=fifo)
    for part in ("ab", "cdef", "gh"):
        consume(rest, name, *part)
        server.advance(60)
    times = [one["archived_at"] for one in archive(rest, name)]
    stretch = {"since": times[2], "until": times[5], "limit": 3, "to": target}
    first = replay(rest, name, **stretch)
    second = replay(rest, name, **stretch, after=first["last_id"])
    assert (first["replayed"], second["replayed"], second["last_id"]) == (3, 1, None)
    assert rest.messages(target) == ["c", "d", "e", "f"]
    assert rest.messages(name) == []
    assert rest.call("GET", f"/v1/queues/{target}")["total_messages"] == 4


@pytest.mark.parametrize(
    "body",
    [
        {"ids": []},
        {"ids": [0]},
        {"ids": ["1"]},
        {"ids": [1], "after": 5},
        {"ids": [1], "since": "2030-01-01T00:00:00Z"},
        {"ids": [1], "until": "2030-01-01T00:00:00Z"},
        {"ids": list(range(1, 1_002))},
        {"limit": 0},
        {"limit": 1_001},
        {"since": "2030-01-01"},
        {"to": "jobs.fifo"},
        {"to": 5},
        {"colour": "red"},
        [],
    ],
)
def test_a_replay_that_makes_no_sense_sends_nothing(rest: Rest, body: Any) -> None:
    name = rest.create(archive=True)
    rest.create(fifo=True)
    consume(rest, name, "a")
    assert rest.refusal("POST", f"/v1/queues/{name}/archive/replays", body)
    assert rest.messages(name) == []


def test_a_replay_to_a_queue_that_is_not_there(rest: Rest) -> None:
    name = rest.create(archive=True)
    path = f"/v1/queues/{name}/archive/replays"
    assert rest.refusal("POST", path, {"to": "absent"}, status=404) == (
        "Queue 'absent' does not exist"
    )


def test_an_archive_is_emptied(rest: Rest, server: Server) -> None:
    name = rest.create(archive=True)
    consume(rest, name, "a", "b")
    server.advance(60)
    consume(rest, name, "c")
    path = f"/v1/queues/{name}/archive"
    before = archive(rest, name)[2]["archived_at"]
    rest.refusal("DELETE", f"{path}?before=today")
    assert rest.call("DELETE", f"{path}?before={before}") == {"deleted": 2}
    assert kept(rest, name) == ["c"]
    assert rest.call("DELETE", path) == {"deleted": 1}
    assert rest.call("DELETE", path) == {"deleted": 0}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "archive"),
        ("DELETE", "archive"),
        ("GET", "archive/1"),
        ("POST", "archive/replays"),
        ("PATCH", ""),
    ],
)
def test_a_queue_that_is_not_there_has_no_archive(rest: Rest, method: str, path: str) -> None:
    target = f"/v1/queues/absent/{path}".rstrip("/")
    arguments: list[object] = [{}] if method in ("POST", "PATCH") else []
    text = rest.refusal(method, target, *arguments, status=404)
    assert text == "Queue 'absent' does not exist"


def test_archives_of_accounts_are_their_own(rest: Rest) -> None:
    name = rest.create(archive=True)
    [kept_id] = consume(rest, name, "secret")
    with Rest(rest.url) as other:
        assert other.create(archive=True) == name
        assert archive(other, name) == []
        other.refusal("GET", f"/v1/queues/{name}/archive/{kept_id}", status=404)
        assert replay(other, name, ids=[kept_id])["replayed"] == 0


def test_envelopes_are_signed_wherever_they_are_read(rest: Rest) -> None:
    """The copy in the queue has no signature until it is received; nor has the archived one."""
    name = rest.create(archive=True)
    with Sns("query", rest.url, rest.account) as sns:
        topic = sns.create()
        sns.subscribe(topic, "sqs", f"arn:aws:sqs:{sns.region}:{sns.account}:{name}")
        sns.call("Publish", TopicArn=topic, Message="news")
    [received] = rest.receive(name)
    assert len(received["message"]["Signature"]) > 300
    rest.call("DELETE", f"/v1/queues/{name}/messages/{received['id']}", status=204)
    assert kept(rest, name) == [received["message"]]
    one = rest.call("GET", f"/v1/queues/{name}/archive/{received['id']}")
    assert one["message"] == received["message"]
    replay(rest, name)
    assert rest.messages(name) == [received["message"]]


def test_text_that_looks_like_an_envelope_is_not_signed(rest: Rest, json_sqs: Sqs) -> None:
    """Only what a topic wrote gets a signature, also after a replay."""
    forged = '{\n  "Type" : "Notification",\n  "SignatureVersion" : "1",\n  "Signature" : "",\n}'
    with Rest(rest.url, json_sqs.account) as mine:
        name = mine.create(archive=True)
        url = json_sqs.url_of(name)
        json_sqs.send(url, forged)
        json_sqs.delete(url, *json_sqs.receive(url))
        assert kept(mine, name) == [forged]
        replay(mine, name)
        assert json_sqs.bodies(url) == [forged]


def test_deletes_that_archive_are_counted_as_others_are(counting_server: Server) -> None:
    with Rest(counting_server.url) as rest:
        name = rest.create(f"counted-{rest.account}", archive=True)
        consume(rest, name, "a", "b")
        replay(rest, name)
    sample = f'messages_%s_total{{queue="{name}"}}'
    assert counting_server.metric("queue_" + sample % "deleted") == 2
    assert counting_server.metric("queue_" + sample % "sent") == 4
