"""Pairs of faces on a queue of each kind: one sends, the other receives and finishes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.faces.clients import new_account
from tests.faces.promises.drivers import DRIVERS, VISIBILITY_SECONDS, Driver, Given, Kind, Made
from tests.faces.servers import Server

_names = itertools.count()


class House(NamedTuple):
    """All faces of one gateway, in an account of their own."""

    server: Server
    drivers: dict[str, Driver]

    def senders(self, kind: Kind) -> list[Driver]:
        """Those by which messages go to such a queue."""
        return [driver for driver in self.drivers.values() if kind in driver.sends_to]

    def receivers(self) -> list[Driver]:
        """All: messages come from every kind of queue."""
        return [*self.drivers.values()]

    def makers(self, kind: Kind) -> list[Driver]:
        """Those by which such a queue is made."""
        return [driver for driver in self.drivers.values() if kind in driver.makes]

    def new_queue(self, kind: Kind, *makers: str) -> Made:
        """A queue of this kind, made by the first of these that can, or by whoever can."""
        able = {driver.face: driver for driver in self.makers(kind)}
        first = next((able[maker] for maker in makers if maker in able), self.makers(kind)[0])
        suffix = ".fifo" if kind is Kind.FIFO else ""
        return first.make(f"promises-{next(_names)}{suffix}", kind)


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
        return self.receiver.take(self.made)

    def finish(self, given: Given) -> None:
        self.receiver.finish(self.made, given)

    def release(self, given: Given) -> None:
        """As soon as the face lets its clients."""
        if "release" in self.receiver.lacks:
            self.server.advance(VISIBILITY_SECONDS + 1)
        else:
            self.receiver.release(self.made, given)

    def counts(self) -> set[int]:
        """Return the counts of both faces, as far as they have one."""
        both = (self.sender, self.receiver)
        return {driver.count(self.made) for driver in both if "count" not in driver.lacks}

    def drain(self, count: int) -> list[str]:
        """Receive and finish so many one after the other; then nothing comes any more."""
        return [*drained(self.receiver, self.made, count)]

    def expected(self, content: str) -> str:
        """Return the text that the receiver gets when the sender sends this content."""
        return self.receiver.shown(self.sender.stored(content))


def drained(driver: Driver, made: Made, count: int) -> Iterator[str]:
    """Receive and finish so many one after the other; then nothing comes any more."""
    for _ in range(count):
        given = driver.take(made)
        driver.finish(made, given)
        yield given.content
    assert driver.receive(made) is None


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


def _pairs() -> Iterator[tuple[Kind, str, str]]:
    for kind in Kind:
        senders = [driver.face for driver in DRIVERS if kind in driver.sends_to]
        for sender, receiver in itertools.product(senders, [driver.face for driver in DRIVERS]):
            yield kind, sender, receiver


@pytest.fixture(params=_pairs(), ids=lambda pair: f"{pair[0].value}-{pair[1]}-{pair[2]}")
def pair(request: pytest.FixtureRequest, house: House) -> Pair:
    """Every pair of faces on each kind of queue that both can use."""
    kind, sender, receiver = request.param
    made = house.new_queue(kind, receiver, sender)
    return Pair(made, house.drivers[sender], house.drivers[receiver], house.server)
