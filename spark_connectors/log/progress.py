"""How far a query is behind its logs, from what Spark tells of its progress."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_connectors.log.positions import of_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


def lag_of(
    progress: StreamingQueryProgress | Mapping[str, Any], source: int = 0
) -> dict[str, float]:
    """The figures that Kafka's source has as metrics, of a source of this progress: partitions'
    least, greatest and average number of records behind. Empty before the first batch.

    A source in Python has no metrics of its own; but Spark shows where its batch ended and how far
    the logs were, in the form of Kafka's offsets.
    """
    shown = progress["sources"][source]
    latest, end = of_json(_read(shown["latestOffset"])), of_json(_read(shown["endOffset"]))
    behind = [
        max(0, offset - end.get(log, {}).get(partition, 0))
        for log, by in latest.items()
        for partition, offset in by.items()
    ]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": float(min(behind)),
        "maxOffsetsBehindLatest": float(max(behind)),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _read(shown: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Spark has it as JSON, or as what that is."""
    return json.loads(shown) if isinstance(shown, str) else shown or {}
