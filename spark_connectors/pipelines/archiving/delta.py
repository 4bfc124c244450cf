"""What an archive in Delta Lake's format needs. Nothing here imports it: it is the session's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_connectors.pipelines.archiving.places import BadArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "io.delta:delta-spark_2.13:4.4.0"
SPARK_OF_PACKAGE = "4.2"
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def check_version(spark_version: str) -> None:
    """Raises BadArchive with what to do when Delta Lake has nothing for this Spark."""
    if not spark_version.startswith(SPARK_OF_PACKAGE):
        raise BadArchive(
            f"Delta Lake has no release for Spark {spark_version}: use pyspark "
            f"{SPARK_OF_PACKAGE}.0 with {PACKAGE}, or --format parquet"
        )


def check_delta(spark: SparkSession) -> None:
    """Raises BadArchive with what to do when this session has no Delta Lake that works with it."""
    check_version(spark.version)
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if "delta" not in extensions.lower():
        options = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        raise BadArchive(f"this session has no Delta Lake: add --packages {PACKAGE} {options}")
