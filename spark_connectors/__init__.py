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
    """Make the formats ``sqs``, ``sns`` and ``queuegate-log`` known to a session, and
    ``queuegate-sqs`` and ``queuegate-sns``, which are the first two and clash with no other
    connector.

    Where this package was installed with pip, Spark finds them without it; where it
    came by ``--py-files``, not. May be called again.

    In local mode Spark's processes are made to use this Python, unless PYSPARK_PYTHON names one.
    Raises WrongPython when the one that they use cannot run the connectors, and TooOld for a Spark
    before 4.2.
    """
    if spark in _registered:
        return
    from spark_connectors.formats import FORMATS
    from spark_connectors.packaging import (
        check_spark,
        is_discovered,
        let_streams_find_files,
        settle_python,
    )

    check_spark()
    settle_python(spark)
    for one in FORMATS:
        if not is_discovered(spark, one):
            spark.dataSource.register(one.data_source())
        if (aliased := one.aliased()) is not None:
            spark.dataSource.register(aliased)
    let_streams_find_files(spark)
    _registered.add(spark)


def read_queue(
    spark: SparkSession, queue_url: str, *, checkpoint: str, **options: object
) -> DataFrame:
    """A queue as a stream whose spool lies in the checkpoint: they live and die together.

    Give the same ``checkpoint`` as ``checkpointLocation`` to ``writeStream``. ``options`` are those
    of the source, such as ``endpointUrl="http://localhost:9324"``. A query with two queues needs a
    ``spoolPath`` of its own for each.
    """
    register(spark)
    from pyspark.sql import SparkSession

    from spark_connectors.source.checking import check_stream
    from spark_connectors.source.options import stream_options

    given = {
        "queueUrl": queue_url,
        "spoolPath": f"{checkpoint.rstrip('/')}/queuegate-spool",
        **{name: _text(value) for name, value in options.items()},
    }
    # With Spark Connect the queue is the server's to find.
    (check_stream if isinstance(spark, SparkSession) else stream_options)(given)
    return spark.readStream.format("sqs").options(**given).load()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
