"""Overload: requests that others do not wait for, and requests that are refused in time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from queuegate.gateway.faces.aws.aws_refusals import what_to_say
from queuegate.gateway.http.connection_limits import TroubleLog
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.storage import lanes
from queuegate.storage.lanes import Lane
from queuegate.storage.storage_errors import Overloaded
from tests.operations.world import World

LARGE = "b" * 100_000


def _observed(*lanes: Lane[Any]) -> list[tuple[str, int]]:
    """Return a list that grows by the lane and the entries of each flush."""
    flushes: list[tuple[str, int]] = []
    for lane in lanes:
        lane.observe = partial(lambda name, count: flushes.append((name, count)), lane.name)
    return flushes


async def test_a_small_send_shares_no_flush_with_large_ones(world: World) -> None:
    """It would wait until all of their bytes are written."""
    noisy, quiet = await world.make_queue("noisy"), await world.make_queue("quiet")
    flushes = _observed(world.engine.standard.send, world.engine.standard.large_send)
    await asyncio.gather(*[world.send(noisy, LARGE) for _ in range(3)], world.send(quiet, "small"))
    assert sorted(flushes) == [("large_send", 3), ("send", 1)]
    assert [message.body for message in await world.receive(quiet)] == ["small"]
    assert [message.body for message in await world.receive(noisy)] == [LARGE] * 3


async def test_a_receive_shares_no_flush_with_those_of_long_messages(world: World) -> None:
    queue = await world.make_queue(VisibilityTimeout="0")
    await world.send(queue, LARGE)
    flushes = _observed(world.engine.standard.receive, world.engine.standard.ordered)
    for _ in range(2):
        assert len(await world.receive(queue)) == 1
    assert flushes == [("receive", 1), ("ordered_receive", 1)]


@pytest.mark.parametrize("is_loop_busy", [False, True])
async def test_sends_that_would_wait_too_long_are_refused_but_not_those_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch, is_loop_busy: bool
) -> None:
    """A busy event loop refuses none: that would be as much work."""
    monkeypatch.setattr(lanes, "_LEAST_IN_TIME", 4)
    monkeypatch.setattr(lanes, "_BUSY_SHARE", -1.0 if is_loop_busy else 1e9)
    noisy = await world.make_queue("noisy")
    others = World(world.engine, replace(world.caller, account_id="111122223333"))
    quiet = await others.make_queue("quiet")
    lane = world.engine.standard.send
    # Whatever its pace is, only what fits into the next flush is in time.
    lane.budget_seconds, lane._max_entries = 0.0, 4
    admitted = [asyncio.create_task(world.send(noisy)) for _ in range(40)]
    await asyncio.wait(admitted, return_when=asyncio.FIRST_COMPLETED)
    refused = [asyncio.create_task(world.send(noisy)) for _ in range(10)]
    await others.send(quiet)
    assert not all(one.done() for one in admitted)
    outcomes = await asyncio.gather(*refused, return_exceptions=True)
    assert {type(one) for one in outcomes} == {type(None) if is_loop_busy else Overloaded}
    await asyncio.gather(*admitted)
    # The line is short again.
    await asyncio.gather(*[world.send(noisy) for _ in range(12)])


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("sqs", "RequestThrottled"),
        ("sns", "Throttled"),
        ("scheduler", "ThrottlingException"),
        ("sts", "ServiceUnavailable"),
    ],
)
def test_overload_has_the_code_of_throttling_and_the_status_of_the_service(
    service: str, code: str
) -> None:
    error, text = what_to_say(service, Overloaded("Too many."))
    assert (error.query_code, error.status, error.fault, text) == (
        code,
        503,
        "Receiver",
        "Too many.",
    )


def test_each_kind_of_refusal_has_one_line_a_minute_with_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    traffic = Traffic()
    log = TroubleLog(traffic)

    def lines_at(seconds: float, *texts: str) -> list[str]:
        caplog.clear()
        for text in texts:
            traffic.refused(text)
        log.look(seconds)
        return caplog.messages

    assert lines_at(100.0, "too many", "too large") == ["too many", "too large"]
    assert lines_at(101.0, "too many", "too many", "too large") == []
    assert lines_at(159.0) == []
    assert lines_at(160.0) == ["too many (2 times since the last such line)", "too large"]
    assert lines_at(400.0) == []
    assert traffic.refused_requests == 5
