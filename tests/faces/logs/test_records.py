"""Publishing records, and reading them by offset."""

from __future__ import annotations

import pytest

from tests.faces.logs.client import Logs, record


def test_records_are_read_as_they_were_published(logs: Logs) -> None:
    placed = logs.publish(
        record("1", metadata={"tenant": "acme"}, id="one"),
        record("2", key="b"),
        record("AAH/", encoding="base64"),
    )
    assert placed == [
        {"partition": 0, "offset": 0, "id": "one"},
        {"partition": 1, "offset": 0},
        {"partition": 0, "offset": 1},
    ]
    first, second = logs.records()
    assert first.pop("published_at") == second.pop("published_at")
    assert first == {
        "partition": 0,
        "offset": 0,
        "key": "a",
        "payload": "1",
        "id": "one",
        "metadata": {"tenant": "acme"},
    }
    assert second == {
        "partition": 0,
        "offset": 1,
        "key": "a",
        "payload": "AAH/",
        "encoding": "base64",
    }
    assert logs.payloads(1) == ["2"]


def test_offsets_are_dense_in_each_partition(logs: Logs) -> None:
    for start in range(3):
        placed = logs.publish(*[record(str(n), key=key) for n in range(4) for key in "ab"])
        assert [one["offset"] for one in placed[::2]] == [*range(start * 4, start * 4 + 4)]
    assert logs.payloads() == [str(n) for n in range(4)] * 3
    assert [(one["key"], one["start"], one["end"]) for one in logs.partitions()] == [
        ("a", 0, 12),
        ("b", 0, 12),
    ]


def test_an_id_is_published_once_for_a_key(logs: Logs) -> None:
    [first] = logs.publish(record("1", id="x"))
    again, other, plain, twice = logs.publish(
        record("2", id="x"), record("3", id="x", key="b"), record("4"), record("5", id="x")
    )
    assert again == twice == first | {"duplicate": True}
    assert "duplicate" not in other
    assert plain == {"partition": 0, "offset": 1}
    assert (logs.payloads(), logs.payloads(1)) == (["1", "4"], ["3"])
    assert logs.publish(record("6", id="x"), log="another") == [first]


@pytest.mark.parametrize("has_ids", [False, True], ids=["plain", "with-ids"])
def test_keys_share_the_partitions_of_a_log_that_has_so_many(logs: Logs, has_ids: bool) -> None:
    assert logs.make(partitions=3)["partition_count"] == 3
    more = {"id": "same"} if has_ids else {}
    placed = logs.publish(*[record(str(n), key=f"k{n}", **more) for n in range(20)])
    assert {one["partition"] for one in placed} == {0, 1, 2}
    found = [one for number in range(3) for one in logs.records(number)]
    assert {(one["key"], one["payload"]) for one in found} == {(f"k{n}", str(n)) for n in range(20)}
    assert [one["key"] for one in logs.partitions()] == [None] * 3


def test_a_range_is_read_in_columns(logs: Logs) -> None:
    logs.publish(*[record(str(n), id=f"i{n}" if n % 2 else f"{n}") for n in range(5)])
    [found] = logs.read({"partition": 0, "from": 1, "to": 4})
    assert len({*found.pop("published_at_us")}) == 1
    assert found == {
        "partition": 0,
        "key": "a",
        "start": 0,
        "next": 4,
        "offsets": [1, 2, 3],
        "payloads": ["1", "2", "3"],
        "ids": ["i1", "2", "i3"],
    }


def test_what_is_cut_short_goes_on_at_next(logs: Logs) -> None:
    logs.publish(*[record("x" * 100, key=key) for _ in range(3) for key in "ab"])
    ranges = [{"partition": number} for number in (0, 1)]
    first, second = logs.read(*ranges, max_bytes=450)
    assert [(one["offsets"], one["next"]) for one in (first, second)] == [
        ([0, 1, 2], 3),
        ([0, 1], 2),
    ]
    rest = logs.read(
        *[{"partition": n, "from": one["next"]} for n, one in enumerate((first, second))]
    )
    assert [(one["offsets"], one["next"]) for one in rest] == [([], 3), ([2], 3)]
    assert logs.read(*ranges, max_bytes=1)[0]["offsets"] == [0]


def test_a_deleted_record_leaves_a_gap(logs: Logs) -> None:
    logs.publish(*[record(str(n)) for n in range(3)])
    logs.call("DELETE", "/v1/logs/orders/records/0/1", status=204)
    logs.refusal("GET", "/v1/logs/orders/records/0/1", status=404)
    logs.refusal("DELETE", "/v1/logs/orders/records/0/1", status=404)
    assert logs.payloads() == ["0", "2"]
    shown = logs.call("GET", "/v1/logs/orders")
    assert (shown["records"], shown["bytes"]) == (2, 2)
    assert logs.publish(record("3"))[0]["offset"] == 3


@pytest.mark.parametrize("partitions", [None, 2])
def test_records_of_a_key_are_found_in_its_partition(logs: Logs, partitions: int | None) -> None:
    logs.make(partitions=partitions)
    keys = [f"shop {number}" for number in range(6)]
    logs.publish(*[record(f"{key} {n}", key=key) for n in range(3) for key in keys])
    for key in keys:
        assert logs.payloads(key=key.replace(" ", "%20")) == [f"{key} {n}" for n in range(3)]
    first = logs.call("GET", "/v1/logs/orders/records?max=2&key=shop%204")
    assert [one["payload"] for one in first["records"]] == ["shop 4 0", "shop 4 1"]
    rest = logs.call("GET", f"/v1/logs/orders/records?key=shop%204&from={first['next']}")
    assert [one["payload"] for one in rest["records"]] == ["shop 4 2"]
    for key in ("nobody's", "", "x" * 256, "%f0%9f%98%80"):
        assert logs.records(key=key) == []
    assert len(logs.partitions()) == (partitions or 6)
