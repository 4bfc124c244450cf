"""``python -m tests.fuzz.loop_turns --seed 7``: requests at the limits of every operation of every
face, and for how long each holds the event loop.

Each operation is asked as in tests/faces/everything.py, of an account with long messages and lists,
and with bodies of which a text, a list or an object is as large as fits. The CPU of the loop's
thread in one turn must stay below 20 ms; what is above is asked again: the best of three counts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tests.faces import everything
from tests.faces.clients import Sqs, authorization
from tests.faces.connections import Closed, Connection, request_bytes
from tests.faces.everything import Made, UnsignedRequest
from tests.faces.logs.client import Logs, record
from tests.fuzz.loop_meter import MOST_MS, Metered

ACCOUNT = "111111111111"
_SIZES = (1_000_000, 6_700_000)
"""Limits of bodies in bytes: without messages, and with messages."""
_LETTERS = ("x", '"', "\n", "<", "&", "é", "\U0001f600", "A", "[", "9", "*", " ")
_MOST_VALUES = 9_000
_LAST = ("Delete", "delete", "Purge", "purge", "Unsub", "leave", "remove", "Remove", "DELETE")
"""Operations that take away what the others are asked about."""


def operations(made: Made, url: str) -> list[UnsignedRequest]:
    """One request to each operation, what takes something away at the end."""
    found = list(everything.requests(made, url))
    return sorted(found, key=lambda one: any(word in one.operation for word in _LAST))


def fill(server: Metered) -> Made:
    """One of everything, and much of what answers are made of."""
    made = everything.make(server, ACCOUNT)
    with Sqs("json", server.url, ACCOUNT) as sqs, Logs(server.url, ACCOUNT) as logs:
        for name in ("orders", "dead", "kept"):
            for letter in _LETTERS[:5]:
                body = json.dumps(letter * (1_048_000 // len(json.dumps(letter)[1:-1])))
                sqs.send(f"{server.url}/{ACCOUNT}/{name}", body)
        for number in range(500):
            sqs.create(f"many-{number:03}")
        for start in range(0, 5000, 1000):
            logs.publish(*[record(key=f"k{start + n}") for n in range(1000)], log="kept")
        logs.publish(record('"' * 1_000_000), log="kept")
    return made


class Limits:
    """Makes requests larger, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def larger(self, asked: UnsignedRequest) -> UnsignedRequest:
        """The same with something as large as fits."""
        size = self.random.choice(_SIZES)
        if asked.headers.get("Content-Type", "").startswith("application/x-www-form"):
            return asked._replace(body=self._form(asked.body, size))
        try:
            value = json.loads(asked.body)
        except ValueError:
            return asked._replace(body=self._text(size).encode())
        return asked._replace(body=json.dumps(self._grown(value, size)).encode())

    def _text(self, size: int) -> str:
        letter = self.random.choice(_LETTERS)
        return letter * ((size - 2_000) // len(json.dumps(letter)[1:-1]))

    def _form(self, body: bytes, size: int) -> bytes:
        pairs = parse_qsl(body.decode())
        place = self.random.randrange(1, len(pairs))
        name, _ = pairs[place]
        if self.random.random() < 0.5:
            letter = self.random.choice(_LETTERS)
            pairs[place] = name, letter * ((size - 2_000) // len(urlencode({"": letter})[1:]))
        else:
            head, _, number = name.rpartition(".1")
            names = (f"{head}.{n}{number}" if head else f"{name}.{n}" for n in range(2, 4_000))
            pairs += [(each, "x" * (size // 4_000 - 80)) for each in names]
        return urlencode(pairs).encode()

    def _grown(self, value: Any, size: int) -> Any:
        """A value of which one part is as large as fits."""
        places = list(_places(value))
        if not places:
            return {"x": self._text(size)}
        change = self.random.choice(places)
        part = change(None, read=True)
        if isinstance(part, list) and part:
            item = json.dumps(part[0])
            count = min(size // (len(item) + 2), _MOST_VALUES // (item.count(",") + 1))
            return change(part[:1] * count)
        if isinstance(part, dict):
            more = {f"k{n}": "x" * (size // _MOST_VALUES - 12) for n in range(_MOST_VALUES)}
            return change(part | more)
        return change(self._text(size))


def _places(value: Any) -> Iterator[Callable[..., Any]]:
    """Yield a function for each part of a value: it reads or replaces it, and returns the whole."""

    def place(holder: Any, key: Any) -> Callable[..., Any]:
        def change(new: Any, *, read: bool = False) -> Any:
            if read:
                return holder[key]
            holder[key] = new
            return value

        return change

    holders = [value]
    while holders:
        holder = holders.pop()
        for key, part in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield place(holder, key)
            if isinstance(part, dict | list):
                holders.append(part)


def _ask(server: Metered, asked: UnsignedRequest) -> int:
    with Connection(server.url) as connection:
        scope = authorization(ACCOUNT, service=asked.service)
        headers = {"Host": connection.host, "Authorization": scope} | asked.headers
        try:
            connection.send(request_bytes(asked.method, asked.target, headers, asked.body))
            return connection.answer(to_head=asked.method == "HEAD").status
        except (Closed, ConnectionError):
            return 0


def _acknowledge(server: Metered) -> tuple[float, str]:
    """The longest turn while a group acknowledges a record in each of 5,000 partitions: five
    requests at once, as long as they may be, that go from one partition to another."""
    with Logs(server.url, ACCOUNT) as logs:
        group = "/v1/logs/kept/groups/scattered"
        session = logs.call("PUT", f"{group}/subscribers/one", {})["session"]
        receipts: list[str] = []
        while len(receipts) < 5_000:
            asked = {"session": session, "max": 1_000}
            found = logs.call("POST", f"{group}/subscribers/one/fetch", asked)["records"]
            receipts += [one["receipt"] for one in found]
    random.Random(1).shuffle(receipts)

    def acknowledge(first: int) -> None:
        acks = [{"receipt": one, "do": "ack"} for one in receipts[first : first + 1_000]]
        with Logs(server.url, ACCOUNT) as logs:
            logs.call("POST", f"{group}/deliveries", {"deliveries": acks})

    with ThreadPoolExecutor(5) as pool:
        asks = range(0, len(receipts), 1_000)
        return server.longest_turn(lambda: list(pool.map(acknowledge, asks)), 1)


def run(server: Metered, seed: int, variants: int) -> list[str]:
    """Return the requests that held the event loop too long."""
    limits = Limits(seed)
    too_long = []
    made = fill(server)
    longest, where = _acknowledge(server)
    if longest >= MOST_MS:
        too_long.append(f"{longest:.0f} ms 5,000 scattered acknowledgements")
        print(f"{too_long[-1]}\n    {where}", flush=True)
    statuses: dict[int, int] = {}
    for asked in operations(made, server.url):
        larger = [limits.larger(asked) for _ in range(variants if asked.body else 0)]
        # As it is at the end, for it may take something away.
        for one in (*larger, asked):
            found: list[int] = []
            longest, where = server.longest_turn(lambda: found.append(_ask(server, one)), 1)  # noqa: B023
            if longest >= MOST_MS:
                longest, where = server.longest_turn(lambda: _ask(server, one))  # noqa: B023
            statuses[found[0]] = statuses.get(found[0], 0) + 1
            if longest >= MOST_MS or found[0] == 500:
                start = one.body[:200].decode("latin-1")
                shown = (
                    f"{found[0]} {longest:.0f} ms {one.operation} {len(one.body)} bytes: {start}"
                )
                print(f"{shown}\n    {where}", flush=True)
                too_long.append(shown)
    print(f"seed {seed}: {sum(statuses.values())} requests, {statuses}", flush=True)
    return too_long


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.loop_turns", description=__doc__)
    parser.add_argument("--seed", type=int, help="the run to repeat; without it, a random one")
    parser.add_argument("--variants", type=int, default=4, help="larger requests of an operation")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 31) if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory() as folder:
        more = {"QUEUEGATE_POLICIES": "off", "QUEUEGATE_LOG_LEVEL": "error"}
        with Metered(Path(folder), **more) as server:
            return 1 if run(server, seed, arguments.variants) else 0


if __name__ == "__main__":
    sys.exit(main())
