"""Fill one slot of a batch on an executor: receive, spool, delete."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from spark_connectors.rows.keys import message_key
from spark_connectors.rows.received import Received, stored_batch
from spark_connectors.source.deleting import SAFE_UNTIL, ForgetRule, safe_from
from spark_connectors.source.giving_back import give_back
from spark_connectors.source.options import StreamOptions
from spark_connectors.spool.places import Kept, Place
from spark_connectors.spool.segments import Segment, encode
from spark_connectors.spool.spool import Spool
from spark_connectors.spool.stores import Missing
from spark_connectors.transport import Transport
from spark_connectors.transport.wire import MOST_PER_CALL, ConnectorError, Message

# A first look at a queue that says it has messages; AWS answers an empty one from a subset.
_WAIT_SECONDS = 1
_ATTEMPTS = 3
_LEAST_IN_PARALLEL = 2

_Item = TypeVar("_Item")


class TooLate(ConnectorError):
    """The messages of a task were held so long that another task may receive them."""


class Slot(Protocol):
    """What a task says of its slot."""

    url: str
    rows: int
    rule: ForgetRule


@contextlib.contextmanager
def filled_slot(
    options: StreamOptions,
    spool: Spool,
    place: Place,
    open_transport: Callable[[], Transport],
    slot: Slot,
) -> Iterator[Segment]:
    """The slot's segment, which is received and written now when there is none; with
    ``deleteMode=spool`` its messages are deleted while the rows are read, and have been when this
    ends."""
    with contextlib.suppress(Missing):
        yield spool.read(place)
        return
    # A machine that slept is no reason to fail: where Spark has one machine, it tries tasks once.
    for attempt in itertools.count(1):
        filling = _Filling(options, spool, open_transport(), slot)
        try:
            segment = filling.fill(place)
            break
        except TooLate:
            if attempt == _ATTEMPTS:
                raise
    if segment is None:
        yield spool.read(place)
    elif options.delete_mode != "spool":
        yield segment
    else:
        deleting = threading.Thread(target=filling.delete, args=(place,))
        deleting.start()
        try:
            yield segment
        finally:
            deleting.join()


class _Filling:
    """One task's receives and deletes, on ``receiveThreads`` threads."""

    def __init__(
        self, options: StreamOptions, spool: Spool, transport: Transport, slot: Slot
    ) -> None:
        self._options = options
        self._spool = spool
        self._transport = transport
        self._slot = slot
        self._lock = threading.Lock()
        self._threads = options.receive_threads
        self._most_bytes = max(1, options.most_bytes // options.slots)
        self._taken: dict[bytes, Received] = {}
        self._repeats: list[str] = []
        self._known: set[bytes] | None = None
        self._body_bytes = 0
        self._asked_for = 0
        self._is_over = False
        # No visibility timeout of what was taken began before this.
        self._began = time.time()
        self._deadline = time.monotonic() + options.receive_seconds

    def fill(self, place: Place) -> Segment | None:
        """Receive and write the segment. None: another attempt was faster; its messages count.

        Raises TooLate when receiving took so long that the messages may be elsewhere by now.
        """
        try:
            self._receive()
            if time.time() - self._began > self._options.visibility_seconds / 2:
                raise TooLate(
                    f"receiving took more than half of visibilityTimeout="
                    f"{self._options.visibility_seconds}: raise it"
                )
        except ConnectorError:
            self._give_back()
            raise
        rows = stored_batch(self._options.place.name, list(self._taken.values()))
        description = {SAFE_UNTIL: str(self._safe_until)}
        data = encode([rows], self._options.spool_compression, description)
        if self._spool.put(place, data):
            return Segment(data, str(place))
        self._give_back()
        return None

    @property
    def _safe_until(self) -> float:
        return safe_from(self._began, self._options.visibility_seconds)

    def _receipts(self) -> list[str]:
        return [one.message["ReceiptHandle"] for one in self._taken.values()]

    def _give_back(self) -> None:
        give_back(self._transport, self._slot.url, self._receipts())

    # Receiving

    def _receive(self) -> None:
        """Until the slot is full, its time is up, or the queue has no more."""
        # One call asks a queue that may have nothing; the others join when its answer is full.
        most = self._claim()
        count = self._ask(most, min(_WAIT_SECONDS, self._options.wait_seconds))
        self._in_parallel(self._receive_on, range(self._threads if count == most else 1))
        # The spool has these, and their rows come from there.
        self._delete_all(self._repeats)

    def _receive_on(self, _: int) -> bool:
        while most := self._claim():
            self._ask(most, 0)
        return True

    def _claim(self) -> int:
        """How many messages to ask for: all threads together no more than there is room for."""
        with self._lock:
            if self._is_over or self._body_bytes >= self._most_bytes:
                return 0
            room = self._slot.rows - len(self._taken) - self._asked_for
            most = max(0, min(MOST_PER_CALL, room))
            self._asked_for += most
            return most

    def _ask(self, most: int, wait_seconds: int) -> int:
        """Receive once. Returns how many came."""
        options = self._options
        try:
            messages = self._transport.receive(
                self._slot.url,
                most=most,
                visibility_seconds=options.visibility_seconds,
                wait_seconds=wait_seconds,
                attempt_id=str(uuid.uuid4()) if options.place.is_fifo else None,
                attribute_names=options.attribute_names,
            )
        except ConnectorError:
            self._is_over = True
            raise
        with self._lock:
            self._asked_for -= most
            self._take(messages)
            if not messages or time.monotonic() >= self._deadline:
                self._is_over = True
        return len(messages)

    def _take(self, messages: Sequence[Message]) -> None:
        now = time.time()
        if self._known is None and any(_is_repeated(one["Attributes"]) for one in messages):
            self._known = self._spooled(now)
        for message in messages:
            key = message_key(message["MessageId"])
            if self._known is not None and key in self._known:
                self._repeats.append(message["ReceiptHandle"])
                continue
            self._body_bytes += 0 if key in self._taken else len(message["Body"])
            self._taken[key] = Received(message, now)

    def _spooled(self, now: float) -> set[bytes]:
        """Every message that the spool knows: read only when something was delivered again."""
        found = self._spool.remembered(self._spool.contents(), now)
        return set(itertools.chain.from_iterable(keys for _, keys in found))

    # Deleting

    def delete(self, place: Place) -> None:
        """Delete what the segment has; what fails is left to the driver, which looks for it."""
        if self._delete_all(self._receipts()):
            now = time.time()
            forget_at = self._slot.rule.forget_at(self._safe_until, now, is_sure=True)
            self._spool.mark_done(Kept(place, forget_at, len(self._taken)))

    def _delete_all(self, receipts: Sequence[str]) -> bool:
        parts = [receipts[at : at + MOST_PER_CALL] for at in range(0, len(receipts), MOST_PER_CALL)]
        return all(self._in_parallel(self._is_deleted, parts))

    def _is_deleted(self, receipts: Sequence[str]) -> bool:
        try:
            return not any(self._transport.delete(self._slot.url, receipts))
        except ConnectorError:
            return False

    def _in_parallel(self, work: Callable[[_Item], bool], items: Sequence[_Item]) -> list[bool]:
        if len(items) < _LEAST_IN_PARALLEL:
            return [work(one) for one in items]
        with ThreadPoolExecutor(self._threads) as threads:
            return list(threads.map(work, items))


def _is_repeated(attributes: dict[str, str]) -> bool:
    return attributes.get("ApproximateReceiveCount", "2") != "1"
