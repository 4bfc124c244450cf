"""Committed segments stay, so many and so many bytes of them; all others stay whatever they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark_connectors.spool import Spool
from spark_connectors.stores import LocalStore
from tests.spark.queues import counts, fill
from tests.spark.readers import Place, Run
from tests.spark.waiting import wait_for

Maker = Callable[..., str]
# A segment has one message of so many bytes, and some thousand bytes around it.
SIZE = 50_000


def batches_in(spool: Path) -> list[int]:
    """Batches whose segments are there, when all that is done has been tidied."""
    contents = Spool(LocalStore(str(spool)), "").contents()
    assert set(contents.segments) == contents.sizes.keys()
    return [place.seq for place in contents.segments]


def read(run: Run, gateway: str, url: str, batches: int) -> None:
    """So many batches, of which all are committed and deleted."""
    for number in range(batches):
        fill(gateway, url, [str(number) * SIZE])
        run.all_rows(1)
    wait_for(lambda: run.plan() == run.offset and counts(gateway, url) == (0, 0))


def test_what_is_reached_first_drops_the_oldest(place: Place) -> None:
    options = {"spoolCompression": "none"}
    run = place.run(spoolRetentionBytes="130k", **options)
    read(run, place.endpoint, place.url, 4)
    wait_for(lambda: batches_in(place.spool) == [3, 4])
    run.reader.stop()
    # What an earlier process left counts, and so does a bound that has changed.
    for bounds, kept in (
        ({"spoolRetentionBytes": "200k"}, [3, 4, 5]),
        ({"spoolRetentionBytes": 2 * SIZE}, [6]),
        ({"spoolRetentionBatches": 1}, [7]),
    ):
        run = place.run(run.offset, **options, **bounds)
        read(run, place.endpoint, place.url, 1)
        wait_for(lambda kept=kept: batches_in(place.spool) == kept)  # type: ignore[misc]
        run.reader.stop()


def test_what_spark_has_not_committed_stays_however_large(place: Place) -> None:
    options = {"deleteMode": "spool", "spoolRetentionBytes": 0}
    run = place.run(**options)
    read(run, place.endpoint, place.url, 1)
    place.fill(["new"])
    start, end = run.offset, run.plan_some()
    assert [row["body"] for rows in run.rows(start, end) for row in rows] == ["new"]
    wait_for(lambda: place.counts() == (0, 0))
    run.reader.stop()
    # Spark plans it again, for it does not know that the sink has it.
    again = place.run(start, **options)
    assert [row["body"] for rows in again.rows(start, end) for row in rows] == ["new"]
    assert batches_in(place.spool) == [2]
    again.offset = end
    read(again, place.endpoint, place.url, 1)
    wait_for(lambda: 2 not in batches_in(place.spool))


def test_what_is_not_deleted_stays_however_large(place: Place) -> None:
    options = {"deleteMode": "commit", "spoolRetentionBytes": 0}
    run = place.run(**options)
    place.fill(["new"])
    end = run.plan_some()
    run.rows(run.offset, end)
    run.reader.stop()
    # Committed, and the process ended before it could delete.
    spool = Spool(LocalStore(str(place.spool)), "")
    spool.acknowledge(1)
    assert batches_in(place.spool) == [1]
    assert place.counts() == (0, 1)
    after = place.run(end, **options)
    read(after, place.endpoint, place.url, 1)
    wait_for(lambda: batches_in(place.spool) == [])
