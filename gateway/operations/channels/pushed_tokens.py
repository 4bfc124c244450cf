"""What a consumer to whom messages are pushed is told of each: by what it acknowledges it, and what
it says when it comes back.

Both name the process that pushed the message, for it alone knows to whom and after what. Neither
gives a right: a token is checked like any receipt, and an event only says which messages of a
channel may come again sooner, to somebody who may receive from it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MARK = "~"
_EVENT = re.compile(r"([0-9a-f.]{1,40})~([0-9a-f]{1,24})~([0-9]{1,15})").fullmatch


class Event(NamedTuple):
    """One message that was sent to a consumer."""

    process: str
    consumer: int
    number: int
    """The first that was sent to it is 1."""


def event_id(event: Event) -> str:
    """As the consumer sees it: letters, digits and ``.~``, which no URL has to escape."""
    return f"{event.process}{_MARK}{event.consumer:x}{_MARK}{event.number}"


def read_event_id(text: str) -> Event | None:
    """What an event's id says; None: it is none of ours, and says nothing."""
    found = _EVENT(text)
    return None if found is None else Event(found[1], int(found[2], 16), int(found[3]))


def pushed_token(token: str, process: str) -> str:
    """What a message is acknowledged by, with the process that waits to hear of it."""
    return f"{token}{_MARK}{process}"


def receipt_of(token: str) -> str:
    """The receipt handle in a token."""
    return token.partition(_MARK)[0]


def number_of(group_id: str | None, sequence: int) -> int:
    """What tells a message that was pushed from all others: those in groups are numbered apart."""
    return sequence if group_id is None else -sequence


def process_of(token: str) -> str:
    """The process that pushed the message; empty: it was received in another way."""
    return token.partition(_MARK)[2]
