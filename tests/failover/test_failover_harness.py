"""The parts of `make failover` that need no cluster: what is kept of messages, and that checks can
fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.failover.cut_network import Link
from tests.failover.failover_faults import FAULTS, order_of
from tests.failover.failover_loads import Answers
from tests.failover.patroni_cluster import page_configuration
from tests.faults.ledger import Bodies, Numbers
from tests.faults.load import Load
from tests.waiting import until, until_so


def test_bodies_are_a_set() -> None:
    found = Bodies(["a.3", "b.1", "a.3", "1.2.7"])
    found |= {"a.0"}
    found.discard("b.1")
    found.discard("never.5")
    assert set(found) == {"a.3", "1.2.7", "a.0"}
    assert (len(found), "a.2" in found, "c.1" in found, "a.3" in found) == (3, False, False, True)


def test_numbers_are_a_mapping() -> None:
    times: Numbers[str] = Numbers([("a.3", 0.0)])
    assert times.setdefault("a.3", 7.0) == 0.0
    assert times.setdefault("b.9", 7.0) == 7.0
    places: Numbers[tuple[int, int]] = Numbers()
    places[2, 5] = 1.5
    places[2, 4] = 1.0
    del places[2, 5]
    assert (dict(times), dict(places)) == ({"a.3": 0.0, "b.9": 7.0}, {(2, 4): 1.0})
    assert (len(times), times.get("a.4", -1.0), places.get((2, 5))) == (2, -1.0, None)


def test_a_load_notes_what_is_back_or_out_of_order() -> None:
    load = Load(0, "http://localhost/000000000000/q.fifo")
    load.deleted["1.1"] = 3
    load._note(["1.1", "1.2"], 2)
    load.maybe_deleted.add("1.1")
    load._note(["1.2", "1.3"], 4)
    assert load.violations == []
    load._note(["1.1", "1.5"], 4)
    assert load.violations == ["1.1 came back after its delete", "1.5 came before 1.4"]


def test_answers_show_who_was_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers()
    for now in (10.0, 10.5, 14.0, 14.5):
        monkeypatch.setattr("time.time", lambda now=now: now)
        answers.note(("fifo", 1, "send"))
    assert answers.outages(12.0, 12.0) == {("fifo", 1, "send"): 14.0}
    assert answers.outages(14.2, 14.2) == {}
    assert answers.are_silent(15.0) == [("fifo", 1, "send")]
    assert answers.are_silent(14.2) == []


def test_a_seed_repeats_the_order_and_the_moments() -> None:
    orders = []
    for seed in (7, 7, 8):
        order, drawn = order_of(seed, [*FAULTS], 2)
        assert sorted(order) == sorted(FAULTS)
        orders.append((order, drawn.random()))
    assert orders[0] == orders[1] != orders[2]


def test_the_page_has_a_synchronous_cluster() -> None:
    dcs = page_configuration()["bootstrap"]["dcs"]
    assert dcs["synchronous_mode"] is True
    assert dcs["ttl"] >= dcs["loop_wait"] + 2 * dcs["retry_timeout"]


async def test_a_cut_link_is_silent_and_then_delivers_what_waited() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        ended.append(None)

    ended: list[None] = []
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = Link(server.sockets[0].getsockname())
    listening = await link.listen("127.0.0.1", 0)
    place = listening.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(*place)
    writer.write(b"before")
    assert await reader.readexactly(6) == b"before"
    link.cut()
    writer.write(b"during")
    late_reader, late_writer = await asyncio.open_connection(*place)
    late_writer.write(b"late")
    waiting = [reader.readexactly(6), late_reader.readexactly(4)]
    reading = [asyncio.create_task(one) for one in waiting]
    assert (await asyncio.wait(reading, timeout=0.2))[0] == set()
    link.heal()
    assert await asyncio.gather(*reading) == [b"during", b"late"]
    for stream in (writer, late_writer):
        stream.close()
        await stream.wait_closed()
    await until_so(lambda: len(ended) == 2 and not link.pipes)
    for one in (server, listening):
        one.close()
        await one.wait_closed()


_ORPHANS = """
import os, subprocess, sys
from tests.failover.guarding import guarded

def work():
    print(os.getpid(), flush=True)
    subprocess.run(["sh", "-c", "setsid sleep 300 & echo $!"])
    subprocess.run(["sleep", "300"])
    return 0

sys.exit(guarded(work, lambda: print("clean", flush=True)))
"""


@pytest.mark.parametrize(("is_guard", "number"), [(True, 15), (True, 2), (False, 9)])
def test_orphans_end_with_what_started_them(is_guard: bool, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _ORPHANS], stdout=subprocess.PIPE, text=True
    ) as guard:
        assert guard.stdout is not None
        child, orphan = [int(guard.stdout.readline()) for _ in range(2)]
        os.kill(guard.pid if is_guard else child, number)
        assert guard.stdout.readline() == "clean\n"
        assert guard.wait() != 0
    assert not any(Path(f"/proc/{one}").exists() for one in (child, orphan))


def test_a_child_ends_with_its_guard() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _ORPHANS], stdout=subprocess.PIPE, text=True
    ) as guard:
        assert guard.stdout is not None
        child, orphan = [int(guard.stdout.readline()) for _ in range(2)]
        guard.kill()
        assert guard.stdout.readline() == "clean\n"
    until(lambda: not Path(f"/proc/{child}").exists())
    # The orphan is no child of the child any more, or it is gone already.
    with contextlib.suppress(ProcessLookupError):
        os.kill(orphan, 9)
