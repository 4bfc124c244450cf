"""Commands of the pipelines on one session with Delta Lake, one after the other: a JVM is dear.

Each argument is a command line, or SQL where TABLE is the archive's. Prints the result of each as
a line of JSON, and at the end what the table has: its messages, its rows, and the rows of its first
version.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys

from pyspark.sql import SparkSession

from spark_connectors.pipelines.pipeline_commands import main
from spark_connectors.pipelines.queue_archive import (
    DATA,
    PACKAGE,
    SETTINGS,
    ArchivePlace,
    read_archive,
)
from tests.spark.conftest import ROOT


def session() -> SparkSession:
    """A small one with Delta Lake, whose jars are kept beside the environments."""
    builder = SparkSession.builder.master("local[1]").config("spark.jars.packages", PACKAGE)
    settings = {
        **SETTINGS,
        "spark.jars.ivy": str(ROOT / ".venvs/ivy"),
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Of the tasks with which VACUUM lists files: 10,000 otherwise.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(archive: str, commands: list[str]) -> None:
    """Every command, then what is there."""
    spark = session()
    place = ArchivePlace(archive).below(DATA)
    for command in commands:
        if " TABLE" in command:
            found = spark.sql(command.replace("TABLE", f"delta.`{place}`")).toJSON().collect()
            print(found[0], flush=True)
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            ended = main([*shlex.split(command), "--archive", archive, "--quiet", "--json", "-"])
        assert ended == 0, command
        print(json.dumps(json.loads(out.getvalue())), flush=True)
    first = spark.read.format("delta").option("versionAsOf", 0).load(place).count()
    ids = read_archive(spark, archive).select("message_id")
    print(json.dumps([ids.distinct().count(), ids.count(), first]))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
