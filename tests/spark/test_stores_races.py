"""Many writers of one name: one of them has it, wherever another was killed."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from spark_connectors.spool.stores import StoreAccess, open_store
from tests.spark.bucket_server import serve_bucket

ROUNDS = 12
Place = tuple[str, str | None]
_gate: Barrier | None = None


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The path of an empty store, and the endpoint of S3.

    S3 is not moto's here, which looks for the object before it puts it, in two steps.
    """
    if request.param == "directory":
        yield str(tmp_path), None
        return
    with serve_bucket() as bucket:
        yield "s3://spool/q", bucket.endpoint_url


def outcomes(place: Place, wait: Callable[[], object]) -> list[tuple[bytes, bool]]:
    """Return one writer's content in each round, and whether the store called it the first."""
    store = open_store(place[0], access=StoreAccess(place[1]))
    found = []
    for number in range(ROUNDS):
        content = secrets.token_bytes(20_000)
        wait()
        found.append((content, store.put_if_absent(f"in/{number}", content)))
    return found


def check(place: Place, writers: list[list[tuple[bytes, bool]]]) -> None:
    store = open_store(place[0], access=StoreAccess(place[1]))
    for number in range(ROUNDS):
        [winner] = [found[number][0] for found in writers if found[number][1]]
        assert store.get(f"in/{number}") == winner


def test_one_of_sixteen_threads_has_a_name(place: Place) -> None:
    race_of_threads(place)


def test_one_of_sixteen_threads_has_a_name_in_memory(tmp_path: Path) -> None:
    race_of_threads((f"memory:{tmp_path}", None))


def race_of_threads(place: Place) -> None:
    gate = threading.Barrier(16)
    with ThreadPoolExecutor(16) as threads:
        running = [threads.submit(outcomes, place, gate.wait) for _ in range(16)]
        check(place, [each.result() for each in running])


def _take_gate(gate: Barrier) -> None:
    global _gate
    _gate = gate


def _outcomes_of_process(place: Place) -> list[tuple[bytes, bool]]:
    assert _gate is not None
    return outcomes(place, _gate.wait)


def test_one_of_four_processes_has_a_name(place: Place) -> None:
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(4)
    with ProcessPoolExecutor(4, spawn, _take_gate, (gate,)) as processes:
        running = [processes.submit(_outcomes_of_process, place) for _ in range(4)]
        check(place, [each.result() for each in running])


KILLED = """
import os, signal, sys
from spark_connectors.spool.stores import LocalStore

def probe(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

LocalStore(sys.argv[1], probe).put_if_absent("in/one", b"of the killed")
"""


@pytest.mark.parametrize(("point", "is_there"), [("written", False), ("linked", True)])
def test_a_killed_writer_leaves_a_whole_file_or_none(
    tmp_path: Path, point: str, is_there: bool
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), point], check=False)

    assert killed.returncode == -signal.SIGKILL
    assert any(name.startswith(".tmp-") for name in os.listdir(tmp_path))
    store = open_store(str(tmp_path))
    assert not any(name.startswith(".tmp-") for name in os.listdir(tmp_path))
    assert store.names("") == (["in/one"] if is_there else [])
    assert store.put_if_absent("in/one", b"of the next") is not is_there
    assert store.get("in/one") == (b"of the killed" if is_there else b"of the next")
