"""Messages at rest: browse a queue without receiving; archives of deleted messages, and replays of
them.

Queues store envelopes of SNS without signatures: ``signed`` adds them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

import orjson

from queuegate.gateway.operations.queues.queues import locked_queue
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import sns_envelopes
from queuegate.storage.queue_model import (
    END,
    LAST,
    START,
    UNSIGNED,
    ArchivedCopy,
    Browsed,
    BrowseFilter,
    BrowsePosition,
    MessageState,
    Queue,
    Received,
)
from queuegate.storage.queues import archives, stored_queues
from queuegate.storage.queues.archives import ArchiveFilter as WantedArchived
from queuegate.storage.queues.archives import ArchiveScan
from queuegate.storage.queues.capacity import capacity_of
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    QueueDoesNotExist,
    QueueFull,
    ResourceNotFound,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine


Stored = TypeVar("Stored", ArchivedCopy, Browsed)


async def signed(engine: Engine, kept: list[Received]) -> list[Received]:
    """Return the messages with signed envelopes; the signatures are made off the event loop. The
    MD5 of such bodies is not stored."""
    places = [place for place, one in enumerate(kept) if one.body_md5 == UNSIGNED]
    if not places:
        return kept
    items = [sns_envelopes.to_sign(kept[place].body) for place in places]
    signatures = await engine.signer.sign_many(items)
    fingerprint = engine.signer.fingerprint
    kept = list(kept)
    for place, signature in zip(places, signatures, strict=True):
        body = sns_envelopes.with_signature(kept[place].body, signature, fingerprint)
        kept[place] = kept[place]._replace(body=body, body_md5=None)
    return kept


async def _all_signed(engine: Engine, stored: list[Stored]) -> list[Stored]:
    messages = await signed(engine, [one.message for one in stored])
    return [one._replace(message=message) for one, message in zip(stored, messages, strict=True)]


PLACE_PATTERN = r"^[0-9]{1,19}(\.[!-~]{1,128})?$"
AS_OF_PATTERN = r"^[0-9]{1,19}$"
_BROWSED_BYTES = 4 << 20
_PAGES_SEARCHED = 10
_TURN_SECONDS = 0.005
_PLACE = re.compile(r"([0-9]{1,19})(?:\.([!-~]{1,128}))?").fullmatch
_AS_OF = re.compile(r"[0-9]{1,19}").fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Browse(NamedTuple):
    """A filter of messages. None: any. ``after``, ``until`` and ``as_of`` are texts from an earlier
    answer; instants are compared in milliseconds, as receives show them."""

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


class BrowseResult(NamedTuple):
    """A page. ``next``: pass it as ``after``; None: no more messages."""

    messages: list[Browsed]
    next: str | None
    as_of: str


class Matching(NamedTuple):
    """A filter of messages beside ``Browse``. All given conditions must hold. ``source`` is the
    name or the ARN of the source queue of a dead letter. The body contains ``text``. A message
    attribute has the given text, or this prefix if the text ends with ``*``."""

    source: str | None = None
    group_ids: Sequence[str] = ()
    attributes: Mapping[str, str] = {}
    text: str | None = None

    def holds(self, message: Received) -> bool:
        """Return True if the message matches."""
        return (
            (self.source is None or self.source in _names_of(came_from(message)))
            and (not self.group_ids or _group_of(message) in self.group_ids)
            and (self.text is None or self.text in message.body)
            and (not self.attributes or self._has_attributes(message))
        )

    def _has_attributes(self, message: Received) -> bool:
        there = orjson.loads(message.attributes or "{}")
        return all(
            _is_like(there.get(name, {}).get("StringValue"), wanted)
            for name, wanted in self.attributes.items()
        )


_ALL = Matching()


def came_from(message: Received) -> str | None:
    return _system(message).get("DeadLetterQueueSourceArn")


def _system(message: Received) -> dict[str, str]:
    return orjson.loads(message.system) if message.system else {}


def _names_of(arn: str | None) -> tuple[str, ...]:
    return () if arn is None else (arn, arn.rpartition(":")[2])


def _group_of(message: Received) -> str | None:
    return message.group_id or _system(message).get("MessageGroupId")


def _is_like(found: str | None, wanted: str) -> bool:
    if found is None:
        return False
    return found.startswith(wanted[:-1]) if wanted.endswith("*") else found == wanted


Stretch = tuple[str | None, str | None]
"""Messages after the first place, including the second; None: from the first, to the last."""


async def browse(
    engine: Engine, caller: Caller, queue: Queue, request: Browse, matching: Matching = _ALL
) -> BrowseResult:
    """Return the next messages: visible, delayed and in flight. Changes nothing.

    ``as_of`` identifies the time of the first page. A message that was in the queue at that time,
    and is there when its page is read, appears exactly once over all pages, or over the pages of
    adjacent stretches. Messages sent or moved there later do not appear. Messages deleted before
    their page is read may be missing; on a FIFO queue, a redrive policy that names the queue itself
    deletes a message and sends it again. States and counts are those when the page is read.

    Standard queues are ordered by id, FIFO queues by group and id. A page has fewer messages than
    the limit if they exceed 4 MB. It reads at most 20,000 messages, so a filtered page may be short
    or empty without being the last. Of the page, the messages that match are returned. Raises
    InvalidParameterValue for an invalid place or time.
    """
    after, until = _place(queue, request.after, START), _place(queue, request.until, END)
    number = _number(request.as_of)
    async with engine.database.transaction() as tx:
        if number is None:
            number = await queue.kind.last_number(tx)
        since = _milliseconds(request.sent_since, is_first=True)
        before = _milliseconds(request.sent_until, is_first=False)
        wanted = BrowseFilter(number, after, until, request.group_id, since, before, *request[7:])
        now = engine.clock.of(queue.account_id).now()
        page = await queue.kind.read_page(
            tx, now, queue, wanted, limit=request.limit, most_bytes=_BROWSED_BYTES
        )
    following = None if page.next is None else text_of(page.next)
    found = await _matching(page.messages, matching)
    return BrowseResult(await _all_signed(engine, found), following, str(number))


async def _matching(messages: Sequence[Browsed], matching: Matching) -> list[Browsed]:
    """Return the messages that match. Yields to the event loop: the search of a body for a text
    that nearly matches everywhere takes 1 ms."""
    found: list[Browsed] = []
    end = perf_counter() + _TURN_SECONDS
    for one in messages:
        if matching.holds(one.message):
            found.append(one)
        if perf_counter() > end:
            await yield_to_loop()
            end = perf_counter() + _TURN_SECONDS
    return found


async def search(
    engine: Engine, caller: Caller, queue: Queue, request: Browse, matching: Matching
) -> BrowseResult:
    """Return the next messages that match. Browses at most 10 pages of 1,000 messages or 4 MB, so
    the result may be short or empty without being the last. Raises errors of ``browse``."""
    found: list[Browsed] = []
    asked = request._replace(limit=LIMITS.browsed_messages)
    for _ in range(_PAGES_SEARCHED):
        page = await browse(engine, caller, queue, asked, matching)
        found += page.messages
        if len(found) > request.limit:
            following = text_of(place_of(found[request.limit - 1].message))
            return BrowseResult(found[: request.limit], following, page.as_of)
        asked = asked._replace(after=page.next, as_of=page.as_of)
        if page.next is None or len(found) == request.limit:
            break
    return BrowseResult(found, page.next, page.as_of)


async def split(
    engine: Engine, caller: Caller, queue: Queue, parts: int, as_of: str | None = None
) -> tuple[str, list[Stretch]]:
    """Divide the queue into at most ``parts`` stretches of similar size, at least one, to browse
    them in parallel. They are disjoint and have together all messages as of the time that is
    returned first. Raises InvalidParameterValue for an invalid ``as_of``."""
    number = _number(as_of)
    async with engine.database.transaction() as tx:
        if number is None:
            number = await queue.kind.last_number(tx)
        ends = await queue.kind.find_ends(tx, queue.queue_id, number, parts)
    texts = [None, *[text_of(end) for end in ends], None]
    return str(number), list(pairwise(texts))


def place_of(message: Received) -> BrowsePosition:
    return BrowsePosition(message.group_id or "", message.sequence)


def text_of(place: BrowsePosition) -> str:
    return f"{place.sequence}.{place.group_id}" if place.group_id else str(place.sequence)


def _place(queue: Queue, text: str | None, absent: BrowsePosition) -> BrowsePosition:
    if text is None:
        return absent
    found = _PLACE(text)
    if found is None or (found[2] is not None) != queue.kind.has_groups:
        raise InvalidParameterValue(
            f"'{text}' is not a place in queue '{queue.name}': give back what it answered."
        )
    return BrowsePosition(found[2] or "", min(int(found[1]), LAST))


def _number(as_of: str | None) -> int | None:
    if as_of is None:
        return None
    if not _AS_OF(as_of):
        raise InvalidParameterValue(f"'{as_of}' is not a time: pass `as_of` from an answer.")
    return min(int(as_of), LAST)


def _milliseconds(instant: datetime | None, *, is_first: bool) -> int | None:
    """Return the first or the last whole millisecond within the bound."""
    if instant is None:
        return None
    if is_first:
        return -((_EPOCH - instant) // _MILLISECOND)
    return (instant - _EPOCH) // _MILLISECOND


_LISTED_BYTES = 4 << 20
_REPLAYED_BYTES = 8 << 20
# Each group of a send takes an advisory lock, and these are in shared memory.
_GROUPS_PER_REPLAY = 500
_REMOVED_PER_BATCH = 5_000
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.-]*").fullmatch
_HEADER = "_schedule"


class ArchivingChange(NamedTuple):
    """A change of archiving. ``is_archiving`` None: unchanged; ``archive_days`` is used with
    ``has_days``."""

    is_archiving: bool | None = None
    archive_days: int | None = None
    has_days: bool = False


async def change_archiving(
    engine: Engine, caller: Caller, queue: Queue, change: ArchivingChange
) -> Queue:
    """Change archiving and return the queue. Raises QueueDoesNotExist. Off: messages deleted after
    the commit are not archived, in any process; archived messages stay. On: this process archives
    when this returns. Other processes follow within milliseconds of the commit, or when their lost
    connection for notifications is restored."""
    async with engine.database.transaction() as tx:
        queue = await locked_queue(tx, queue)
        if change.is_archiving is not None:
            queue = replace(queue, is_archiving=change.is_archiving)
        if change.has_days:
            queue = replace(queue, archive_days=change.archive_days)
        await stored_queues.set_archiving(
            tx, queue.queue_id, queue.is_archiving, queue.archive_days
        )
    engine.wakeups.queue_changed(queue.queue_id)
    return queue


class ListArchive(NamedTuple):
    """A filter: messages after that id, archived from ``since`` to ``until``, sent by
    ``schedule``."""

    limit: int = 100
    after_id: int = 0
    since: datetime | None = None
    until: datetime | None = None
    schedule: str | None = None


class ArchivePage(NamedTuple):
    """Messages by id. ``next_id``: continue after it; None: no more messages."""

    messages: list[ArchivedCopy]
    next_id: int | None


async def list_archive(
    engine: Engine, caller: Caller, queue: Queue, request: ListArchive
) -> ArchivePage:
    """Return the next messages of the archive, fewer than the limit if they exceed 4 MB. Reads at
    most 20,000 archived messages: a filtered page may be short or empty without being the last."""
    word = request.schedule
    if word is not None and not _PLAIN_WORD(word):
        # JSON has several forms of it.
        word = ""
    bounds = _utc(request.since), _utc(request.until)
    wanted = WantedArchived(min(request.after_id, LAST), *bounds, word)
    async with engine.database.transaction() as tx:
        found = await archives.find(
            tx, queue.queue_id, wanted, limit=request.limit, most_bytes=_LISTED_BYTES
        )
        kept = await archives.read(tx, queue.queue_id, found.sequences)
    if request.schedule is not None:
        kept = [one for one in kept if _fired_by(one.message.attributes) == request.schedule]
    return ArchivePage(
        await _all_signed(engine, kept), None if found.is_last else found.last_sequence
    )


def _utc(instant: datetime | None) -> datetime | None:
    try:
        return None if instant is None else instant.astimezone(UTC)
    except OverflowError:
        raise InvalidParameterValue(
            f"{instant} is not an instant of the years 1 to 9999."
        ) from None


def _fired_by(attributes: str | None) -> object:
    """Return the schedule in the message's header. Any sender can set this header."""
    try:
        members = orjson.loads(orjson.loads(attributes or "{}")[_HEADER]["StringValue"])
    except (KeyError, orjson.JSONDecodeError):
        return None
    return members.get("name") if isinstance(members, dict) else None


async def find_archived(
    engine: Engine, caller: Caller, queue: Queue, sequence: int
) -> ArchivedCopy:
    """Return the archived message of that id. Raises ResourceNotFound."""
    kept: list[ArchivedCopy] = []
    if 0 < sequence <= LAST:
        async with engine.database.transaction() as tx:
            kept = await archives.read(tx, queue.queue_id, [sequence])
    if not kept:
        raise ResourceNotFound(f"The archive of queue '{queue.name}' has no message {sequence}.")
    [found] = await _all_signed(engine, kept)
    return found


class ReplayArchive(NamedTuple):
    """A request to send archived messages again: by id, or as in ``ListArchive``."""

    ids: list[int] | None = None
    limit: int = LIMITS.replayed_messages
    after_id: int = 0
    since: datetime | None = None
    until: datetime | None = None


class Replayed(NamedTuple):
    """Ids of the copies, in the order of the originals. ``last_id``: continue after it; None: no
    more messages."""

    ids: list[int]
    last_id: int | None


async def replay(
    engine: Engine, caller: Caller, queue: Queue, target: Queue, request: ReplayArchive
) -> Replayed:
    """Send copies of archived messages to a queue, all of one call or none.

    Copies have the body, attributes, sender and group of the originals, and new ids, sending times
    and deduplication ids. A call copies fewer messages than the limit if they exceed 8 MB or 500
    groups, or if the target has less capacity. Absent ids are skipped. Raises InvalidParameterValue
    if the queues are of different kinds, QueueDoesNotExist if the target does not exist, and
    QueueFull if it has no capacity.
    """
    orders = {target.kind.order, queue.kind.order}
    if len(orders) > 1:
        one, other = sorted(orders)
        raise InvalidParameterValue(
            f"Messages of queue '{queue.name}' cannot be replayed to queue '{target.name}': one of "
            f"them is a {one} queue, the other is a {other} queue."
        )
    engine.check_room()
    now = engine.clock.of(target.account_id).now()
    async with engine.database.transaction() as tx:
        limit = request.limit
        if target.most_messages is not None:
            limit = min([limit, *(await capacity_of(tx, [target.queue_id], now)).values()])
            if not limit:
                raise QueueFull(target)
        if request.ids is not None:
            ids = [one for one in request.ids if 0 < one <= LAST]
            found = await archives.find_ids(
                tx, queue.queue_id, ids, limit=limit, most_bytes=_REPLAYED_BYTES
            )
        else:
            wanted = WantedArchived(
                min(request.after_id, LAST), _utc(request.since), _utc(request.until)
            )
            found = await archives.find(
                tx, queue.queue_id, wanted, limit=limit, most_bytes=_REPLAYED_BYTES
            )
        kept = await archives.read(tx, queue.queue_id, found.sequences)
        kept, found = _within_groups(kept, found)
        sent = await archives.send_again(tx, now, target, kept) if kept else []
        if kept and not sent:
            engine.queues.forget(target.queue_id)
            raise QueueDoesNotExist(target.name)
    if sent:
        # Their positions are as of the start of the transaction: left of the low-water mark of
        # receives since.
        engine.standard.look_near([target.queue_id])
        engine.wakeups.arrived(target.queue_id, len(sent))
        engine.series.copied(target, len(sent))
    return Replayed(sent, None if found.is_last else found.last_sequence)


def _within_groups(
    kept: list[ArchivedCopy], found: ArchiveScan
) -> tuple[list[ArchivedCopy], ArchiveScan]:
    groups: set[str | None] = set()
    for place, one in enumerate(kept):
        groups.add(one.message.group_id)
        if len(groups) > _GROUPS_PER_REPLAY:
            return kept[:place], ArchiveScan([], kept[place - 1].message.sequence, False)
    return kept, found


async def clear_archive(
    engine: Engine, caller: Caller, queue: Queue, before: datetime | None
) -> int:
    """Delete messages that were archived before an instant, None: all, in short transactions.
    Returns their number."""
    bound = _utc(before)
    total = 0
    gone = _REMOVED_PER_BATCH
    while gone == _REMOVED_PER_BATCH:
        async with engine.database.transaction() as tx:
            gone = await archives.remove_before(tx, queue.queue_id, bound, limit=_REMOVED_PER_BATCH)
        total += gone
    return total
