"""Redrive: dead letters go back to their source queues."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError, NotNow, Refused
from spark_connectors.pipelines.redriving.filters import Filters
from spark_connectors.pipelines.telling import SILENT, Teller, per_second, span
from spark_connectors.rows.received import Received
from spark_connectors.transport.aws.wire import MOST_PER_CALL, Entry, Message, Taken, Transport
from spark_connectors.transport.http.rate_limit import RateLimit

# Messages under consideration at once: --where asks Spark once for each such round.
_ROUND = 200
# This many empty receives: a queue of several partitions may answer one with nothing.
_EMPTY_RECEIVES = 3
_SHARE_OF_VISIBILITY = 0.5


class BadRedrive(ConnectorError):
    """A redrive that cannot be done as it was asked for."""


class RedrivePlan(NamedTuple):
    """What to move. ``destination``: a queue's URL instead of each message's source queue;
    ``apply`` False: only count. ``visibility_seconds``: how long what does not match is held."""

    queue_url: str
    filters: Filters
    apply: bool = False
    destination: str | None = None
    limit: int | None = None
    rate: int | None = None
    visibility_seconds: int = 300


class RedriveSummary(NamedTuple):
    """What a redrive did, or would do."""

    queue_url: str
    is_dry_run: bool
    looked_at: int
    matched: int
    moved: int
    without_source: int
    failed: int
    released: int
    destinations: dict[str, int]
    left_unseen: int
    seconds: float

    def lines(self) -> list[str]:
        """For people."""
        found = [f"{self.looked_at:,} dead letters looked at, {self.matched:,} match"]
        where = ", ".join(f"{name} {count:,}" for name, count in sorted(self.destinations.items()))
        if self.is_dry_run:
            found.append(f"dry run, nothing moved (--yes moves them): {where or 'none'}")
        else:
            found.append(
                f"{self.moved:,} moved in {span(self.seconds)} "
                f"({per_second(self.moved, self.seconds)}): {where or 'none'}"
            )
        if self.without_source:
            found.append(f"{self.without_source:,} have no source queue: give them a --destination")
        if self.failed:
            found.append(f"{self.failed:,} could not be sent or deleted and stay where they are")
        if self.left_unseen:
            found.append(
                f"about {self.left_unseen:,} were not looked at: in flight elsewhere, or behind a "
                "message of their group that stays"
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return self._asdict()


def redrive(transport: Transport, plan: RedrivePlan, teller: Teller = SILENT) -> RedriveSummary:
    """Look at every message of a dead-letter queue once, and move those that match.

    At least once: a message is deleted here only after its queue has it, so one whose delete fails
    is in both. A FIFO queue drops the repetition if it comes within its deduplication window. Body,
    attributes, group and trace header stay; message id and sending time are new. Those that do not
    match are invisible to others until the end, and their receive count is one higher. In a FIFO
    queue a message that stays hides what follows in its group. Raises Refused and NotNow.
    """
    return _Redrive(transport, plan, teller).run()


class _Redrive:
    def __init__(self, transport: Transport, plan: RedrivePlan, teller: Teller) -> None:
        self._transport = transport
        self._plan = plan
        self._teller = teller
        self._held: dict[str, str] = {}  # message id -> receipt handle
        self._held_since = 0.0
        self._urls: dict[str, str] = {}
        self._destinations: Counter[str] = Counter()
        self._matched = self._moved = self._without_source = self._failed = self._looked_at = 0
        self._limit = RateLimit(plan.rate)
        self._began = time.monotonic()

    def run(self) -> RedriveSummary:
        try:
            for received in self._rounds():
                self._consider(received)
                self._teller.step(
                    f"{self._looked_at:,} looked at, {self._matched:,} match, {self._moved:,} moved"
                )
                self._hold_on()
                if self._is_enough():
                    break
        finally:
            released = self._release()
        figures = self._transport.figures(self._plan.queue_url)
        seen = self._looked_at - self._moved
        return RedriveSummary(
            queue_url=self._plan.queue_url,
            is_dry_run=not self._plan.apply,
            looked_at=self._looked_at,
            matched=self._matched,
            moved=self._moved,
            without_source=self._without_source,
            failed=self._failed,
            released=released,
            destinations=dict(self._destinations),
            left_unseen=max(0, sum(figures) - seen),
            seconds=time.monotonic() - self._began,
        )

    def _is_enough(self) -> bool:
        limit = self._plan.limit
        return limit is not None and self._matched >= limit

    def _rounds(self) -> Iterator[list[Received]]:
        """Messages that were not seen in this run, until the queue has no more."""
        gathered: list[Received] = []
        empty = 0
        while empty < _EMPTY_RECEIVES:
            found = self._receive()
            empty = 0 if found else empty + 1
            gathered += found
            if len(gathered) >= _ROUND or (gathered and empty):
                yield gathered
                gathered = []
        if gathered:
            yield gathered

    def _receive(self) -> list[Received]:
        plan = self._plan
        try:
            messages = self._transport.receive(
                plan.queue_url, visibility_seconds=plan.visibility_seconds, wait_seconds=1
            )
        except Refused as refused:
            if refused.code != "OverLimit":
                raise
            self._teller.say("as many are held as may be in flight: the rest needs another run")
            return []
        found = []
        for message in messages:
            if not self._held:
                self._held_since = time.monotonic()
            if message["MessageId"] not in self._held:
                found.append(Received(message, time.time()))
                self._looked_at += 1
            self._held[message["MessageId"]] = message["ReceiptHandle"]
        return found

    def _consider(self, received: Sequence[Received]) -> None:
        matching = self._plan.filters.matching(received)
        chosen = [one.message for one in received if one.message["MessageId"] in matching]
        if self._plan.limit is not None:
            chosen = chosen[: max(0, self._plan.limit - self._matched)]
        self._matched += len(chosen)
        for url, messages in self._by_destination(chosen).items():
            self._destinations[url.rstrip("/").rpartition("/")[2]] += len(messages)
            if self._plan.apply:
                for start in range(0, len(messages), MOST_PER_CALL):
                    self._move(url, messages[start : start + MOST_PER_CALL])

    def _by_destination(self, messages: Sequence[Message]) -> dict[str, list[Message]]:
        found: dict[str, list[Message]] = {}
        for message in messages:
            url = self._destination_of(message)
            if url is None:
                self._without_source += 1
            else:
                found.setdefault(url, []).append(message)
        return found

    def _destination_of(self, message: Message) -> str | None:
        if self._plan.destination is not None:
            return self._plan.destination
        arn = (message.get("Attributes") or {}).get("DeadLetterQueueSourceArn")
        if arn is None:
            return None
        if arn not in self._urls:
            account, name = str(arn).split(":")[-2:]
            self._urls[arn] = self._transport.queue_url(name, account)
        return self._urls[arn]

    def _move(self, url: str, messages: Sequence[Message]) -> None:
        """Send one request of them, then delete those that were taken."""
        entries = [_entry(message, url, self._plan.queue_url) for message in messages]
        self._limit.wait(len(entries))
        # The limit may have waited long: a delete with an expired receipt is answered well.
        self._hold_on()
        answers = self._send(url, messages, entries)
        taken = [message for message, answer in answers if isinstance(answer, Taken)]
        self._failed += len(messages) - len(taken)
        if not taken:
            return
        receipts = [self._held[message["MessageId"]] for message in taken]
        faults = self._transport.delete(self._plan.queue_url, receipts)
        for message, fault in zip(taken, faults, strict=True):
            if fault is None:
                del self._held[message["MessageId"]]
                self._moved += 1
            else:
                self._failed += 1

    def _send(
        self, url: str, messages: Sequence[Message], entries: list[Entry]
    ) -> list[tuple[Message, object]]:
        """An answer for each message. Ten that are too large together go one by one."""
        try:
            return [*zip(messages, self._transport.send(url, entries), strict=True)]
        except Refused as refused:
            if refused.code != "BatchRequestTooLong" or len(entries) == 1:
                raise
            return [
                (message, self._transport.send(url, [entry])[0])
                for message, entry in zip(messages, entries, strict=True)
            ]

    def _hold_on(self) -> None:
        """Before what is held becomes visible again and would be looked at twice."""
        most = self._plan.visibility_seconds * _SHARE_OF_VISIBILITY
        if self._held and time.monotonic() - self._held_since > most:
            self._change(self._plan.visibility_seconds)
            self._held_since = time.monotonic()

    def _release(self) -> int:
        """Give back what stays; what fails here becomes visible by itself."""
        try:
            return self._change(0)
        except (Refused, NotNow) as failed:
            self._teller.say(f"not released, visible again in a while: {failed}")
            return 0

    def _change(self, seconds: int) -> int:
        receipts = list(self._held.values())
        changed = 0
        for start in range(0, len(receipts), MOST_PER_CALL):
            part = receipts[start : start + MOST_PER_CALL]
            faults = self._transport.change_visibility(self._plan.queue_url, part, seconds)
            changed += faults.count(None)
        return changed


def _entry(message: Message, url: str, dead_letter_url: str) -> Entry:
    """The message as it was. Its deduplication id is made of its id: when it is sent twice because
    a delete failed, a FIFO queue takes it once."""
    system: Mapping[str, str] = message.get("Attributes") or {}
    given: Mapping[str, Mapping[str, Any]] = message.get("MessageAttributes") or {}
    attributes = {
        name: (
            str(value["DataType"]),
            value["BinaryValue"] if value.get("BinaryValue") is not None else value["StringValue"],
        )
        for name, value in given.items()
    }
    is_fifo = url.rstrip("/").endswith(".fifo")
    identity = f"redrive|{dead_letter_url}|{message['MessageId']}"
    return Entry(
        body=message["Body"],
        attributes=attributes,
        group_id=system.get("MessageGroupId"),
        deduplication_id=hashlib.sha256(identity.encode()).hexdigest() if is_fifo else None,
        trace_header=system.get("AWSTraceHeader"),
    )
