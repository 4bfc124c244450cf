"""Plans of browsing made on empty tables stay cheap with many messages in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from queuegate.storage.database import SCHEMA
from queuegate.storage.queue_model import END, START, BrowseFilter, BrowsePosition
from queuegate.storage.queues import browsing
from tests.storage.fifo_queue import START as NOON
from tests.storage.fifo_queue import make_queue as make_fifo_queue
from tests.storage.standard_queue import make_queue
from tests.storage.test_archive_plans import MUCH, Meter
from tests.storage.test_browsing import queue_of
from tests.storage.test_fifo_plans import FILL, Recording

STANDARD = """
INSERT INTO messages (queue_id, visible_at, sent_at, message_id, sender_id, body)
SELECT $1::int, $3, $3, gen_random_uuid(), 's', 'body' FROM generate_series(1, $2::int) AS n
"""
# A tenth of what they are, so that a tenth of the messages shows the same.
BOUNDS = {"_LOOKED_AT": 2_000, "_MOST_SPLIT": 5_000, "_PAGES_SAMPLED": 30}
# More than those up to which ranges are exact.
DEPTH = 6_000
MIDDLE = BrowsePosition("deep", DEPTH)
ANY = BrowseFilter(END.sequence)


async def browse(meter: Meter, name: str, *, is_filled: bool) -> None:
    queue = await queue_of(meter.database, name)

    def page(wanted: BrowseFilter) -> Callable[[], Awaitable[object]]:
        async def run() -> object:
            async with meter.database.transaction() as tx:
                return await queue.kind.read_page(
                    tx, NOON, queue, wanted, limit=10, most_bytes=MUCH
                )

        return run

    # A message of a FIFO queue costs a look at its group, too.
    steps: list[tuple[str, int, Callable[[], Awaitable[object]]]] = [
        ("first page", 30, page(ANY)),
        ("page in the middle", 30, page(ANY._replace(after=MIDDLE))),
        (
            "page of a range",
            30,
            page(ANY._replace(after=MIDDLE, until=BrowsePosition("deeq", DEPTH + 20))),
        ),
        ("page behind the end", 5, page(ANY._replace(after=END))),
        ("page of a group", 30, page(ANY._replace(group_id="deep"))),
        ("page with a filter", 6_100, page(ANY._replace(after=START, min_receives=1))),
    ]
    for step, most, work in steps:
        if step == "page of a group" and not queue.is_fifo:
            continue
        await meter.check(step, most if is_filled else None, work())


async def cut(meter: Meter, name: str, *, is_filled: bool) -> None:
    """Ranges: an exact look at the beginning, then a sample of some pages."""
    queue = await queue_of(meter.database, name)
    before = await meter.touched()
    async with meter.database.transaction() as tx:
        ends = await queue.kind.find_ends(tx, queue.queue_id, END.sequence, 4)
    after = await meter.touched()
    if is_filled:
        assert len(ends) == 3
        assert after[0] - before[0] < DEPTH, "the sample is the whole table"
        assert after[1] - before[1] < 5_100


@pytest.mark.timeout(300)
@pytest.mark.parametrize("analyzed", [False, True])
async def test_plans_of_empty_queues_serve_full_ones(
    own_database_dsn: str, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    for name, bound in BOUNDS.items():
        monkeypatch.setattr(browsing, name, bound)
    database = Recording(own_database_dsn)
    await database.open()
    observer = await asyncpg.connect(own_database_dsn, server_settings={"search_path": SCHEMA})
    names = {"orders": await make_queue(database), "orders.fifo": await make_fifo_queue(database)}
    meter = Meter(database, observer)
    if analyzed:
        await observer.execute("VACUUM (ANALYZE)")
    for _ in range(7):
        for name in names:
            await browse(meter, name, is_filled=False)
            await cut(meter, name, is_filled=False)
    await observer.execute(STANDARD, names["orders"], 2 * DEPTH, NOON)
    await observer.execute(FILL, names["orders.fifo"], DEPTH, DEPTH, NOON)
    for name in names:
        await browse(meter, name, is_filled=True)
        await cut(meter, name, is_filled=True)
    await observer.close()
    await database.close()
