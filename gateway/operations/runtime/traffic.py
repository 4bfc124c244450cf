"""Limits and counts of everything that the clients of a process have open and under way.

Bytes are counted in shares: one for each account, and one for each client address, with the account
that it claims, as long as a request is not verified. No share may hold more than is free beside it:
one share gets half of the budget at most, two a third each, so the next account always finds room.
Answers that are not read never take the last quarter, the reserve for requests. A receive counts
the bytes that it is expected to bring while it asks the database, then those that it brought.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from heapq import nlargest

_RESERVE_PARTS = 4
_FLOOR_PARTS = 64
_SHOWN_ACCOUNTS = 20
_MOST_QUEUES = 100_000
_PATIENCE_SECONDS = 10.0
"""Seconds that a request waits until the share of its account has room for an answer."""
_TURN_SECONDS = 0.01
"""From one request of an account that goes on after such a wait to the next."""


def unverified(address: str, account_id: str = "") -> str:
    """Return the share of a client whose account is only claimed, or not known."""
    return f"{address} {account_id}"


@dataclass(slots=True, eq=False, kw_only=True)
class Traffic:
    """Connections, and the bytes of requests without an answer and of answers that are not read.
    One connection has bounds of its own; these are for all of them. ``is_tight``: some share may
    have no room for another answer."""

    most_bytes: int = 1 << 40
    most_clients: int = 1 << 40
    connections: int = 0
    held_bytes: int = 0
    answer_bytes: int = 0
    """Those of ``held_bytes`` that are answers."""
    is_tight: bool = False
    refused_clients: int = 0
    refused_requests: int = 0
    """Requests without room in their share, or that would wait too long."""
    troubles: dict[str, int] = field(default_factory=dict)
    """By the text of a log line, refusals and closed connections that are not logged yet."""
    unread_closed: int = 0
    """Connections that were closed because an answer was read too slowly, or not at all."""
    file_errors: int = 0
    """Times that the process was found without a file descriptor to spare."""
    message_bytes: dict[int, int] = field(default_factory=dict)
    """The bytes that a receive counts for each message before it looks, by queue: those of the
    messages that came last, if they are long. Looks at empty queues never fill the budget."""
    _tight_bytes: int = field(init=False)
    _held_by: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One share that is all of it is above its limit for answers from here on.
        self._tight_bytes = (self.most_bytes - self._reserve()) // 2

    def refused(self, text: str) -> None:
        """Count a request that was refused because of overload."""
        self.refused_requests += 1
        self.note(text)

    def note(self, text: str) -> None:
        """Log this text soon, with the number of calls, and at most once a minute. The texts are
        few: clients cannot choose them."""
        self.troubles[text] = self.troubles.get(text, 0) + 1

    def hold(self, size_bytes: int, share: str = "", *, is_answer: bool = False) -> None:
        """Add so many bytes, or remove them when negative. Requests that are short and complete
        have no share: only the total counts them."""
        self.held_bytes += size_bytes
        if is_answer:
            self.answer_bytes += size_bytes
        if share:
            held = self._held_by.pop(share, 0) + size_bytes
            if held > 0:
                self._held_by[share] = held
        self.is_tight = self.held_bytes > self._tight_bytes

    def learn(self, queue_id: int, message_bytes: int) -> None:
        """Expect so many bytes of the next messages of this queue."""
        if len(self.message_bytes) >= _MOST_QUEUES:
            self.message_bytes.clear()
        self.message_bytes[queue_id] = message_bytes

    def may_hold(self, share: str) -> bool:
        """Return whether a share holds no more of a request than it may."""
        in_requests = self.held_bytes - self.answer_bytes
        free = max(self.most_bytes - self.held_bytes, self._reserve() - in_requests)
        return self._held_by.get(share, 0) <= free

    def may_answer(self, account_id: str) -> bool:
        """Return whether the share of an account has room for another large answer."""
        free = self.most_bytes - self._reserve() - self.held_bytes
        return self._held_by.get(account_id, 0) <= max(free, self.most_bytes // _FLOOR_PARTS)

    def _reserve(self) -> int:
        return self.most_bytes // _RESERVE_PARTS

    async def wait_for_room(self, account_id: str) -> bool:
        """Wait until ``may_answer``, at most 10 s; return whether there is room. The requests of an
        account go on one after the other."""
        is_behind = account_id in self._waiting
        if not self.is_tight or (self.may_answer(account_id) and not is_behind):
            return True
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(_TURN_SECONDS, self._take_turns, loop)
        waiting = self._waiting.setdefault(account_id, deque())
        waiting.append(loop.create_future())
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await waiting[-1]
        except TimeoutError:
            return False
        return True

    def _take_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        for account_id, waiting in list(self._waiting.items()):
            while waiting and waiting[0].done():
                waiting.popleft()
            if waiting and self.may_answer(account_id):
                waiting.popleft().set_result(None)
            if not waiting:
                del self._waiting[account_id]
        if self._waiting:
            loop.call_later(_TURN_SECONDS, self._take_turns, loop)

    def by_account(self) -> dict[str, int]:
        """Return the bytes of the 20 accounts that hold most, of all ``other`` ones together, and
        of clients that are ``unverified``."""
        shares = {share: held for share, held in self._held_by.items() if " " not in share}
        shown = dict(nlargest(_SHOWN_ACCOUNTS, shares.items(), key=lambda one: one[1]))
        shown["other"] = sum(shares.values()) - sum(shown.values())
        shown["unverified"] = sum(self._held_by.values()) - sum(shares.values())
        return shown

    async def held(self, parts: list[bytes], account_id: str) -> AsyncGenerator[bytes, None]:
        """Yield an empty part, then the parts of an answer of the account. All count from the empty
        part on, each until it is written and forgotten."""
        left = sum(map(len, parts))
        self.hold(left, account_id, is_answer=True)
        try:
            yield b""
            while parts:
                size = len(parts[0])
                yield parts.pop(0)
                left -= size
                self.hold(-size, account_id, is_answer=True)
        finally:
            self.hold(-left, account_id, is_answer=True)


class Reading:
    """The bytes of one request, which count until it is answered."""

    __slots__ = ("_share", "_traffic", "size_bytes")

    def __init__(self, traffic: Traffic, share: str = "") -> None:
        self._traffic = traffic
        self._share = share
        self.size_bytes = 0

    def add(self, size_bytes: int) -> bool:
        """Count bytes that came; whether they may stay."""
        self.size_bytes += size_bytes
        self._traffic.hold(size_bytes, self._share)
        return not (size_bytes and self._share) or self._traffic.may_hold(self._share)

    def belong_to(self, share: str) -> None:
        """Count them in another share: the sender is known now."""
        self._traffic.hold(-self.size_bytes, self._share)
        self._share = share
        self._traffic.hold(self.size_bytes, share)

    def end(self) -> None:
        """The request is answered."""
        self._traffic.hold(-self.size_bytes, self._share)
        self.size_bytes = 0
