"""Logs as a whole: their settings, and what they hold."""

from __future__ import annotations

from tests.faces.logs.client import Logs, record


def test_a_log_is_made_with_settings(logs: Logs) -> None:
    made = logs.make(partitions=2, max_age=60, retain_consumed=None)
    assert {name: made[name] for name in made if name != "created_at"} == {
        "log": "orders",
        "partitions": 2,
        "partition_count": 2,
        "records": 0,
        "bytes": 0,
        "oldest_at": None,
        "groups": 0,
        "retain_consumed": None,
        "max_age": 60,
        "max_bytes": None,
    }
    same = {"log": "orders", "partitions": 2, "max_age": 60, "retain_consumed": None}
    assert logs.call("POST", "/v1/logs", same) == made
    assert "orders" in logs.refusal("POST", "/v1/logs", {"log": "orders"}, status=409)


def test_what_is_not_given_stays(logs: Logs) -> None:
    made = logs.make(max_age=60)
    changed = logs.call("PATCH", "/v1/logs/orders", {"max_bytes": 5, "max_age": None})
    assert changed == made | {"max_bytes": 5, "max_age": None}
    assert logs.call("GET", "/v1/logs/orders") == changed


def test_logs_are_listed_in_pages(logs: Logs) -> None:
    for name in ("b", "a-2", "a-1"):
        logs.publish(record("x"), log=name)
    answer = logs.ask("GET", "/v1/logs?prefix=a&max=1")
    assert answer.headers["link"] == '</v1/logs?max=1&after=a-1&prefix=a>; rel="next"'
    assert [one["log"] for one in logs.call("GET", "/v1/logs")["logs"]] == ["a-1", "a-2", "b"]
    assert {one["records"] for one in logs.call("GET", "/v1/logs")["logs"]} == {1}


def test_partitions_are_listed_in_pages(logs: Logs) -> None:
    logs.publish(*[record("x", key=key) for key in "abc"])
    answer = logs.ask("GET", "/v1/logs/orders/partitions?max=2")
    place = "/v1/logs/orders/partitions?max=2&after=1"
    assert answer.headers["link"] == f'<{place}>; rel="next"'
    assert [one["key"] for one in logs.call("GET", place)["partitions"]] == ["c"]


def test_a_purged_log_goes_on(logs: Logs) -> None:
    logs.publish(record("1"), record("2"))
    assert logs.call("POST", "/v1/logs/orders/purge") == {"records": 2}
    assert logs.publish(record("3"))[0]["offset"] == 2
    [found] = logs.read({"partition": 0})
    assert (found["start"], found["offsets"], found["next"]) == (2, [2], 3)


def test_a_deleted_log_can_be_made_again(logs: Logs) -> None:
    logs.publish(record("1"))
    logs.call("DELETE", "/v1/logs/orders", status=204)
    logs.refusal("DELETE", "/v1/logs/orders", status=404)
    assert logs.publish(record("2"))[0] == {"partition": 0, "offset": 0}


def test_a_log_is_of_an_account_and_a_region(logs: Logs) -> None:
    logs.publish(record("1"))
    with Logs(logs.url) as other, Logs(logs.url, logs.account, "eu-west-1") as elsewhere:
        for one in (other, elsewhere):
            one.refusal("GET", "/v1/logs/orders", status=404)
            assert one.call("GET", "/v1/logs") == {"logs": []}
