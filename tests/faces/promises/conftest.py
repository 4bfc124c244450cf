"""Pairs of faces on a queue of each kind: one sends, the other receives and finishes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.faces.clients import new_account
from tests.faces.promises.drivers import DRIVERS, Driver, Given, Kind, Made
from tests.faces.servers import Server

_names = itertools.count()


class House(NamedTuple):
    """All faces of one gateway, in an account of their own."""

    server: Server
    drivers: dict[str, Driver]

    def users(self, kind: Kind) -> list[Driver]:
        """Those by which messages go to and come from such a queue."""
        return [driver for driver in self.drivers.values() if kind in driver.uses]


class Pair(NamedTuple):
    """A queue, who sends to it, and who receives from it. The receiver has made it if it can."""

    made: Made
    sender: Driver
    receiver: Driver
    server: Server

    def send(self, content: str, group: str = "g") -> None:
        self.sender.send(self.made, content, group)

    def receive(self) -> Given | None:
        return self.receiver.receive(self.made)

    def take(self) -> Given:
        """A message that is there."""
        given = self.receive()
        assert given is not None
        return given

    def finish(self, given: Given) -> None:
        self.receiver.finish(self.made, given)

    def drain(self) -> list[str]:
        """Receive and finish one after the other until nothing comes any more."""
        return [*drained(self.receiver, self.made)]

    def expected(self, content: str) -> str:
        """What the receiver gets when the sender sends this."""
        return self.receiver.shown(self.sender.stored(content))


def drained(driver: Driver, made: Made) -> Iterator[str]:
    """Receive and finish one after the other until nothing comes any more."""
    while given := driver.receive(made):
        driver.finish(made, given)
        yield given.content


@contextlib.contextmanager
def open_house(server: Server, account: str) -> Iterator[House]:
    """All faces of this gateway."""
    house = House(server, {driver.face: driver(server.url, account) for driver in DRIVERS})
    yield house
    for driver in house.drivers.values():
        driver.close()


@pytest.fixture(scope="session")
def house(server: Server) -> Iterator[House]:
    with open_house(server, new_account()) as house:
        yield house


def new_queue(house: House, kind: Kind, *makers: str) -> Made:
    """A queue of this kind, made by the first of these that can, or by whoever can."""
    suffix = ".fifo" if kind is Kind.FIFO else ""
    made = Made(f"promises-{next(_names)}{suffix}", kind)
    able = [face for face, driver in house.drivers.items() if kind in driver.makes]
    first = next((maker for maker in makers if maker in able), able[0])
    house.drivers[first].make(made)
    return made


def _pairs() -> Iterator[tuple[Kind, str, str]]:
    for kind in Kind:
        users = [driver.face for driver in DRIVERS if kind in driver.uses]
        for sender, receiver in itertools.product(users, users):
            yield kind, sender, receiver


@pytest.fixture(params=_pairs(), ids=lambda pair: f"{pair[0].value}-{pair[1]}-{pair[2]}")
def pair(request: pytest.FixtureRequest, house: House) -> Pair:
    """Every pair of faces on each kind of queue that both can use."""
    kind, sender, receiver = request.param
    made = new_queue(house, kind, receiver, sender)
    return Pair(made, house.drivers[sender], house.drivers[receiver], house.server)
