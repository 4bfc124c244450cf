"""Spark's daemon, with what its workers import: forked from it, they need not do so each.

Spark's own imports nothing before it forks, because some libraries start threads when they are
imported. Of these here only the allocator of Arrow does, which knows of forks.
"""

from __future__ import annotations

import os
from importlib import import_module

from pyspark import daemon

from tests.spark import clocks

_IMPORTED = (
    "boto3",
    "pandas",
    "pyarrow.parquet",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "spark_connectors.sink",
    "spark_connectors.source",
)

if __name__ == "__main__":
    # No threads of its linear algebra.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _IMPORTED:
        import_module(name)
    clocks.follow()
    daemon.manager()
