"""Whatever is asked of groups is answered or refused, and what is refused changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.logs.client import Logs, record

_BIG = 9_223_372_036_854_775_807
_GROUP = "/v1/logs/orders/groups/billing"
_ONE = f"{_GROUP}/subscribers/one"


class Consumed:
    """A log with a subscriber that was given a record."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        logs.publish(record("1"), record("2"))
        self.session = logs.call("PUT", _ONE, {})["session"]
        found = logs.call("POST", f"{_ONE}/fetch", {"session": self.session, "max": 1})
        self.receipt = found["records"][0]["receipt"]
        self.before = self.state()

    def state(self) -> Any:
        """All that can be seen of the group."""
        shown = self.logs.call("GET", _GROUP)
        del shown["watermark_age_seconds"]
        for one in shown["subscribers"]:
            del one["live_until"]
        return shown, self.logs.call("GET", f"{_GROUP}/partitions"), self.logs.payloads()


@pytest.fixture
def consumed(logs: Logs) -> Consumed:
    return Consumed(logs)


_REFUSED = [
    ("PUT", _ONE, {"session": 0}),
    ("PUT", _ONE, {"session": -1}),
    ("PUT", _ONE, {"session": _BIG + 1}),
    ("PUT", _ONE, {"session": 10**400}),
    ("PUT", _ONE, {"session": 1.5}),
    ("PUT", _ONE, {"session": "1"}),
    ("PUT", _ONE, {"session": True}),
    ("PUT", _ONE, {"session": None}),
    ("PUT", _ONE, []),
    ("PUT", f"{_GROUP}/subscribers/%00", {}),
    ("PUT", f"{_GROUP}/subscribers/{'x' * 81}", {}),
    ("PUT", "/v1/logs/orders/groups/a%00/subscribers/one", {}),
    ("PUT", "/v1/logs/orders/groups/%ed%a0%80/subscribers/one", {}),
    ("PUT", "/v1/logs/a%00/groups/a/subscribers/one", {}),
    ("POST", f"{_ONE}/fetch", {}),
    ("POST", f"{_ONE}/fetch", {"session": _BIG + 1}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "max": 0}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "max": 1_001}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "max": _BIG}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "wait": 20.001}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "wait": -1}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "wait": 1e400}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "partitions": []}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "partitions": [-1]}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "partitions": [2_147_483_648]}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "partitions": [0] * 1_001}),
    ("POST", f"{_ONE}/fetch", {"session": 1, "partitions": 0}),
    ("POST", f"{_GROUP}/seek", {}),
    ("POST", f"{_GROUP}/seek", {"to": ""}),
    ("POST", f"{_GROUP}/seek", {"to": "soon"}),
    ("POST", f"{_GROUP}/seek", {"to": "2030-01-31T09:00:00"}),
    ("POST", f"{_GROUP}/seek", {"to": "0001-01-01T00:00:00+14:00"}),
    ("POST", f"{_GROUP}/seek", {"to": "9999-12-31T23:59:59-14:00"}),
    ("POST", f"{_GROUP}/seek", {"to": "earliest", "offsets": [{"partition": 0, "offset": 0}]}),
    ("POST", f"{_GROUP}/seek", {"offsets": []}),
    ("POST", f"{_GROUP}/seek", {"offsets": [{"partition": 0, "offset": -1}]}),
    ("POST", f"{_GROUP}/seek", {"offsets": [{"partition": 0, "offset": _BIG + 1}]}),
    ("POST", f"{_GROUP}/seek", {"offsets": [{"partition": 0, "offset": 0}] * 5_001}),
    ("POST", f"{_GROUP}/commit", {"offsets": [{"partition": 0}]}),
    ("POST", f"{_GROUP}/commit", {"offsets": {"0": 1}}),
    ("POST", f"{_GROUP}/deliveries", {"deliveries": []}),
    ("POST", f"{_GROUP}/deliveries", {}),
    ("POST", f"{_GROUP}/commit", {"offsets": [{"partition": 0, "offset": _BIG + 1}]}),
    ("PUT", f"{_GROUP}%20x", {}),
    ("PUT", f"{_GROUP}%C3%A4", {}),
    ("PUT", f"{_GROUP}{'x' * 81}", {}),
    ("PUT", "/v1/logs/orders/groups/a%00b", {}),
    ("PUT", f"{_GROUP}/subscribers/a%20b", {}),
    ("PUT", f"{_GROUP}x", {"unknown": 1}),
    ("PUT", f"{_GROUP}x", {"batch_size": 0}),
    ("PUT", f"{_GROUP}x", {"batch_size": 10**30}),
    ("PUT", f"{_GROUP}x", {"batch_size": 1_001}),
    ("PUT", f"{_GROUP}x", {"visibility_timeout": 0}),
    ("PUT", f"{_GROUP}x", {"visibility_timeout": 1e400}),
    ("PUT", f"{_GROUP}x", {"lease": -0.0}),
    ("PUT", f"{_GROUP}x", {"lease": 3_601}),
    ("PUT", f"{_GROUP}x", {"lease": "30"}),
    ("PUT", f"{_GROUP}x", {"backoff": {"factor": 0}}),
    ("PUT", f"{_GROUP}x", {"max_attempts": _BIG}),
    ("PUT", f"{_GROUP}x", {"backoff": {"factor": 1e300}}),
    ("PUT", f"{_GROUP}x", {"backoff": {"initial": -1}}),
    ("PUT", f"{_GROUP}x", {"dead_letter_log": "a\x00"}),
    ("PUT", f"{_GROUP}x", {"dead_letter_log": "orders"}),
    ("PUT", f"{_GROUP}x", {"dead_letter_log": "x" * 81}),
    ("PUT", f"{_GROUP}x", {"start": "now\x00"}),
    ("PUT", f"{_GROUP}x", {"start": "yesterday"}),
    ("PUT", f"{_GROUP}x", {"start": "2030-01-31T09:00:00"}),
    ("PUT", f"{_GROUP}x", {"start": "0001-01-01T00:00:00+14:00"}),
    ("PUT", f"{_GROUP}x", {"start": "2030-01-31T09:00:00Z" + " " * 40}),
    ("PATCH", _GROUP, {"batch_size": None}),
    ("PATCH", _GROUP, {"start": "latest"}),
    ("DELETE", _ONE, None),
    ("DELETE", f"{_ONE}?session=x", None),
    ("DELETE", f"{_ONE}?session={_BIG + 1}", None),
    ("DELETE", f"{_ONE}?session=1&release=maybe", None),
    ("GET", f"{_GROUP}/partitions?max=10001", None),
    ("GET", f"{_GROUP}/partitions?after=-2", None),
    ("GET", "/v1/logs/orders/dead-letters?group=%00", None),
    ("POST", "/v1/logs/orders/dead-letters/requeue", {}),
    ("POST", "/v1/logs/orders/dead-letters/requeue", {"all": 1}),
    ("POST", "/v1/logs/orders/dead-letters/requeue", {"offsets": []}),
    ("POST", "/v1/logs/orders/dead-letters/requeue", {"all": True, "offsets": []}),
    ("POST", "/v1/logs/orders/dead-letters/purge?group=%00", None),
]


@pytest.mark.parametrize(
    ("method", "path", "body"), _REFUSED, ids=[json.dumps(one)[:90] for one in _REFUSED]
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    consumed: Consumed, method: str, path: str, body: Any
) -> None:
    answer = consumed.logs.ask(method, path, **({} if body is None else {"body": body}))
    assert answer.status in (400, 404), answer.text
    assert list(json.loads(answer.body)) == ["error"]
    assert consumed.state() == consumed.before


_BODIES = [
    b"",
    b"{",
    b"\xff\xfe",
    b'{"deliveries": [{"receipt": "\xed\xa0\x80", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "\\ud800", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "\\u0000", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "ack", "delay": NaN}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "nack", "delay": 1e999}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "nack", "delay": 43200.1}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "nack", "delay": -1}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "postpone"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "steal"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "reject", "error": "\\udfff"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "reject", "error": "' + b"x" * 4001 + b'"}]}',
    b'{"deliveries": [{"receipt": "", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "x", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1..1.1", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1", "do": "extend"}]}',
    b'{"deliveries": [{"receipt": "1.1.1", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1.1", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.-1", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.1. 1", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.1e3", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.1.9223372036854775808", "do": "ack"}]}',
    b'{"deliveries": [{"receipt": "1.1.9' + b"9" * 60 + b'.1", "do": "ack"}]}',
    '{"deliveries": [{"receipt": "1.1.1.\u0663", "do": "ack"}]}'.encode(),
    b'{"deliveries": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"deliveries": ['
    + b'{"receipt": "1.1.1.1", "do": "ack"},' * 1_000
    + b'{"receipt": "1.1.1.1", "do": "ack"}]}',
]


@pytest.mark.parametrize("raw", _BODIES, ids=[f"{body[:60]!r}" for body in _BODIES])
def test_receipts_that_cannot_be_read_are_refused(consumed: Consumed, raw: bytes) -> None:
    """Also beside one that counts: then that does not count either."""
    mixed = raw.replace(
        b'[{"receipt', f'[{{"receipt": "{consumed.receipt}", "do": "ack"}}, {{"receipt'.encode(), 1
    )
    for body in (raw, mixed):
        answer = consumed.logs.ask("POST", f"{_GROUP}/deliveries", raw=body)
        assert answer.status == 400, answer.text
    assert consumed.state() == consumed.before


def test_receipts_of_others_do_nothing(consumed: Consumed, logs: Logs) -> None:
    """Of another account, another log and another group; made up, and of what is far off."""
    group, partition, offset, delivery = consumed.receipt.split(".")
    made_up = [
        f"{group}.{partition}.{offset}.{int(delivery) + 1}",
        f"{group}.{partition}.{offset}.0",
        f"{group}.{partition}.1.{delivery}",
        f"{group}.{partition}.{_BIG}.{delivery}",
        f"{group}.{_BIG}.{offset}.{delivery}",
        f"{int(group) + 1}.{partition}.{offset}.{delivery}",
        f"{_BIG}.{partition}.{offset}.{delivery}",
        f"0.0.0.{_BIG}",
    ]
    with Logs(logs.url) as other:
        theirs = Consumed(other)
        for client, receipts in ((logs, [*made_up, theirs.receipt]), (other, [consumed.receipt])):
            for do in ("ack", "nack", "reject", "release", "extend", "postpone"):
                done = [{"receipt": one, "do": do, "delay": 1} for one in receipts]
                found = client.call("POST", f"{_GROUP}/deliveries", {"deliveries": done})
                results = {one["result"] for one in found["results"]}
                assert results <= {"gone", "superseded"}
        assert theirs.state() == theirs.before
    assert consumed.state() == consumed.before
    logs.publish(record(), log="other")
    for path in ("/v1/logs/orders/groups/search", "/v1/logs/other/groups/billing"):
        logs.call("PUT", f"{path}/subscribers/one", {})
        body = {"deliveries": [{"receipt": consumed.receipt, "do": "ack"}]}
        assert logs.call("POST", f"{path}/deliveries", body) == {"results": [{"result": "gone"}]}
    assert consumed.state() == consumed.before


def test_what_is_extreme_and_right_is_done(logs: Logs) -> None:
    logs.publish(record("1"), record("2"))
    odd = {"visibility_timeout": 5e-324, "lease": 0.3, "backoff": {"initial": 0, "factor": 100}}
    logs.call("PUT", _GROUP, odd | {"max_attempts": 1_000}, status=201)
    session = logs.call("PUT", _ONE, {})["session"]
    answer = logs.ask("POST", f"{_ONE}/fetch", body={"session": session})
    assert answer.status in (200, 409)
    change = {"lease": 3_600, "visibility_timeout": 43_200}
    logs.call("PATCH", _GROUP, change)
    session = logs.call("PUT", _ONE, {})["session"]
    for offset in (_BIG, 0):
        logs.call(
            "POST",
            f"{_GROUP}/seek",
            {"offsets": [{"partition": 0, "offset": offset}] * 2},
            status=204,
        )
    fetched = logs.call(
        "POST", f"{_ONE}/fetch", {"session": session, "partitions": [0] * 1_000, "max": 1_000}
    )
    assert [one["payload"] for one in fetched["records"]] == ["1", "2"]
    done = [
        {"receipt": fetched["records"][0]["receipt"], "do": "nack", "delay": 43_200},
        {"receipt": fetched["records"][1]["receipt"], "do": "reject", "error": "\x00" * 4_000},
    ]
    found = logs.call("POST", f"{_GROUP}/deliveries", {"deliveries": done})
    assert [one["result"] for one in found["results"]] == ["done", "dead_lettered"]
    [letter] = logs.call("GET", "/v1/logs/orders/dead-letters")["records"]
    assert letter["payload"] == "2"
