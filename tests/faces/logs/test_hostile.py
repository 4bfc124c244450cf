"""Whatever is asked is answered or refused: nothing is a bug."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.logs.client import Logs, record

_BIG = 9_223_372_036_854_775_807
_PUBLISH = "/v1/logs/orders/records"
_READ = "/v1/logs/orders/read"


@pytest.fixture
def filled(logs: Logs) -> Logs:
    logs.publish(record("1"))
    return logs


@pytest.mark.parametrize(
    "new",
    [
        {"key": "a\x00", "payload": ""},
        {"key": "a" * 257, "payload": ""},
        {"key": 1, "payload": ""},
        {"key": "a"},
        {"payload": ""},
        {"key": "a", "payload": None},
        {"key": "a", "payload": {"a": 1}},
        {"key": "a", "payload": "AAA", "encoding": "base64"},
        {"key": "a", "payload": "A A=", "encoding": "base64"},
        {"key": "a", "payload": "ä", "encoding": "base64"},
        {"key": "a", "payload": "", "encoding": "hex"},
        {"key": "a", "payload": "", "id": ""},
        {"key": "a", "payload": "", "id": "x" * 129},
        {"key": "a", "payload": "", "id": "\x00"},
        {"key": "a", "payload": "", "metadata": {"a": 1}},
        {"key": "a", "payload": "", "metadata": {str(n): "" for n in range(101)}},
        {"key": "a", "payload": "x" * 1_048_577},
        {"key": "a", "payload": "x" * 1_048_570, "metadata": {"a": "b"}},
        {"key": "a", "payload": "", "other": 1},
    ],
    ids=lambda new: ",".join(f"{k}={str(v)[:12]!r}" for k, v in new.items()),
)
def test_a_record_that_cannot_be_kept_is_refused(filled: Logs, new: dict[str, Any]) -> None:
    """Also where the log and the partition are known, and nobody has to be asked."""
    for key in ("a", "new"):
        before = record("2", key=key)
        filled.refusal("POST", _PUBLISH, {"records": [before, new]})
    assert filled.payloads() == ["1"]
    filled.refusal("POST", "/v1/logs/another/records", {"records": [record("2"), new]})
    filled.refusal("GET", "/v1/logs/another", status=404)


@pytest.mark.parametrize(
    "text",
    [
        b'{"records": [{"key": "a", "payload": "\xff"}]}',
        b'{"records": [{"key": "\\ud800", "payload": ""}]}',
        b'{"records": [{"key": "a", "payload": "\\ud800"}]}',
        b'{"records": [{"key": "a", "payload": "", "id": "\\udfff"}]}',
        b'{"records": [{"key": "a", "payload": "", "metadata": {"\\ud800": ""}}]}',
        b'{"records": []}',
        b'{"records": [',
        b"[]",
        b"",
    ],
)
def test_a_body_that_cannot_be_read_is_refused(filled: Logs, text: bytes) -> None:
    answer = filled.ask("POST", _PUBLISH, raw=text)
    assert answer.status == 400, answer.text


def test_what_is_odd_and_right_is_kept(filled: Logs) -> None:
    odd = {
        "key": "",
        "payload": "\x00\u2028\U0001f600",
        "id": "\U0001f600",
        "metadata": {"\x00": "\x00"},
    }
    [placed] = filled.publish(odd, log="odd")
    [found] = filled.records(log="odd")
    assert {name: found[name] for name in odd} == odd
    [columns] = filled.read({"partition": 0}, log="odd")
    assert (columns["payloads"], columns["metadata"]) == ([odd["payload"]], [odd["metadata"]])
    assert placed["offset"] == 0
    long = record("x" * 1_048_576, key="k" * 256, id="i" * 128)
    assert filled.publish(long)[0]["offset"] == 0
    assert len(filled.payloads(1)[0]) == 1_048_576


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [{"partition": 0}] * 1_001,
        [{"partition": -1}],
        [{"partition": 2_147_483_648}],
        [{"partition": 0, "from": -1}],
        [{"partition": 0, "from": _BIG + 1}],
        [{"partition": 0, "to": 1.5}],
        [{"partition": 0, "to": "1"}],
        [{"partition": None}],
        [{}],
    ],
    ids=lambda ranges: str(ranges)[:40],
)
def test_a_range_that_cannot_be_is_refused(filled: Logs, ranges: list[Any]) -> None:
    filled.refusal("POST", _READ, {"ranges": ranges})


def test_ranges_may_be_empty_backward_far_off_and_many(filled: Logs) -> None:
    ranges = [
        {"partition": 0, "from": _BIG, "to": _BIG},
        {"partition": 0, "from": 5, "to": 0},
        {"partition": 0, "from": 0, "to": 0},
        *[{"partition": 0, "from": 0, "to": 1}] * 997,
    ]
    found = filled.read(*ranges)
    assert [one["offsets"] for one in found] == [[]] * 3 + [[0]] * 997
    assert [one["next"] for one in found] == [_BIG, 5, 0] + [1] * 997
    filled.refusal("POST", _READ, {"ranges": [{"partition": 7}]}, status=404)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("offset", [1, _BIG - 1, _BIG])
def test_a_record_that_is_not_there(filled: Logs, method: str, offset: int) -> None:
    filled.refusal(method, f"/v1/logs/orders/records/0/{offset}", status=404)


@pytest.mark.parametrize("change", [{"max_bytes": 0}, {"max_bytes": _BIG}, {"wait": 21}, {"x": 1}])
def test_only_so_much_is_read(filled: Logs, change: dict[str, int]) -> None:
    filled.refusal("POST", _READ, {"ranges": [{"partition": 0}]} | change)


@pytest.mark.parametrize(
    "path",
    [
        "records?partition=-1",
        "records?partition=2147483648",
        "records?partition=x",
        "records?from=9223372036854775808",
        "records?max=0",
        "records?max=1001",
        "records/0/9223372036854775808",
        "records/0/-1",
        "records/0/x",
        "partitions?after=-2",
        "partitions?after=2147483648",
        "partitions?max=10001",
        "records?from=%00",
    ],
)
def test_a_place_that_cannot_be_is_refused(filled: Logs, path: str) -> None:
    filled.refusal("GET", f"/v1/logs/orders/{path}")


@pytest.mark.parametrize("name", ["none", "a.b", "%20", "x" * 81, "ä".encode().hex(), "%C3%A4"])
def test_a_log_that_is_not_there(logs: Logs, name: str) -> None:
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/purge"),
        ("GET", "/partitions"),
        ("GET", "/records"),
        ("GET", "/records/0/0"),
        ("DELETE", "/records/0/0"),
    ):
        logs.refusal(method, f"/v1/logs/{name}{path}", status=404)


@pytest.mark.parametrize("name", ["a.b", "a%20b", "a%2Fb", "a%00", "x" * 81, "%C3%A4"])
def test_a_log_that_cannot_be_is_not_made_by_a_publish(logs: Logs, name: str) -> None:
    logs.refusal("POST", f"/v1/logs/{name}/records", {"records": [record("1")]})


@pytest.mark.parametrize(
    "members",
    [
        {"log": "a b"},
        {"log": "a.b"},
        {"log": "a/b"},
        {"log": "ä"},
        {"log": "x" * 81},
        {"log": "a\x00"},
        {"log": ""},
        {"log": "a", "partitions": 0},
        {"log": "a", "partitions": 10_001},
        {"log": "a", "retain_consumed": -1},
        {"log": "a", "max_age": 2_147_483_648},
        {"log": "a", "max_bytes": _BIG + 1},
        {"log": "a", "other": 1},
        {},
    ],
    ids=str,
)
def test_a_log_that_cannot_be_is_refused(logs: Logs, members: dict[str, Any]) -> None:
    logs.refusal("POST", "/v1/logs", members)


@pytest.mark.parametrize(
    "body",
    [
        {"at": "2030-01-31"},
        {"at": "2030-01-31T09:00:00"},
        {"at": 5},
        {"at": "2030-01-31T09:00:00Z", "partitions": [-1]},
        {"at": "2030-01-31T09:00:00Z", "partitions": [0] * 10_001},
    ],
    ids=lambda body: json.dumps(body)[:50],
)
def test_a_time_that_cannot_be_is_refused(filled: Logs, body: dict[str, Any]) -> None:
    filled.refusal("POST", "/v1/logs/orders/offsets", body)


@pytest.mark.parametrize(
    ("at", "offset"), [("0001-01-01T00:00:00Z", 0), ("9999-12-31T23:59:59Z", 1)]
)
def test_any_time_has_offsets(filled: Logs, at: str, offset: int) -> None:
    found = filled.call("POST", "/v1/logs/orders/offsets", {"at": at})
    assert found == {"offsets": [{"partition": 0, "offset": offset}]}
    assert filled.call("POST", "/v1/logs/orders/offsets", {"at": at, "partitions": []}) == {
        "offsets": []
    }
