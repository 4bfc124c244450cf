"""`python -m conformance.load`: the scripts of deploy/k6 against a gateway of their own.

Go builds the pinned k6 once. Where it cannot, the same scenarios run in Python, and the reason is
told; `--python` asks for that.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from conformance.environments import NotInstalled
from conformance.serving import gateway

K6_VERSION = "v1.8.1"
USERS, QUEUES = 10, 15
_ROOT = Path(__file__).resolve().parent.parent
_SCRIPTS = _ROOT / "deploy" / "k6"
_BUILD_SECONDS = 900
_ANSWER_SECONDS = 60
_LOOKS = 20


class Failed(Exception):
    """A request or what came of it was not as it has to be."""


class Caller:
    """A client of the simple queue on one connection, which notes how long requests took."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER_SECONDS)
        self._headers = {"Content-Type": "application/json"} | dict(headers or {})
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: object = None, status: int = 200) -> Any:
        """The answer, which has this status."""
        data = None if body is None else json.dumps(body)
        started = time.perf_counter()
        try:
            self._connection.request(method, f"/api/queues{path}", data, self._headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise Failed(f"{method} {path}: {error!r}") from error
        finally:
            self.seconds.append(time.perf_counter() - started)
        expect(f"{method} {path}: {answer.status} {text!r}", answer.status == status)
        return json.loads(text)

    def create(self, name: str, **settings: int) -> str:
        """The id of a new queue."""
        usual = {"queueSize": 100_000, "visibilityTimeout": 30, "maxDeliveries": 3}
        created: str = self.call("POST", "", {"queueName": name} | usual | settings, 201)[
            "queue_id"
        ]
        return created

    def enqueue(self, queue: str, data: str) -> str:
        """The id of the message."""
        sent: str = self.call("POST", f"/{queue}/messages", {"data": data}, 201)["message_id"]
        return sent

    def dequeue(self, queue: str) -> Any:
        """The answer; without a message_id the queue is empty."""
        return self.call("GET", f"/{queue}/messages")

    def acknowledge(self, queue: str, message: str) -> None:
        """Be done with a message."""
        self.call("DELETE", f"/{queue}/messages/{message}")

    def drop(self, queue: str) -> None:
        """Delete a queue."""
        self.call("DELETE", f"/{queue}")


def expect(what: str, holds: bool) -> None:
    """Fail with this text unless it holds."""
    if not holds:
        raise Failed(what)


def happy_path(caller: Caller) -> None:
    """Run the steps of happy-path.js."""
    queue = caller.create("happy-path")
    try:
        message = caller.enqueue(queue, "one espresso")
        found = caller.dequeue(queue)
        expect(f"another came: {found}", found.get("message_id") == message)
        caller.acknowledge(queue, message)
        expect("something is left", caller.dequeue(queue) == {"message": None})
    finally:
        caller.drop(queue)


def dead_letter(caller: Caller, pause: Callable[[float], object] = time.sleep) -> None:
    """Run the steps of dlq.js. ``pause`` advances the gateway's clock by that many seconds."""
    queue = caller.create("dlq", visibilityTimeout=1, maxDeliveries=1)
    try:
        message = caller.enqueue(queue, "poison")
        expect("it was not delivered", caller.dequeue(queue).get("message_id") == message)
        dead = None
        for _ in range(_LOOKS):
            pause(1.1)
            expect("it was delivered again", caller.dequeue(queue) == {"message": None})
            dead = caller.call("GET", f"/{queue}")["dlq_id"]
            if dead is not None:
                break
        expect("there is no dead-letter queue", dead is not None)
        expect("it is not there", caller.dequeue(str(dead)).get("message_id") == message)
        caller.acknowledge(str(dead), message)
    finally:
        caller.drop(queue)


def load(connect: Callable[[], Caller], rounds: Callable[[], Iterable[object]]) -> list[Caller]:
    """Run load.js with one round per item of ``rounds`` for each user; return the users."""

    def use(queues: list[str]) -> Caller:
        with connect() as caller:
            for _ in rounds():
                try:
                    _turn(caller, random.choice(queues))
                except Failed as error:
                    caller.failures.append(str(error))
        return caller

    with connect() as owner:
        queues = [owner.create(f"load-{number}") for number in range(QUEUES)]
        try:
            with ThreadPoolExecutor(USERS) as pool:
                return list(pool.map(use, [queues] * USERS))
        finally:
            for queue in queues:
                owner.drop(queue)


def _turn(caller: Caller, queue: str) -> None:
    caller.enqueue(queue, "a lungo")
    # Perhaps what another user enqueued.
    found = caller.dequeue(queue)
    if "message_id" in found:
        caller.acknowledge(queue, found["message_id"])


def _in_python(url: str, seconds: int) -> int:
    for scenario in (happy_path, dead_letter):
        try:
            with Caller(url) as caller:
                scenario(caller)
        except Failed as error:
            print(f"{scenario.__name__}: FAILED: {error}")
            return 1
        print(f"{scenario.__name__}: ok")

    def rounds() -> Iterator[None]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield

    started = time.monotonic()
    users = load(lambda: Caller(url), rounds)
    lasted = time.monotonic() - started
    times = sorted(one for user in users for one in user.seconds)
    failures = [one for user in users for one in user.failures]
    print(f"load: {len(times)} requests, {len(failures)} failures", *failures[:5], sep="\n  ")
    print(
        f"  {len(times) / lasted:.0f} requests/s, p95 {times[len(times) * 95 // 100] * 1e3:.1f} ms"
    )
    return 1 if failures else 0


def _k6() -> str:
    folder = _ROOT / ".venvs" / f"k6-{K6_VERSION}"
    program = folder / "k6"
    if program.exists():
        return str(program)
    go = shutil.which("go")
    if go is None:
        raise NotInstalled("there is no Go to build k6 with")
    print(f"building k6 {K6_VERSION} with Go: some minutes, once", flush=True)
    command = [go, "install", f"go.k6.io/k6@{K6_VERSION}"]
    environ = dict(os.environ) | {"GOBIN": str(folder)}
    try:
        subprocess.run(command, env=environ, cwd=_ROOT, check=True, timeout=_BUILD_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"k6 could not be built ({error})") from error
    return str(program)


def _with_k6(program: str, url: str, seconds: int) -> int:
    ours = {
        "QUEUEGATE_URL": url,
        "QUEUEGATE_LOAD_DURATION": f"{seconds}s",
        "K6_NO_USAGE_REPORT": "true",
    }
    inherited = {n: value for n, value in os.environ.items() if not n.startswith("QUEUEGATE_")}
    worst = 0
    for name in ("happy-path.js", "dlq.js", "load.js"):
        print(f"\n{name}", flush=True)
        command = [program, "run", "--quiet", "--no-color", str(_SCRIPTS / name)]
        done = subprocess.run(command, env=inherited | ours, check=False)
        worst = max(worst, abs(done.returncode))
    return worst


def _ticks() -> tuple[int, int]:
    """Return the idle ticks and all ticks of this machine's processors."""
    fields = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def main(arguments: list[str]) -> int:
    """0 when no request and no check failed."""
    parser = argparse.ArgumentParser(prog="python -m conformance.load")
    parser.add_argument("--python", action="store_true", help="without k6")
    parser.add_argument("--seconds", type=int, default=30, help="how long the load lasts")
    options = parser.parse_args(arguments)
    program = ""
    try:
        program = "" if options.python else _k6()
    except NotInstalled as error:
        print(f"not with k6: {error}. The same scenarios in Python instead:", flush=True)
    with gateway(os.environ, QUEUEGATE_LOG_LEVEL="warning") as url:
        on_linux = sys.platform == "linux"
        idle, total = _ticks() if on_linux else (0, 0)
        if program:
            code = _with_k6(program, url, options.seconds)
        else:
            code = _in_python(url, options.seconds)
        if on_linux:
            idle_then, total_then = _ticks()
            busy = 1 - (idle_then - idle) / max(total_then - total, 1)
            print(f"\nprocessors of this machine busy: {busy:.0%}, whoever used them")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
