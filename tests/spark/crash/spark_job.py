"""The job as Spark runs it.

python -m tests.spark.crash.spark_job JOB.json
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.crash.jobs import ROOT, Job
from tests.spark.crash.sources import DyingSqs, dying

DELTA = "io.delta:delta-spark_2.13:4.4.0"
_DELTA_SETTINGS = {
    "spark.jars.packages": DELTA,
    "spark.jars.ivy": str(ROOT / ".venvs/ivy"),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(job: Job) -> SparkSession:
    """A session of the job's own."""
    builder = SparkSession.builder.master(job.master).appName("crash")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        # Killed while it writes its very first offset, Spark 4.3 refuses its own leftover.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        **(_DELTA_SETTINGS if job.sink == "delta" else {}),
        **dict(job.settings),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(job: Job) -> None:
    """Run the query until it is idle, or until somebody kills it."""
    spark = session(job)
    spark.sparkContext.setLogLevel("ERROR")
    source = type(dying(job.options))
    spark.dataSource.register(source)
    frame = spark.readStream.format("dying").options(**job.options).load()
    names = zip(source.row_columns, DyingSqs.row_columns, strict=True)
    rows = frame.select(*(frame[ours].cast("string").alias(name) for ours, name in names))
    writer = rows.writeStream.format(job.sink).option("checkpointLocation", job.checkpoint)
    if job.is_available_now:
        writer = writer.trigger(availableNow=True)
    writer.option("path", job.table).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run(Job.read(Path(sys.argv[1])))
