"""An archive as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from spark_connectors.pipelines.archiving.manifests import snapshot
from spark_connectors.pipelines.archiving.places import (
    COMPACTED,
    DATA,
    About,
    ArchivePlace,
    BadArchive,
    about,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT_DATE = "sent_date"


def read_archive(spark: SparkSession, root: str) -> DataFrame:
    """Every archived row exactly once, as of now: rows of the source and ``sent_date``.

    Files that a failed attempt left behind are not read, nor those that a compaction replaced. What
    is archived or compacted later does not change the DataFrame; a vacuum that removes what it
    reads makes it fail. Raises BadArchive when nothing was archived there.
    """
    place = ArchivePlace(root)
    found = about(place)
    if found is None:
        if place.is_stored:
            raise BadArchive(f"{place} is no archive: it has no archive.json")
        return spark.read.parquet(place.below(DATA))
    if found.format == "delta":
        return spark.read.format("delta").load(place.below(DATA))
    paths = [file.path for file in snapshot(place).live]
    return read_files(spark, place, found, paths)


def read_files(
    spark: SparkSession, place: ArchivePlace, what: About, paths: list[str]
) -> DataFrame:
    """The rows of these files of a Parquet archive, with ``sent_date`` as their directories say."""
    schema = StructType.fromJson(what.schema)
    frames = []
    for base in (DATA, COMPACTED):
        chosen = [place.below(path) for path in paths if path.startswith(base)]
        if chosen:
            reader = spark.read.schema(schema).option("basePath", place.below(base))
            frames.append(reader.parquet(*chosen))
    if not frames:
        return spark.createDataFrame([], schema)
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
