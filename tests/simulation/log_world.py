"""The database's state of a log, to be compared with the model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from queuegate.storage.database import Database
from queuegate.storage.logs.positions import Position
from tests.simulation.log_model import Letter, ModelLog, ModelPosition, ModelSubscriber, State
from tests.simulation.model import Impossible

_PARTITIONS = """
SELECT p.number, p.partition_id, p.partition_key, p.start_offset, p.next_offset,
  p.next_offset - p.start_offset - p.gap_count AS record_count
FROM log_partitions AS p JOIN logs AS l USING (log_id) WHERE l.log_name = $1 ORDER BY p.number"""
_RECORDS = """
SELECT p.number, p.partition_key, r.record_offset, convert_from(r.payload, 'UTF8') AS payload,
  r.failure, g.group_name AS only_group
FROM logs AS l JOIN log_partitions AS p USING (log_id) JOIN log_records AS r USING (partition_id)
LEFT JOIN log_groups AS g ON g.group_id = r.only_group_id
WHERE l.log_name = $1 AND r.record_offset >= p.start_offset
ORDER BY p.number, r.record_offset"""
_POSITIONS = """
SELECT g.group_name, s.number, s.watermark, s.head, s.deliveries, s.spans, s.held_by, s.held_since,
  coalesce((extract(epoch FROM s.barrier_until) * 1000)::bigint, 0) AS barrier_until
FROM logs AS l JOIN log_groups AS g USING (log_id) JOIN log_positions AS s USING (group_id)
WHERE l.log_name = $1"""
_SUBSCRIBERS = """
SELECT g.group_name, s.subscriber_name, s.session, s.live_until
FROM logs AS l JOIN log_groups AS g USING (log_id) JOIN log_subscribers AS s USING (group_id)
WHERE l.log_name = $1"""


@dataclass
class Seen:
    """All of it at one moment."""

    partitions: list[tuple[str, int, int, int]]
    """Key, start, end and how many records, by number."""
    records: dict[tuple[int, int], tuple[str, str | None]]
    """Payload and only group, by partition and offset."""
    positions: dict[tuple[str, int], ModelPosition]
    subscribers: dict[tuple[str, str], ModelSubscriber]
    ids: list[int]
    """Of the partitions, by number."""
    letters: list[Letter]
    """In the order of their places."""

    def differences(self, model: ModelLog) -> str:
        """Describe the first difference from the model; empty if there is none."""
        wanted = [(one.key, one.start, one.end, len(one.records)) for one in model.partitions]
        if self.partitions != wanted:
            return f"partitions are {self.partitions}, not {wanted}"
        kept = {
            (number, offset): (record.payload, record.only_group)
            for number, partition in enumerate(model.partitions)
            for offset, record in partition.records.items()
        }
        if self.records != kept:
            return f"records: {self.records.items() ^ kept.items()}"
        if Counter(self.letters) != Counter(model.letters):
            more, fewer = Counter(self.letters), Counter(model.letters)
            return f"dead letters too many: {more - fewer}, missing: {fewer - more}"
        return self._positions(model)

    def _positions(self, model: ModelLog) -> str:
        for group in model.groups.values():
            for number, position in group.positions.items():
                seen = self.positions.get((group.name, number))
                if seen is None or _progress(seen) != _progress(position):
                    return f"{group.name} in {number}: {seen}, not {position}"
        return ""

    def check_leases(self, model: ModelLog) -> None:
        """Check that every live holder in the model holds its partition."""
        for (name, number), seen in self.positions.items():
            group = model.groups[name]
            held = group.positions[number].holder if number in group.positions else None
            one = group.subscribers.get(held or "")
            if one is None or one != self.subscribers.get((name, held or "")):
                continue
            if seen.holder != held:
                raise Impossible(f"{name}: {held} lost its lease of {number} to {seen.holder}")


def _progress(one: ModelPosition) -> tuple[object, ...]:
    return one.watermark, one.head, one.deliveries, one.barrier_until, one.states


async def read_log(observer: Database, log_name: str) -> Seen:
    """Read the state of a log."""
    async with observer.transaction() as tx:
        partitions = await tx.fetch(_PARTITIONS, log_name)
        records = await tx.fetch(_RECORDS, log_name)
        dead = await tx.fetch(_RECORDS, f"{log_name}_dlq")
        positions = await tx.fetch(_POSITIONS, log_name)
        subscribers = await tx.fetch(_SUBSCRIBERS, log_name)
    return Seen(
        [(key, start, end, count) for _, _, key, start, end, count in map(tuple, partitions)],
        {
            (row["number"], row["record_offset"]): (row["payload"], row["only_group"])
            for row in records
        },
        {(row["group_name"], row["number"]): _position(*tuple(row)[2:]) for row in positions},
        {(group, name): ModelSubscriber(*rest) for group, name, *rest in map(tuple, subscribers)},
        [row["partition_id"] for row in partitions],
        [_letter(row["failure"], row["payload"], row["partition_key"]) for row in dead],
    )


def _letter(failure: str, payload: str, key: str) -> Letter:
    told = json.loads(failure)
    place = told["original_group"], told["original_partition"], told["original_offset"]
    return Letter(*place, told["failure_count"], payload, key)


def _position(
    watermark: int,
    head: int,
    deliveries: int,
    spans: list[int],
    held_by: str | None,
    held_since: int,
    barrier_until: int,
) -> ModelPosition:
    states = {
        offset: State(is_done=True)
        if span.is_done
        else State(span.visible_at, span.attempts, span.number)
        for span in Position(watermark, head, stored=spans).spans
        for offset in range(span.first, span.last + 1)
    }
    return ModelPosition(watermark, head, deliveries, barrier_until, states, held_by, held_since)
