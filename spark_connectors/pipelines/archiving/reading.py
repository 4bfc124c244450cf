"""An archive as a DataFrame."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from spark_connectors.pipelines.archiving.delta import check_delta
from spark_connectors.pipelines.archiving.places import DATA, ArchivePlace, BadArchive, about

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SENT_DATE = "sent_date"
_MICROS_PER_DAY = 86_400_000_000


def read_archive(spark: SparkSession, root: str) -> DataFrame:
    """Every archived row exactly once: rows of the source and ``sent_date``.

    Of a Delta table as of now. Of Parquet what Spark's own log has, so files that a failed attempt
    left behind are not read. Raises BadArchive when nothing was archived there, or when it cannot
    be read as it lies there.
    """
    place = ArchivePlace(root)
    found = about(place)
    if found is None and place.is_stored:
        raise BadArchive(f"{place} is no archive: it has no archive.json")
    if found is not None and found.format == "delta":
        check_delta(spark)
        return spark.read.format("delta").load(place.below(DATA))
    reader = spark.read if found is None else spark.read.schema(StructType.fromJson(found.schema))
    rows = reader.parquet(place.below(DATA))
    for path in rows.inputFiles()[:1]:
        if not _plain(path).startswith(_plain(place.root)):
            raise BadArchive(
                f"{place} was moved or copied, and Spark's log in it names files where it was, "
                f"such as {path}: read it there, or write its rows into a Delta archive"
            )
    return rows


def between(rows: DataFrame, since: int | None, until: int | None) -> DataFrame:
    """Rows sent from ``since`` up to but not including ``until``: microseconds since the epoch.

    In an archive their days are compared as well, so that only their directories are read.
    """
    sent = fn.unix_micros("sent_timestamp")
    day = fn.col(SENT_DATE) if SENT_DATE in rows.columns else None
    if since is not None:
        rows = rows.where((sent >= since) & (fn.lit(True) if day is None else day >= _day(since)))
    if until is not None:
        rows = rows.where((sent < until) & (fn.lit(True) if day is None else day <= _day(until)))
    return rows


def day_of(micros: Column) -> Column:
    """The day of an instant, in UTC."""
    return fn.date_from_unix_date(fn.floor(micros / _MICROS_PER_DAY).cast("int"))


def _day(micros: int) -> Column:
    return day_of(fn.lit(micros))


def _plain(path: str) -> str:
    """A path without what differs between spellings of one place."""
    return re.sub(r"^[A-Za-z0-9+.-]+:/*", "/", unquote(path))
