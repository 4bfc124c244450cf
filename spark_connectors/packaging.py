"""What Spark finds of the connectors, and what it must be helped to find."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The process of a streaming source looks for the job's files below this name, beside which they
# lie (Spark 4.0 to 4.3), and so finds none of them.
_WHERE_STREAMS_LOOK = "streaming_job"


def is_discovered(spark: SparkSession, name: str) -> bool:
    """Whether Spark has found this format by itself, in the package that is named after it.

    With Spark Connect it is not known: packages are found on the server.
    """
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession) or find_spec(f"pyspark_{name}") is None:
        return False
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    return bool(manager.dataSourceExists(name))


def let_streams_find_files(spark: SparkSession) -> None:
    """Let streaming sources import what ``--py-files`` or ``addPyFile`` brought.

    Only that process needs it, and it is on the driver: batches, sinks and executors find the files
    anyway. With Spark Connect nothing is done, for the files are the server's.
    """
    from pyspark import SparkFiles
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession):
        return
    link = Path(SparkFiles.getRootDirectory(), _WHERE_STREAMS_LOOK)
    # There is one when another session, or a Spark that does it itself, was first.
    with contextlib.suppress(FileExistsError):
        link.symlink_to(".", target_is_directory=True)
