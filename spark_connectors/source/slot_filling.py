"""Fill one slot of a batch on an executor: receive, spool, delete."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from spark_connectors.rows.keys import message_key
from spark_connectors.rows.received import Received, stored_batch
from spark_connectors.source.deleting import ForgetRule
from spark_connectors.source.giving_back import give_back
from spark_connectors.source.options import StreamOptions
from spark_connectors.spool.places import Kept, Place
from spark_connectors.spool.segments import encode
from spark_connectors.spool.spool import Spool
from spark_connectors.transport import Transport
from spark_connectors.transport.wire import MOST_PER_CALL, ConnectorError

# A first look at a queue that says it has messages; AWS answers an empty one from a subset.
_WAIT_SECONDS = 1


class TooLate(ConnectorError):
    """The messages of a task were held so long that another task may receive them."""


class Slot(Protocol):
    """What a task says of its slot."""

    url: str
    rows: int
    rule: ForgetRule


@contextlib.contextmanager
def fill_slot(
    options: StreamOptions,
    spool: Spool,
    place: Place,
    open_transport: Callable[[], Transport],
    slot: Slot,
) -> Iterator[None]:
    """See that the slot's segment is there; with ``deleteMode=spool`` its messages are deleted
    while the rows are read, and have been when this ends."""
    if spool.has(place):
        yield
        return
    filling = _Filling(options, spool, open_transport(), slot)
    written = filling.fill(place)
    if not written or options.delete_mode != "spool":
        yield
        return
    deleting = threading.Thread(target=filling.delete, args=(place,))
    deleting.start()
    try:
        yield
    finally:
        deleting.join()


class _Filling:
    """One task's receives and deletes."""

    def __init__(
        self, options: StreamOptions, spool: Spool, transport: Transport, slot: Slot
    ) -> None:
        self._options = options
        self._spool = spool
        self._transport = transport
        self._slot = slot
        self._taken: dict[bytes, Received] = {}
        self._repeats: list[str] = []
        self._began = time.time()

    def fill(self, place: Place) -> bool:
        """Receive and write the segment. False: another attempt was faster; its messages count.

        Raises TooLate when receiving took so long that the messages may be elsewhere by now; the
        task is then run again.
        """
        self._receive()
        if time.time() - self._began > self._options.visibility_seconds / 2:
            give_back(self._transport, self._slot.url, self._receipts())
            raise TooLate(
                f"receiving took more than half of visibilityTimeout="
                f"{self._options.visibility_seconds}: raise it"
            )
        rows = stored_batch(self._options.place.name, list(self._taken.values()))
        written = self._spool.put(place, encode([rows], self._options.spool_compression))
        if not written:
            give_back(self._transport, self._slot.url, self._receipts())
        return written

    def _receipts(self) -> list[str]:
        return [one.message["ReceiptHandle"] for one in self._taken.values()]

    def _receive(self) -> None:
        """Until the slot is full, its time is up, or the queue has no more."""
        options = self._options
        deadline = time.monotonic() + options.receive_seconds
        body_bytes = 0
        known: dict[bytes, Place] | None = None
        while len(self._taken) < self._slot.rows and body_bytes < self._most_bytes():
            most = min(MOST_PER_CALL, self._slot.rows - len(self._taken))
            asked_at = time.time()
            messages = self._transport.receive(
                self._slot.url,
                most=most,
                visibility_seconds=options.visibility_seconds,
                wait_seconds=0 if self._taken else min(_WAIT_SECONDS, options.wait_seconds),
                attempt_id=str(uuid.uuid4()) if options.place.is_fifo else None,
                attribute_names=options.attribute_names,
            )
            now = time.time()
            if messages and not self._taken:
                # Their visibility timeout began between these two moments.
                self._began = asked_at
            if any(_is_repeated(one["Attributes"]) for one in messages) and known is None:
                known = self._known(now)
            for message in messages:
                key = message_key(message["MessageId"])
                if known and key in known:
                    self._repeats.append(message["ReceiptHandle"])
                    continue
                body_bytes += 0 if key in self._taken else len(message["Body"])
                self._taken[key] = Received(message, now)
            if not messages or time.monotonic() >= deadline:
                break
        # The spool has them, and their rows come from there.
        self._delete_all(self._repeats)

    def _most_bytes(self) -> int:
        return max(1, self._options.most_bytes // self._options.slots)

    def _known(self, now: float) -> dict[bytes, Place]:
        """Every message that the spool knows: read only when something was delivered again."""
        found = self._spool.remembered(self._spool.contents(), now)
        return {key: place for place, keys in found for key in keys}

    def delete(self, place: Place) -> None:
        """Delete what the segment has; what fails is left to the driver, which looks for it."""
        if self._delete_all(self._receipts()):
            now = time.time()
            forget_at = self._slot.rule.forget_at(self._began, now, is_sure=True)
            self._spool.mark_done(Kept(place, forget_at, len(self._taken)))

    def _delete_all(self, receipts: Sequence[str]) -> bool:
        try:
            for at in range(0, len(receipts), MOST_PER_CALL):
                part = receipts[at : at + MOST_PER_CALL]
                if any(self._transport.delete(self._slot.url, part)):
                    return False
        except ConnectorError:
            return False
        return True


def _is_repeated(attributes: dict[str, str]) -> bool:
    return attributes.get("ApproximateReceiveCount", "2") != "1"
