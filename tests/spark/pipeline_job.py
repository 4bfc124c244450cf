"""A job as a user writes one: a queue becomes Parquet, and the rows go on to another queue.

It runs where this repository is not: all it knows of the connectors is the zip. Prints what it saw
as JSON. The only argument is a JSON object: endpoint, source and sink (URLs of queues), directory
(seen by driver and executors), and options of the source. With Spark Connect also remote; and zip
where the server does not have it: then the source is read as a batch, because a server lets no
stream find what its client brought.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


def session_of(given: dict[str, str]) -> SparkSession:
    """The session, where the formats are known."""
    if "remote" not in given:
        spark = SparkSession.builder.appName("pipeline").getOrCreate()
    else:
        spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    if "zip" in given:
        spark.addArtifacts(given["zip"], pyfile=True)
    if "zip" in given or "remote" not in given:
        from spark_connectors import register

        register(spark)
    return spark


def where_the_connectors_lie(spark: SparkSession) -> dict[str, list[str]]:
    """Return the package's places in tasks, and their executors' working directories."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        import pyarrow

        import spark_connectors

        for _ in batches:
            place, executor = str(spark_connectors.__file__), os.getcwd()
            yield pyarrow.RecordBatch.from_pydict({"place": [place], "executor": [executor]})

    found = spark.range(4, numPartitions=4).mapInArrow(look, "place string, executor string")
    rows = found.collect()
    return {
        "places": sorted({row["place"] for row in rows}),
        "executors": sorted({row["executor"] for row in rows}),
    }


def copy_queue(spark: SparkSession, given: dict[str, str], options: dict[str, str]) -> DataFrame:
    """Everything in the source queue to Parquet; returns what the directory then has."""
    directory = given["directory"]
    at = {"queueUrl": given["source"], "endpointUrl": given["endpoint"], **options}
    if "zip" in given:
        spark.read.format("sqs").options(**at).load().write.parquet(f"{directory}/rows")
        return spark.read.parquet(f"{directory}/rows")
    stream = (
        spark.readStream.format("sqs")
        .options(**at)
        .option("spoolPath", f"{directory}/spool")
        .option("waitTimeSeconds", "1")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{directory}/rows")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    return spark.read.parquet(f"{directory}/rows")


def main() -> None:
    given = json.loads(sys.argv[1])
    options = given.pop("options", {})
    spark = session_of(given)
    where = where_the_connectors_lie(spark)
    rows = copy_queue(spark, given, options)
    at = {"queueUrl": given["sink"], "endpointUrl": given["endpoint"]}
    rows.select("body").repartition(2).write.format("sqs").mode("append").options(**at).save()
    sent = spark.read.format("sqs").options(**at).load()
    result = {
        **where,
        "bodies": sorted(row["body"] for row in rows.select("body").collect()),
        "sent": sent.select("body").distinct().count(),
    }
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
