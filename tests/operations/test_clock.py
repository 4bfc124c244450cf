"""Times of clocks after moves, whose notifications arrive in any order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuegate.gateway.operations.runtime import poller
from queuegate.gateway.operations.runtime.account_clocks import Clock
from queuegate.gateway.operations.runtime.clock_moves import BadMove, Move, move, moved_clock
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.stored_clocks import ClockSetting, StoredClock


def moved(seconds: float, moves: int, **accounts: ClockSetting) -> StoredClock:
    """The common clock so many seconds ahead, and those of accounts."""
    return StoredClock(ClockSetting(seconds), accounts, moves)


REAL = 1_800_000_000.0
ONE, OTHER = "111122223333", "444455556666"


class Clocks:
    """Clocks that are moved while the real one is where the test says."""

    def __init__(self) -> None:
        self.real = REAL
        self.stored = StoredClock(ClockSetting(), {}, 0)

    def move(self, wanted: Move) -> None:
        self.stored = moved_clock(self.stored, wanted, self.real)

    def ahead(self, account_id: str | None = None) -> float:
        """Return its lead over the first reading of the real clock, in seconds."""
        instant = self.stored.instant_of(account_id, self.real)
        return round((self.real if instant is None else instant) - REAL, 3)


def test_the_clock_of_an_account_is_ahead_of_the_common_one() -> None:
    clocks = Clocks()
    clocks.move(Move(ONE, advance_seconds=300))
    clocks.move(Move(advance_seconds=60))
    clocks.real += 10
    assert [clocks.ahead(one) for one in (None, ONE, OTHER)] == [70, 370, 70]
    clocks.move(Move(ONE, ahead_seconds=0, may_go_back=True))
    assert clocks.ahead(ONE) == 70
    assert clocks.stored.accounts == {}


def test_a_frozen_account_stands_still_whatever_the_common_clock_does() -> None:
    clocks = Clocks()
    clocks.move(Move(ONE, advance_seconds=300, freezes=True))
    clocks.real += 10
    clocks.move(Move(advance_seconds=60))
    assert [clocks.ahead(one) for one in (None, ONE)] == [70, 300]
    clocks.move(Move(ONE, advance_seconds=1))
    assert clocks.ahead(ONE) == 301
    clocks.move(Move(ONE, freezes=False))
    clocks.real += 10
    assert [clocks.ahead(one) for one in (None, ONE)] == [80, 311]


def test_accounts_stand_still_with_the_common_clock_and_go_on_with_it() -> None:
    clocks = Clocks()
    clocks.move(Move(ONE, advance_seconds=300))
    clocks.move(Move(freezes=True))
    clocks.real += 50
    assert [clocks.ahead(one) for one in (None, ONE)] == [0, 300]
    clocks.move(Move(advance_seconds=5))
    clocks.move(Move(freezes=False))
    clocks.real += 10
    assert [clocks.ahead(one) for one in (None, ONE)] == [15, 315]
    clocks.move(Move(ahead_seconds=0))
    assert [clocks.ahead(one) for one in (None, ONE)] == [60, 360]


def test_what_comes_later_is_later_on_a_frozen_clock_too() -> None:
    clocks = Clocks()
    clocks.move(Move(freezes=True))
    before = clocks.stored.instant_of(None, clocks.real)
    after = clocks.stored.instant_of(None, clocks.real + 86_400)
    assert before is not None
    assert after is not None
    assert 0 < after - before < 1


@pytest.mark.parametrize(
    "wanted",
    [
        Move(advance_seconds=-1),
        Move(ahead_seconds=59),
        Move(to=REAL),
        Move(to=REAL, freezes=True),
        Move(ONE, ahead_seconds=0),
        Move(ONE, to=REAL + 100),
    ],
)
def test_nothing_goes_back_unasked(wanted: Move) -> None:
    clocks = Clocks()
    clocks.move(Move(advance_seconds=60))
    clocks.move(Move(ONE, advance_seconds=60))
    with pytest.raises(BadMove, match='Add "back": true'):
        clocks.move(wanted)
    clocks.move(replace(wanted, may_go_back=True))


async def test_only_so_many_accounts_have_a_clock_of_their_own(engine: Engine) -> None:
    engine.limits = replace(engine.limits, moved_accounts=1)
    await move(engine, Move(ONE, advance_seconds=300))
    await move(engine, Move(ONE, advance_seconds=300))
    with pytest.raises(BadMove, match="put some back"):
        await move(engine, Move(OTHER, advance_seconds=300))
    assert list(engine.clock.accounts) == [ONE]
    await move(engine, Move(ONE, ahead_seconds=0, may_go_back=True))
    await move(engine, Move(OTHER, advance_seconds=300))
    assert list(engine.clock.accounts) == [OTHER]


def test_news_that_come_late_do_not_move_the_clock_back() -> None:
    clock = Clock()
    assert clock.move(moved(900, 2))
    assert not clock.move(moved(600, 1))
    assert clock.ahead_seconds == 900
    assert clock.move(moved(0, 3))
    assert clock.now() is None


def test_a_clock_that_older_versions_have_moved_counts() -> None:
    clock = Clock()
    assert clock.move(moved(600, 0))
    assert clock.ahead_seconds == 600


async def test_a_move_wakes_whoever_waits_for_a_time(engine: Engine) -> None:
    poller.connect(engine)
    told: list[str] = []
    engine.wakeups.on["schedules"] = lambda: told.append("schedules")
    engine.wakeups.on["deliveries"] = lambda: told.append("deliveries")
    poller.move_clocks(engine, moved(60, 1))
    assert told == ["schedules", "deliveries"]
