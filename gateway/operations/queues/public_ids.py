"""Ids of queues that say nothing of their names: UUIDs, which every queue has from the beginning.

None is stored. The first 32 bits are the number of the queue; the others are a digest of what no
other queue has had, so that nobody finds a queue by counting, nor the one that has the number of
another in a database that was restored.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from queuegate.storage.model import Queue

_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_MOST = (1 << 31) - 1
_VERSION = 8 << 76
"""Version 8: whoever makes one says what its bits mean."""
_VARIANT = 2 << 62
_REST = (1 << 96) - 1 & ~(15 << 76) & ~(3 << 62)


def public_id(queue: Queue) -> str:
    """The id of a queue."""
    identity = f"{queue.arn}\0{queue.created_at.timestamp()!r}".encode()
    digest = int.from_bytes(blake2b(identity, digest_size=12, person=b"queue id").digest())
    return str(UUID(int=queue.queue_id << 96 | digest & _REST | _VERSION | _VARIANT))


def number_of(text: str) -> int | None:
    """The number of the queue that may have this id; None: none can have it."""
    if not _UUID(text):
        return None
    number = int(text[:8], 16)
    return number if number <= _MOST else None
