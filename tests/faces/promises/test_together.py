"""Promises while all faces use one queue at a time, and while a gateway dies."""

from __future__ import annotations

import signal
from collections import defaultdict

import pytest

from tests.databases import Databases
from tests.faces.clients import new_account
from tests.faces.promises.conftest import House, drained, open_house
from tests.faces.promises.drivers import VISIBILITY_SECONDS, Driver, Kind, Made
from tests.faces.servers import Background, Server
from tests.waiting import until

_EACH = 25


def _word(content: str) -> str:
    """A word as it was sent: some faces show strings of others as JSON."""
    return content.strip('"')


def _produce(driver: Driver, made: Made) -> None:
    for number in range(_EACH):
        driver.send(made, f"{driver.face}.{number}", driver.face)


def _consume(driver: Driver, made: Made, worked: list[str], total: int) -> None:
    def work() -> bool:
        while given := driver.receive(made):
            worked.append(_word(given.content))
            driver.finish(made, given)
        return len(worked) >= total

    until(work)


@pytest.mark.parametrize("kind", Kind)
def test_producers_and_consumers_of_all_faces_share_a_queue(house: House, kind: Kind) -> None:
    """Nothing is lost, nothing comes twice, nothing is left, and groups keep their order."""
    senders, receivers = house.senders(kind), house.receivers()
    for maker in house.makers(kind):
        made = house.new_queue(kind, maker.face)
        worked: list[str] = []
        total = len(senders) * _EACH
        busy = [Background(_produce, driver, made) for driver in senders]
        busy += [Background(_consume, driver, made, worked, total) for driver in receivers]
        for one in busy:
            one.result()
        house.server.advance(VISIBILITY_SECONDS + 1)
        assert all(driver.receive(made) is None for driver in receivers)
        assert house.drivers["aws"].count(made) == 0
        groups = defaultdict(list)
        for face, _, number in (word.partition(".") for word in worked):
            groups[face].append(int(number))
        expected = {driver.face: [*range(_EACH)] for driver in senders}
        assert {face: sorted(numbers) for face, numbers in groups.items()} == expected
        assert not kind.has_groups or groups == expected


def test_what_was_acknowledged_survives_a_kill(databases: Databases) -> None:
    """Two gateways start one after the other: the first is killed."""
    account, dsn = new_account(), databases.copy()
    sent: dict[Made, set[str]] = {}
    with Server(dsn=dsn) as server, open_house(server, account) as house:
        for kind in Kind:
            for maker in house.makers(kind):
                made = house.new_queue(kind, maker.face)
                for driver in house.senders(kind):
                    driver.send(made, driver.face, driver.face)
                sent[made] = {driver.face for driver in house.senders(kind)}
                given = maker.receive(made)
                assert given is not None
                maker.finish(made, given)
                sent[made].remove(_word(given.content))
                # This one is on its way when the gateway dies, and comes again.
                assert maker.receive(made) is not None
        server.stop(signal.SIGKILL)
    with Server(dsn=dsn) as server, open_house(server, account) as house:
        server.advance(VISIBILITY_SECONDS + 1)
        for made, left in sent.items():
            for number, driver in enumerate(house.receivers()):
                there = [] if number else sorted(left)
                found = [_word(content) for content in drained(driver, made, len(there))]
                assert sorted(found) == there
    databases.drop(dsn)
