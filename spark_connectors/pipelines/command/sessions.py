"""The Spark session of a command."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from spark_connectors.pipelines.archiving.delta import PACKAGE, SETTINGS, check_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(args: argparse.Namespace, *, delta: bool = False) -> Iterator[SparkSession]:
    """A session with the connectors registered, stopped at the end unless it was there before.

    With ``delta`` it asks for the package too; below spark-submit that is its --packages. Raises
    BadArchive where there is none.
    """
    import pyspark
    from pyspark.sql import SparkSession

    import spark_connectors

    if delta:
        # Before Spark starts: with a Delta Lake of another version it does not.
        check_version(pyspark.__version__)
    builder = SparkSession.builder.appName(f"queuegate {args.command}")
    if args.master:
        builder = builder.master(args.master)
    # Its bar would be written over the progress lines.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    # Killed while it writes its very first offset, Spark 4.3 refuses its own leftover.
    builder = builder.config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
    if delta:
        builder = builder.config("spark.jars.packages", PACKAGE)
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
    for name, value in args.conf:
        builder = builder.config(name, value)
    was_there = SparkSession.getActiveSession() is not None
    spark = builder.getOrCreate()
    handler = signal.signal(signal.SIGINT, _interrupted)
    try:
        spark_connectors.register(spark)
        yield spark
    finally:
        signal.signal(signal.SIGINT, handler)
        if not was_there:
            spark.stop()


def _interrupted(signum: int, frame: FrameType | None) -> NoReturn:
    """In place of PySpark's handler, which calls the JVM from within a call to it. That call is cut
    off now, and py4j would log it with tracebacks; the session is stopped, and its jobs with it."""
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt
