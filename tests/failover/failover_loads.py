"""The loads of a failover run: seven kinds, each spread over all gateways."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tests.faces.connections import fetch
from tests.faults.client import Client, Unanswered, clients
from tests.faults.gateways import Server
from tests.faults.ledger import Bodies
from tests.faults.load import Load, Pace, make_queue
from tests.faults.log_load import LogLoad
from tests.faults.wires import ChannelWire, QueueWire, ScheduleWire, TopicWire, Wire
from tests.scheduler.endpoints import Endpoint, answer

ACCOUNT = "000000000000"
_ROLE = f"arn:aws:iam::{ACCOUNT}:role/failover"
_RAW = {"RawMessageDelivery": "true"}
_RETRIES = {"numRetries": 100, "minDelayTarget": 1, "maxDelayTarget": 2}
_GAP_SECONDS = 1.0
_SLOW_SECONDS = 2.0
_AFTER_NONE_SECONDS = 0.1
_MOST_AHEAD = 5_000
# Name -> (messages of a request, share of the rate).
_SHARES = {
    "standard": (10, 0.35),
    "fifo": (5, 0.25),
    "topic": (5, 0.1),
    "fifo topic": (5, 0.1),
    "channel": (5, 0.1),
    "log": (4, 0.08),
    "schedule": (1, 0.02),
}

Key = tuple[str, int, str]
"""(load, port, verb)."""


def is_timed(key: Key) -> bool:
    """Return True for calls that come all the time. A subscriber of a log fetches only after a
    heartbeat was answered, so the heartbeat counts."""
    return key[2] in (("send", "join") if key[0] == "log" else ("send", "receive"))


class Answers:
    """The times at which each gateway answered each load, as counts and gaps."""

    def __init__(self) -> None:
        self.last: dict[Key, float] = {}
        self.gaps: defaultdict[Key, list[tuple[float, float]]] = defaultdict(list)
        """The intervals without an answer of more than a second, in seconds of the epoch."""
        self.counts: Counter[str] = Counter()
        """Answers of each load since they were last taken."""

    def note(self, key: Key) -> None:
        """Record an answer."""
        now = time.time()
        before = self.last.get(key, now)
        if now - before > _GAP_SECONDS:
            self.gaps[key].append((before, now))
        self.last[key] = now
        self.counts[f"{key[0]} {key[2]}"] += 1

    def outages(self, since: float, until: float) -> dict[Key, float]:
        """Return when each answered again that had answered nothing at some time between."""
        return {
            key: max(end for _, end in gaps)
            for key, all_gaps in self.gaps.items()
            if is_timed(key)
            and (gaps := [gap for gap in all_gaps if gap[1] > since and gap[0] < until])
        }

    def are_silent(self, since: float) -> list[Key]:
        """Return those that have answered nothing since then."""
        return [key for key, at in self.last.items() if is_timed(key) and at < since]


class FailoverLoads:
    """All loads together."""

    def __init__(
        self, servers: Sequence[Server], rate: float, on_slow: Callable[..., None]
    ) -> None:
        self.servers = servers
        self.on_slow = on_slow
        """Called with the facts of each call that got no answer, or a late one."""
        self.rate = rate
        self.answers = Answers()
        self.posted = Bodies()
        """Messages that came to the web hook."""
        self.endpoint = Endpoint(self._take_post)
        self.loads: dict[str, Load] = {}
        self._ports = [server.port for server in servers]
        self._log: LogLoad | None = None

    @property
    def log(self) -> LogLoad:
        assert self._log is not None
        return self._log

    async def make(self) -> None:
        """Queues, topics, web hook, log."""
        port = self._ports[0]
        async with clients(port, 1, "sns") as [sns], clients(port, 1) as [sqs]:
            topics = [await _topic(sns, sqs, port, name) for name in ("news", "news.fifo")]
            await self._subscribe(sns, topics[0][0])
        url = await make_queue(port, "fired")
        wires: dict[str, Wire] = {
            "standard": QueueWire(await make_queue(port, "standard")),
            "fifo": QueueWire(await make_queue(port, "ordered.fifo")),
            "topic": TopicWire(*topics[0]),
            "fifo topic": TopicWire(*topics[1]),
            "channel": ChannelWire(ACCOUNT),
            "schedule": ScheduleWire(ACCOUNT, url, _ROLE),
        }
        for name, wire in wires.items():
            load = Load(self._ports, wire, batch=_SHARES[name][0], pace=self._pace(name))
            load.on_call = functools.partial(self._on_call, name)
            self.loads[name] = load
        self._log = LogLoad(
            *self.servers,
            batch=_SHARES["log"][0],
            most_ahead=_MOST_AHEAD,
            pace=self._pace("log"),
        )
        self._log.on_call = functools.partial(self._on_call, "log")
        await self._log.make()

    def _on_call(
        self, load: str, port: int, verb: str, seconds: float, error: Unanswered | None
    ) -> None:
        if error is None:
            self.answers.note((load, port, verb))
        if error is not None or seconds > _SLOW_SECONDS:
            self.on_slow(
                load=load, port=port, op=verb, seconds=round(seconds, 3), error=str(error or "")
            )

    def start(self) -> None:
        """Begin, with one sender and one receiver of each load at each gateway."""
        count = len(self.servers)
        for load in self.loads.values():
            load.start(count, count)
        self.log.start()

    def acknowledged(self) -> dict[str, int]:
        """Return the number of acknowledged sends of each load."""
        counts = {name: len(load.sent) for name, load in self.loads.items()}
        return counts | {"log": len(self.log.promised)}

    def unanswered(self) -> int:
        """Return the number of calls without an answer."""
        return sum(load.unanswered for load in self.loads.values()) + self.log.unanswered

    def violations(self) -> list[str]:
        """Return what no promise allows."""
        found = [
            f"{name}: {violation}"
            for name, load in self.loads.items()
            for violation in load.violations
        ]
        return found + [f"log: {violation}" for violation in self.log.violations]

    def raise_failure(self) -> None:
        """Raise the error of a client that failed."""
        for load in self.loads.values():
            load.raise_failure()

    async def end_and_check(self, patience_seconds: float) -> dict[str, str]:
        """Stop sending, drain all, and return what is wrong by load."""
        await asyncio.gather(*(load.end() for load in self.loads.values()))
        checks = {
            name: asyncio.create_task(load.check(patience_seconds))
            for name, load in self.loads.items()
        }
        checks["log"] = asyncio.create_task(self.log.end_and_check())
        checks["web hook"] = asyncio.create_task(self._check_hook(patience_seconds))
        await asyncio.wait(checks.values())
        found = {name: task.exception() for name, task in checks.items()}
        for name, load in self.loads.items():
            if found[name] is not None:
                lost = [body for body in load.sent if body not in load.seen]
                found[name] = AssertionError(found[name], f"{len(lost)} not received", lost[:20])
        return {name: repr(error)[:2000] for name, error in found.items() if error is not None}

    def _pace(self, name: str) -> Pace:
        batch, share = _SHARES[name]
        seconds = batch * len(self.servers) / (share * self.rate) if self.rate else 0.0
        return Pace(seconds, _AFTER_NONE_SECONDS)

    async def _subscribe(self, sns: Client, topic: str) -> None:
        policy = json.dumps({"healthyRetryPolicy": _RETRIES})
        attributes = {**_RAW, "DeliveryPolicy": policy}
        members = {"Protocol": "http", "Endpoint": self.endpoint.url, "Attributes": attributes}
        await sns.call("Subscribe", TopicArn=topic, **members)
        await self.endpoint.reached(1)
        link = json.loads(self.endpoint.requests[0].body)["SubscribeURL"]
        gateway = f"http://127.0.0.1:{self._ports[0]}"
        await asyncio.to_thread(fetch, gateway, link[link.index("/", len("https://")) :])
        self.endpoint.requests.clear()

    async def _take_post(self, reader: Any, writer: Any) -> None:
        """Note what was posted, and answer."""
        for request in self.endpoint.requests:
            if b"SubscribeURL" not in request.body:
                self.posted.add(request.body.decode())
                self.answers.counts["web hook post"] += 1
        if self.posted:
            self.endpoint.requests.clear()
        await answer(200)(reader, writer)

    async def _check_hook(self, patience_seconds: float) -> None:
        sent = self.loads["topic"].sent
        pace = Pace()
        deadline = time.monotonic() + patience_seconds
        while (left := [one for one in sent if one not in self.posted][:20]) and (
            time.monotonic() < deadline
        ):
            await pace.pause(0.5)
        assert left == []


async def _topic(sns: Client, sqs: Client, port: int, name: str) -> tuple[str, str]:
    """(ARN, URL of the queue that is subscribed to it)."""
    attributes = {"FifoTopic": "true"} if name.endswith(".fifo") else {}
    topic: str = (await sns.call("CreateTopic", Name=name, Attributes=attributes))["TopicArn"]
    url = await make_queue(port, f"to-{name}")
    arn = topic.replace(":sns:", ":sqs:").rpartition(":")[0] + f":to-{name}"
    members = {"Protocol": "sqs", "Endpoint": arn, "Attributes": _RAW}
    await sns.call("Subscribe", TopicArn=topic, **members)
    return topic, url
