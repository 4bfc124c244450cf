"""A gateway for tests: the real command on a free port, its clock, and what it says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Self, TypeVar

from tests import databases
from tests.cli.processes import Gateway
from tests.faces.connections import fetch
from tests.waiting import until

Result = TypeVar("Result")

_LABELS = re.compile(r'[a-z_]+="[^"]*"')


class Server(Gateway):
    """`queuegate serve` on the PostgreSQL that tests share. Its clock only ever moves forward.

    ``dsn`` is of a database that outlives it; without it, it has a fresh one.
    """

    def __init__(self, *arguments: str, dsn: str = "", **more: str) -> None:
        self._own_dsn = "" if dsn else databases.of_this_process().copy()
        self.dsn = dsn or self._own_dsn
        settings = {"DATABASE_URL": self.dsn, "QUEUEGATE_ADMIN_CLOCK": "true"}
        if self.log is None:
            settings |= {"QUEUEGATE_LOG_LEVEL": "error", "QUEUEGATE_AUDIT": "off"}
        super().__init__(*arguments, **settings | more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._own_dsn:
            databases.of_this_process().drop(self._own_dsn)

    def advance(self, seconds: float) -> None:
        """Let so much time pass for every queue."""
        body = json.dumps({"advance_seconds": seconds}).encode()
        answer = fetch(self.url, "/_admin/clock", "POST", body)
        assert answer.status == 200, answer.text

    def now(self) -> str:
        """Return the present time of the server's clock."""
        instant: str = json.loads(fetch(self.url, "/_admin/clock").body)["now"]
        return instant

    def metrics(self, name: str = "") -> str:
        """The text of /metrics; with a name, of that metric."""
        answer = fetch(self.url, f"/metrics?name[]={name}" if name else "/metrics")
        assert answer.status == 200
        return answer.text

    def metric(self, sample: str) -> float:
        """The sum of the samples with this name and at least these labels; 0 without any."""
        name, _, labels = sample.partition("{")
        wanted = set(_LABELS.findall(labels))
        found = 0.0
        for line in self.metrics(name).splitlines():
            words, _, value = line.rpartition(" ")
            if words.partition("{")[0] == name and wanted <= set(_LABELS.findall(words)):
                found += float(value)
        return found

    def read_on(self) -> None:
        """Return when it has read what was sent to it before this."""
        assert fetch(self.url, "/livez").status == 200

    def until(self, sample: str, value: float) -> None:
        """Look until a sample has this value."""
        until(lambda: (sample, self.metric(sample)), lambda found: found[1] == value)

    def until_parked(self, count: int = 1) -> None:
        """Look until so many long polls wait."""
        self.until("queuegate_parked_receives", count)


class Background(Generic[Result]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[..., Result], *arguments: Any, **members: Any) -> None:
        pool = ThreadPoolExecutor(1)
        self._call = pool.submit(call, *arguments, **members)
        pool.shutdown(wait=False)

    def result(self) -> Result:
        """Wait for the call; return its result or raise its error."""
        return self._call.result(60)
