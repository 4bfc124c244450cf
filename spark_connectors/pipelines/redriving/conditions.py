"""A condition in SQL over messages that were just received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_connectors.pipelines.redriving.filters import Condition
from spark_connectors.rows.received import Received, stored_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sql_condition(spark: SparkSession, where: str, queue_name: str) -> Condition:
    """Matches messages whose row, as the queue source would give it, fulfils ``where``."""
    import pyarrow as pa

    def matching(received: Sequence[Received]) -> set[str]:
        table = pa.Table.from_batches([stored_batch(queue_name, received)])
        found = spark.createDataFrame(table).where(where).select("message_id").collect()
        return {str(row[0]) for row in found}

    return matching
