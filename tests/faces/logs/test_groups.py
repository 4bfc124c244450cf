"""Groups over the wire: join, fetch, acknowledge, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.logs.client import Logs, record

GROUP = "/v1/logs/orders/groups/billing"
ONE = f"{GROUP}/subscribers/one"


def join(logs: Logs, subscriber: str = ONE, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = logs.call("PUT", subscriber, body)
    return found


def fetch(logs: Logs, session: int, subscriber: str = ONE, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = logs.call("POST", f"{subscriber}/fetch", {"session": session} | more)
    return found


def settle(logs: Logs, *done: dict[str, Any]) -> list[str]:
    found = logs.call("POST", f"{GROUP}/deliveries", {"deliveries": done})
    return [one["result"] for one in found["results"]]


def test_a_subscriber_joins_fetches_and_acknowledges(logs: Logs) -> None:
    logs.publish(record("1", id="x", metadata={"a": "b"}), record("AAH/", encoding="base64"))
    standing = join(logs)
    assert standing["heartbeat_seconds"] == 10
    assert standing["visibility_timeout"] == 30
    assert (standing["share"], standing["partitions"]) == (1, [{"partition": 0, "key": "a"}])
    found = fetch(logs, standing["session"])
    assert found["rebalance"] is False
    first, second = found["records"]
    receipts = [one.pop("receipt") for one in (first, second)]
    for one in (first, second):
        assert one.pop("published_at") < one.pop("visible_until")
    assert first == {
        "partition": 0,
        "key": "a",
        "offset": 0,
        "payload": "1",
        "attempt": 1,
        "id": "x",
        "metadata": {"a": "b"},
    }
    assert (second["payload"], second["encoding"]) == ("AAH/", "base64")
    assert fetch(logs, standing["session"])["records"] == []
    settle(logs, *[{"receipt": one, "do": "ack"} for one in receipts])
    shown = logs.call("GET", GROUP)
    assert (shown["lag"], shown["in_flight"], shown["watermark_age_seconds"]) == (0, 0, 0)
    assert [one["subscriber"] for one in shown["subscribers"]] == ["one"]


def test_an_ack_is_idempotent(logs: Logs) -> None:
    """The watermark does not wait for the next poll: it is the same update."""
    logs.publish(record("1"), record("2"))
    session = join(logs)["session"]
    receipts = [one["receipt"] for one in fetch(logs, session)["records"]]
    for _ in range(3):
        acks = [{"receipt": one, "do": "ack"} for one in receipts]
        assert settle(logs, *acks) == ["done", "done"]
        [place] = logs.call("GET", f"{GROUP}/partitions")["partitions"]
        assert place["watermark"] == 1
    assert settle(logs, {"receipt": receipts[0], "do": "nack"}) == ["gone"]
    assert fetch(logs, session)["records"] == []


def test_everything_that_a_receipt_can_do(logs: Logs) -> None:
    logs.publish(*[record(str(n)) for n in range(6)])
    session = join(logs)["session"]
    receipts = [one["receipt"] for one in fetch(logs, session)["records"]]
    did = settle(
        logs,
        {"receipt": receipts[0], "do": "nack", "delay": 0, "error": "later"},
        {"receipt": receipts[1], "do": "release"},
        {"receipt": receipts[2], "do": "extend", "delay": 100},
        {"receipt": receipts[3], "do": "reject", "error": "never"},
        {"receipt": receipts[4], "do": "ack", "delay": None, "error": None},
        {"receipt": receipts[5], "do": "postpone", "delay": 600},
    )
    assert did == ["done", "done", "done", "dead_lettered", "done", "done"]
    assert fetch(logs, session)["records"] == []
    [place] = logs.call("GET", f"{GROUP}/partitions")["partitions"]
    assert place.pop("barrier_until") is not None
    assert place == {
        "partition": 0,
        "key": "a",
        "watermark": -1,
        "end": 6,
        "lag": 6,
        "in_flight": 1,
        "held_by": "one",
    }


def test_dead_letters_are_listed_and_published_again(logs: Logs) -> None:
    logs.publish(record("1", id="x"), record("2"))
    session = join(logs)["session"]
    first, second = fetch(logs, session)["records"]
    reject = {"do": "reject", "error": "never"}
    settle(logs, {"receipt": first["receipt"]} | reject, {"receipt": second["receipt"]} | reject)
    dead = logs.call("GET", "/v1/logs/orders/dead-letters")
    assert dead["log"] == "orders_dlq"
    assert [one["failure"]["last_error"] for one in dead["records"]] == ["never", "never"]
    place = {"partition": dead["records"][0]["partition"], "offset": dead["records"][0]["offset"]}
    done = logs.call("POST", "/v1/logs/orders/dead-letters/requeue", {"offsets": [place]})
    assert done == {"requeued": 1, "orphans": 0, "has_more": False}
    [again] = fetch(logs, session)["records"]
    assert (again["id"], again["payload"], again["failure_count"]) == ("x", "1", 1)
    assert again["last_error"] == "never"
    dropped = logs.call("POST", "/v1/logs/orders/dead-letters/purge?group=billing")
    assert dropped == {"records": 1}
    done = logs.call("POST", "/v1/logs/orders/dead-letters/requeue", {"all": True})
    assert done["requeued"] == 0


def test_a_group_keeps_its_settings(logs: Logs) -> None:
    logs.make()
    given = {"start": "latest", "batch_size": 1, "backoff": {"initial": 0.5}, "lease": 2.5}
    made = logs.call("PUT", GROUP, given, status=201)
    assert logs.call("PUT", GROUP, given) == made
    assert made["backoff"] == {"initial": 0.5, "factor": 2, "most": 300}
    assert (made["start"], made["batch_size"], made["lease"]) == ("latest", 1, 2.5)
    logs.refusal("PUT", GROUP, {"batch_size": 2}, status=409)
    changed = logs.call("PATCH", GROUP, {"batch_size": 5, "dead_letter_log": "dead"})
    assert (changed["batch_size"], changed["lease"]) == (5, 2.5)
    assert logs.call("GET", "/v1/logs/orders/groups")["groups"] == [changed]
    logs.call("DELETE", GROUP, status=204)
    logs.refusal("GET", GROUP, status=404)


def test_a_group_feeds_a_queue(logs: Logs) -> None:
    """It has no subscribers then; without the queue it goes on where that has ended."""
    logs.publish(record("1", id="x"))
    logs.refusal("PUT", GROUP, {"queue": "jobs"}, status=404)
    logs.create("jobs")
    logs.call("PUT", GROUP, {"queue": "jobs"}, status=201)
    assert logs.messages("jobs", wait=20) == [1]
    logs.publish(record("2", key="b"))
    assert logs.messages("jobs", wait=20) == [2]
    assert logs.call("PUT", GROUP, {"queue": "jobs"})["queue"] == "jobs"
    assert "feeds the queue 'jobs'" in logs.refusal("PUT", ONE, {})
    changed = logs.call("PATCH", GROUP, {"queue": None})
    assert (changed["queue"], changed["lag"]) == (None, 0)
    logs.publish(record("3"))
    assert [one["payload"] for one in fetch(logs, join(logs)["session"])["records"]] == ["3"]


def test_a_group_goes_on_elsewhere(logs: Logs) -> None:
    logs.publish(record("1"), record("2"))
    logs.call("PUT", GROUP, status=201)
    places = {"offsets": [{"partition": 0, "offset": 1}]}
    logs.call("POST", f"{GROUP}/commit", places, status=204)
    session = join(logs)["session"]
    assert [one["offset"] for one in fetch(logs, session)["records"]] == [1]
    logs.refusal("POST", f"{GROUP}/commit", places, status=409)
    for to in ("earliest", "1970-01-01T00:00:00Z"):
        logs.call("POST", f"{GROUP}/seek", {"to": to}, status=204)
        assert [one["offset"] for one in fetch(logs, session)["records"]] == [0, 1]
    logs.call("POST", f"{GROUP}/seek", places, status=204)
    assert [one["offset"] for one in fetch(logs, session)["records"]] == [1]


def test_sessions_end(logs: Logs) -> None:
    logs.publish(record("1"))
    old = join(logs)["session"]
    young = join(logs)["session"]
    assert young > old
    logs.refusal("POST", f"{ONE}/fetch", {"session": old}, status=409)
    logs.refusal("PUT", ONE, {"session": old}, status=409)
    assert join(logs, session=young)["session"] == young
    fetch(logs, young)
    logs.call("DELETE", f"{ONE}?session={young}&release=true", status=204)
    logs.call("DELETE", f"{ONE}?session={young}", status=204)
    again = join(logs, f"{GROUP}/subscribers/two")
    found = fetch(logs, again["session"], f"{GROUP}/subscribers/two", partitions=[0])
    assert [one["attempt"] for one in found["records"]] == [1]


PLACE = {"partition": 0, "offset": 0}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{ONE}/fetch", {"session": 1}),
        ("POST", f"{GROUP}/deliveries", {"deliveries": [{"receipt": "1.1.1.1", "do": "ack"}]}),
        ("PUT", ONE, {"session": 7}),
        ("GET", GROUP, None),
        ("PATCH", GROUP, {}),
        ("POST", f"{GROUP}/seek", {"to": "latest"}),
        ("POST", "/v1/logs/orders/dead-letters/requeue", {"offsets": [PLACE]}),
        ("GET", "/v1/logs/orders/dead-letters?group=nobody", None),
    ],
)
def test_what_is_not_there(logs: Logs, method: str, path: str, body: Any) -> None:
    logs.refusal(method, path, body, status=404)
    logs.make()
    logs.refusal(method, path, body, status=404)


def test_there_are_no_dead_letters_yet(logs: Logs) -> None:
    """Their log is made by the first."""
    place = "/v1/logs/orders/dead-letters"
    logs.refusal("GET", place, status=404)
    logs.make()
    assert logs.call("GET", place) == {"log": "orders_dlq", "records": []}
    done = {"requeued": 0, "orphans": 0, "has_more": False}
    assert logs.call("POST", f"{place}/requeue", {"all": True}) == done
    assert logs.call("POST", f"{place}/purge") == {"records": 0}
    assert [one["log"] for one in logs.call("GET", "/v1/logs")["logs"]] == ["orders"]


def test_a_lost_error_of_a_dead_letter_cannot_break_anything(logs: Logs) -> None:
    logs.publish(record("1"))
    session = join(logs)["session"]
    [one] = fetch(logs, session)["records"]
    done = {"receipt": one["receipt"], "do": "reject", "error": "\u0000 \U0001f600 \"'\\"}
    assert settle(logs, done) == ["dead_lettered"]
    [dead] = logs.call("GET", "/v1/logs/orders/dead-letters")["records"]
    assert dead["failure"]["last_error"].endswith("\U0001f600 \"'\\")
