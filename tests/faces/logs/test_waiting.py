"""A read waits for records, of this gateway and of others."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from tests.faces.logs.client import Logs, record
from tests.faces.servers import Background, Server

_WAIT_SECONDS = 20


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Server, Server]]:
    """Two gateways on one database."""
    with Server() as one, Server(dsn=one.dsn) as other:
        yield one, other


@pytest.mark.parametrize("place", [0, 1], ids=["here", "elsewhere"])
def test_a_read_waits_until_there_is_a_record(two: tuple[Server, Server], place: int) -> None:
    with Logs(two[0].url) as reader, Logs(two[place].url, reader.account) as writer:
        reader.publish(record("1"), record("1", key="b"))
        ranges = [{"partition": number, "from": 1} for number in (0, 1)]
        assert [one["offsets"] for one in reader.read(*ranges)] == [[], []]
        began = monotonic()
        reading = Background(reader.read, *ranges, wait=_WAIT_SECONDS)
        two[0].until_parked()
        writer.publish(record("2", key="b"))
        first, second = reading.result()
        assert (first["offsets"], second["payloads"]) == ([], ["2"])
        assert monotonic() - began < _WAIT_SECONDS / 2


def test_a_read_that_waits_in_vain_says_where_to_go_on(logs: Logs) -> None:
    logs.publish(record("1"))
    [found] = logs.read({"partition": 0, "from": 1}, wait=1)
    assert (found["offsets"], found["next"]) == ([], 1)


def test_what_is_there_is_not_waited_for(logs: Logs) -> None:
    logs.publish(record("1"))
    began = monotonic()
    [found] = logs.read({"partition": 0}, wait=_WAIT_SECONDS)
    assert found["payloads"] == ["1"]
    assert monotonic() - began < _WAIT_SECONDS / 2


def test_only_who_waits_is_a_long_poll(two: tuple[Server, Server]) -> None:
    """A subscriber hears of its partitions between its fetches, too."""
    server = two[0]
    with Logs(server.url) as logs:
        logs.publish(record("1"))
        place = "/v1/logs/orders/groups/billing/subscribers/one"
        session = {"session": logs.call("PUT", place, {})["session"]}
        logs.call("POST", f"{place}/fetch", session)
        server.until_parked(0)
        waiting = Background(logs.call, "POST", f"{place}/fetch", session | {"wait": _WAIT_SECONDS})
        server.until_parked(1)
        logs.publish(record("2"))
        assert [one["payload"] for one in waiting.result()["records"]] == ["2"]
        server.until_parked(0)
