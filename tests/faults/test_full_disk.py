"""A disk that fills up: sends are refused in time, and receives and deletes go on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuegate.storage.embedded.data_directory import disk_space_at
from tests.cli.processes import Gateway, postmaster
from tests.faces.clients import Refused, Sqs
from tests.prometheus import scraping
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)

SIZE_MIB = 320
COUNT = 30


@pytest.fixture
def small_disk(data: Path) -> Iterator[Path]:
    """A directory for data on a file system of its own."""
    data.mkdir(parents=True)
    try:
        command: list[str | Path] = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={SIZE_MIB}m,mode=755",
            "tmpfs",
            data,
        ]
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield data / "queuegate"
    subprocess.run(["umount", "--lazy", data], check=True)


def fill(disk: Path, left: int) -> Path:
    """A file of somebody else's that leaves so many bytes, of what PostgreSQL does not hold."""
    file = disk.parent / "somebody-elses"
    with file.open("ab") as growing, contextlib.suppress(OSError):
        while (free := disk_space_at(disk).free_bytes - left) > 0:
            os.posix_fallocate(growing.fileno(), growing.tell(), max(4096, min(free, 1 << 20)))
            growing.seek(0, os.SEEK_END)
    return file


def refused_sends(sqs: Sqs, url: str) -> bool:
    answer = sqs.ask("SendMessage", {"QueueUrl": url, "MessageBody": "one more"})
    assert answer.status in {200, 503}, answer.text
    return "sends are refused until" in answer.text


def warning(gateway: Gateway) -> str:
    status, text = gateway.get("/readyz")
    assert status == 200, text
    return text if "sends are refused" in text else ""


def take_one(sqs: Sqs, url: str) -> bool:
    """Receive and delete; False while the database comes back from a disk without any room."""
    try:
        found = sqs.receive(url, 1)
        sqs.delete(url, *found)
    except Refused as refused:
        if refused.status != 503:
            raise
        return False
    return bool(found)


def test_an_alert_fires_before_sends_stop(small_disk: Path) -> None:
    """Takes more than 5 s: Prometheus looks for targets every 5 s."""
    with (
        Gateway("--data", str(small_disk)) as gateway,
        Sqs("json", gateway.url) as sqs,
        scraping(gateway.url) as prometheus,
    ):
        url = sqs.create()
        until(lambda: (small_disk / "ballast").exists())
        fill(small_disk, disk_space_at(small_disk).low_water_bytes // 2 * 3)
        prometheus.until_firing("QueuegateDiskLow")
        assert not refused_sends(sqs, url)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sends_stop_before_the_disk_is_full_and_deletes_go_on(
    small_disk: Path, workers: str
) -> None:
    """Fills a disk."""
    log = small_disk.parent.parent / "log"
    with log.open("w") as stderr:
        logged = type("Logged", (Gateway,), {"log": stderr})
        with (
            logged("--data", str(small_disk), "--workers", workers) as gateway,
            Sqs("json", gateway.url) as sqs,
        ):
            url = sqs.create(VisibilityTimeout="5")
            ordered = sqs.create_fifo(VisibilityTimeout="5")
            for number in range(COUNT):
                sqs.send(url, f"{number}")
                sqs.send(ordered, f"{number}", MessageGroupId=f"{number}")
            until(lambda: (small_disk / "ballast").exists())
            file = fill(small_disk, disk_space_at(small_disk).low_water_bytes // 4 * 3)
            until(lambda: refused_sends(sqs, url))
            refused = sum(refused_sends(sqs, one) for one in (url, url, url))
            until(lambda: warning(gateway))
            page = until(
                lambda: gateway.get("/metrics")[1],
                lambda page: "queuegate_disk_refuses_sends 1.0" in page,
            )
            assert page.count("\nqueuegate_disk_free_bytes ") == 1
            assert all(take_one(sqs, one) for one in (url, ordered))
            # Somebody else takes everything that is left.
            fill(small_disk, 0)
            until(lambda: not (small_disk / "ballast").exists())
            for _ in range(COUNT - 1):
                until(lambda: take_one(sqs, url))
                until(lambda: take_one(sqs, ordered))
            file.unlink()
            until(lambda: not refused_sends(sqs, url))
            until(lambda: not warning(gateway))
            until(lambda: (small_disk / "ballast").exists())
            sqs.send(ordered, "after", MessageGroupId="after")
    lines = log.read_text()
    # One line for each process, and none for each send.
    assert lines.count("sends are refused until") == int(workers)
    counts = re.findall(r"(\d+) sends were refused since the last such line", lines)
    assert sum(map(int, counts)) >= refused == 3
    assert "sends are accepted again" in lines


@pytest.mark.parametrize(("count", "size"), [(3_000, 1_000), (60, 100_000)])
def test_a_purge_works_without_a_free_byte(small_disk: Path, count: int, size: int) -> None:
    """Fills a disk."""
    with Gateway("--data", str(small_disk)) as gateway, Sqs("json", gateway.url) as sqs:
        plain, ordered = sqs.create(), sqs.create_fifo()
        per_batch = min(10, 1_000_000 // size)
        for first in range(0, count, per_batch):
            numbers = range(first, first + per_batch)
            entries = [{"Id": str(n), "MessageBody": "x" * size} for n in numbers]
            sqs.call("SendMessageBatch", QueueUrl=plain, Entries=entries)
            more = [
                {"MessageGroupId": str(n % 50), "MessageDeduplicationId": str(n)} for n in numbers
            ]
            entries = [one | other for one, other in zip(entries, more, strict=True)]
            sqs.call("SendMessageBatch", QueueUrl=ordered, Entries=entries)
        until(lambda: (small_disk / "ballast").exists())
        fill(small_disk, disk_space_at(small_disk).low_water_bytes // 4 * 3)
        until(lambda: refused_sends(sqs, plain))
        fill(small_disk, 0)
        until(lambda: not (small_disk / "ballast").exists())
        fill(small_disk, 0)
        assert disk_space_at(small_disk).free_bytes == 0
        for url in (plain, ordered):
            answer = sqs.ask("PurgeQueue", {"QueueUrl": url})
            assert answer.status == 200, answer.text
            assert sqs.receive(url, VisibilityTimeout=0) == []
        # Others fill what the reserve was: the server comes back when they make room.
        fill(small_disk, 0)
        os.kill(postmaster(small_disk), signal.SIGKILL)
        (small_disk.parent / "somebody-elses").unlink()
        until(lambda: not refused_sends(sqs, plain))
        until(lambda: (small_disk / "reserve").exists())
