"""Queues, topics and logs as tables and streams of Spark, exactly once.

Importing this package imports nothing of Spark; ``register`` and ``read_queue`` do.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_queue", "register"]

# Spark warns of each format that is registered again, or was found before.
_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Register the formats ``sqs``, ``sns`` and ``queuegate-log`` with a session, and
    ``queuegate-sqs`` and ``queuegate-sns``, names of the first two that no other connector has.

    Needed where the package came by ``--py-files``: Spark finds an installed one by itself.
    Idempotent.

    In local mode Spark's processes then use this Python, unless PYSPARK_PYTHON names one. Raises
    WrongPython when the one that they use cannot run the connectors, and TooOld for a Spark before
    4.2.
    """
    if spark in _registered:
        return
    from spark_connectors.formats import (
        FORMATS,
        check_spark,
        choose_python,
        is_discovered,
        link_job_files,
    )

    check_spark()
    choose_python(spark)
    for one in FORMATS:
        if not is_discovered(spark, one):
            spark.dataSource.register(one.data_source())
        if (aliased := one.aliased()) is not None:
            spark.dataSource.register(aliased)
    link_job_files(spark)
    _registered.add(spark)


def read_queue(
    spark: SparkSession, queue_url: str, *, checkpoint: str, **options: object
) -> DataFrame:
    """Return a queue as a stream whose spool is in the checkpoint: both are kept or deleted
    together. Give the same ``checkpoint`` as ``checkpointLocation`` to ``writeStream``. ``options``
    are those of the source, such as ``endpointUrl="http://localhost:9324"``. A query with two
    queues needs a separate ``spoolPath`` for each."""
    register(spark)
    from pyspark.sql import SparkSession

    from spark_connectors.source.queue_options import check_stream, stream_options

    given = {
        "queueUrl": queue_url,
        "spoolPath": f"{checkpoint.rstrip('/')}/queuegate-spool",
        **{name: _text(value) for name, value in options.items()},
    }
    # With Spark Connect the server looks up the queue.
    (check_stream if isinstance(spark, SparkSession) else stream_options)(given)
    return spark.readStream.format("sqs").options(**given).load()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
