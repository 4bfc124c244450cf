"""Browsing: look at the messages of a queue without receiving them, page by page or in parallel."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.gateway.operations.topics.envelope_signatures import signed
from queuegate.storage.errors import InvalidParameterValue
from queuegate.storage.model import Browsed, MessageState, Queue
from queuegate.storage.queues.browsing import END, START, Place, Wanted
from queuegate.storage.queues.message_ids import LAST

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine

PLACE_PATTERN = r"^[0-9]{1,19}(\.[!-~]{1,128})?$"
AS_OF_PATTERN = r"^[0-9]{1,19}$"

_BROWSED_BYTES = 4 << 20
_PLACE = re.compile(r"([0-9]{1,19})(?:\.([!-~]{1,128}))?").fullmatch
_AS_OF = re.compile(r"[0-9]{1,19}").fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Browse(NamedTuple):
    """Which messages of a queue. None: any. ``after``, ``until`` and ``as_of`` are texts that an
    earlier answer gave; instants are compared with the milliseconds that receives show."""

    limit: int = 100
    after: str | None = None
    until: str | None = None
    as_of: str | None = None
    group_id: str | None = None
    sent_since: datetime | None = None
    sent_until: datetime | None = None
    min_receives: int | None = None
    max_receives: int | None = None
    state: MessageState | None = None
    message_ids: list[UUID] | None = None


class BrowsedPage(NamedTuple):
    """``next``: go on with it as ``after``; None: there is nothing more."""

    messages: list[Browsed]
    next: str | None
    as_of: str


Stretch = tuple[str | None, str | None]
"""Messages behind the first place, up to and with the second; None: from the first, to the last."""


async def browse(engine: Engine, caller: Caller, queue: Queue, request: Browse) -> BrowsedPage:
    """The next messages: visible, in flight and delayed ones. Nothing of them changes.

    ``as_of`` stands for the moment at which it was answered first. A message that was in the queue
    then, and still is when its page is read, comes exactly once over the pages, or over the pages
    of stretches without a gap. Nothing that was sent or moved there later comes. What is deleted
    before its page is read may not come; on a FIFO queue a redrive policy that names the queue
    itself deletes a message and sends it anew. State and counts are those of the page's moment.

    Standard queues go by id; FIFO queues by group and within one by id. A page has up to the limit
    of messages, and fewer when they are larger than 4 MB; it costs a look at 20,000 messages at
    most, so with a filter it may be short, or empty, and not the last. Raises
    InvalidParameterValue for a place or a moment of another kind.
    """
    after, until = _place(queue, request.after, START), _place(queue, request.until, END)
    number = _number(request.as_of)
    async with engine.database.transaction() as tx:
        if number is None:
            number = await queue.kind.last_number(tx)
        wanted = Wanted(
            number,
            after,
            until,
            request.group_id,
            _milliseconds(request.sent_since, is_first=True),
            _milliseconds(request.sent_until, is_first=False),
            *request[7:],
        )
        page = await queue.kind.read_page(
            tx,
            engine.clock.of(queue.account_id).now(),
            queue,
            wanted,
            limit=request.limit,
            most_bytes=_BROWSED_BYTES,
        )
    following = None if page.next is None else text_of(page.next)
    return BrowsedPage(await signed(engine, page.messages), following, str(number))


async def split(
    engine: Engine, caller: Caller, queue: Queue, parts: int, as_of: str | None = None
) -> tuple[str, list[Stretch]]:
    """Cut the queue into at most ``parts`` stretches with about as many messages each, at least
    one, to be browsed in parallel: they have no message in common and together all of the moment
    that comes first. Raises InvalidParameterValue for ``as_of`` that is none."""
    number = _number(as_of)
    async with engine.database.transaction() as tx:
        if number is None:
            number = await queue.kind.last_number(tx)
        ends = await queue.kind.find_ends(tx, queue.queue_id, number, parts)
    texts = [None, *[text_of(end) for end in ends], None]
    return str(number), list(pairwise(texts))


def place_of(message: Browsed) -> Place:
    """Where the message lies in its queue."""
    return Place(message.group_id or "", message.sequence)


def text_of(place: Place) -> str:
    """What clients know the place by."""
    return f"{place.sequence}.{place.group_id}" if place.group_id else str(place.sequence)


def _place(queue: Queue, text: str | None, absent: Place) -> Place:
    if text is None:
        return absent
    found = _PLACE(text)
    if found is None or (found[2] is not None) != queue.kind.has_groups:
        raise InvalidParameterValue(
            f"'{text}' is not a place in queue '{queue.name}': give back what it answered."
        )
    return Place(found[2] or "", min(int(found[1]), LAST))


def _number(as_of: str | None) -> int | None:
    if as_of is None:
        return None
    if not _AS_OF(as_of):
        raise InvalidParameterValue(f"'{as_of}' is not a moment: give back `as_of` of an answer.")
    return min(int(as_of), LAST)


def _milliseconds(instant: datetime | None, *, is_first: bool) -> int | None:
    """The first or the last whole millisecond that an instant does not leave out."""
    if instant is None:
        return None
    if is_first:
        return -((_EPOCH - instant) // _MILLISECOND)
    return (instant - _EPOCH) // _MILLISECOND
