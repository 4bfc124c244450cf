"""What an archive in Delta Lake's format needs. Nothing here imports it: it is the session's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_connectors.pipelines.archiving.places import DATA, ArchivePlace, BadArchive
from spark_connectors.pipelines.telling import span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "io.delta:delta-spark_2.13:4.4.0"
SPARK_OF_PACKAGE = "4.2"
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def check_delta(spark: SparkSession) -> None:
    """Raises BadArchive with what to do when this session has no Delta Lake that works with it."""
    if not spark.version.startswith(SPARK_OF_PACKAGE):
        raise BadArchive(
            f"Delta Lake has no release for Spark {spark.version}: use pyspark "
            f"{SPARK_OF_PACKAGE}.0 with {PACKAGE}, or the format parquet"
        )
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if "delta" not in extensions.lower():
        options = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        raise BadArchive(f"this session has no Delta Lake: add --packages {PACKAGE} {options}")


class MaintenanceSummary(NamedTuple):
    """What OPTIMIZE or VACUUM did."""

    action: str
    files_removed: int
    files_added: int
    seconds: float

    def lines(self) -> list[str]:
        """For people."""
        if self.action == "VACUUM":
            return [f"VACUUM done in {span(self.seconds)}"]
        return [
            f"OPTIMIZE: {self.files_removed:,} files became {self.files_added:,} "
            f"({span(self.seconds)})"
        ]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return self._asdict()


def maintain(
    spark: SparkSession, root: str, vacuum_older_than_seconds: float | None
) -> MaintenanceSummary:
    """Compact a Delta archive, or with an age remove files that no version since then needs.

    Raises BadArchive without Delta Lake.
    """
    check_delta(spark)
    place = ArchivePlace(root)
    table = f"delta.`{place.below(DATA)}`"
    began = time.monotonic()
    if vacuum_older_than_seconds is not None:
        spark.sql(f"VACUUM {table} RETAIN {vacuum_older_than_seconds / 3600:g} HOURS")
        return MaintenanceSummary("VACUUM", 0, 0, time.monotonic() - began)
    row = spark.sql(f"OPTIMIZE {table}").select("metrics.*").first()
    removed, added = (row["numFilesRemoved"], row["numFilesAdded"]) if row else (0, 0)
    return MaintenanceSummary("OPTIMIZE", int(removed), int(added), time.monotonic() - began)
