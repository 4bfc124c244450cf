"""Standard queues: what callers hand to the lanes of receive and change visibility."""

from __future__ import annotations

from collections.abc import Callable

from storage.lanes import Entry


class Receive(Entry):
    """One receive of up to ``limit`` messages. Result: list[Received] by age, maybe empty."""

    __slots__ = ("limit", "queue_id", "retention_seconds", "visibility_ms")

    def __init__(
        self,
        queue_id: int,
        limit: int,
        visibility_ms: int,
        retention_seconds: int,
        reply: Callable[[object], None],
    ) -> None:
        super().__init__(reply)
        self.queue_id = queue_id
        self.limit = limit
        self.visibility_ms = visibility_ms
        self.retention_seconds = retention_seconds

    def party(self) -> int:
        """The queue."""
        return self.queue_id


class ChangeVisibility(Entry):
    """(queue_id, sequence, visibility_ms) rows. Result: list[bool], one a row."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[tuple[int, int, int]], reply: Callable[[object], None]) -> None:
        super().__init__(reply)
        self.rows = rows

    def party(self) -> int:
        """The queue: all rows have the same."""
        return self.rows[0][0]
