"""The formats, a row each; their registration with Spark, and the help that its processes need."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from spark_connectors.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from spark_connectors.options import Option


class Format(NamedTuple):
    """One format of Spark. Nothing of it is imported before it is used. ``alias``: the same format
    under a name that no other connector has; ``options``: the tables of the guide, by their names
    in `python -m spark_connectors options`. Spark finds ``name`` by itself in `discovery/`, in the
    package ``package``."""

    name: str
    alias: str | None
    source: str
    options: Mapping[str, str]

    @property
    def package(self) -> str:
        """The package in which Spark finds the format."""
        return f"pyspark_{self.name.replace('-', '_')}"

    def data_source(self) -> type[DataSource]:
        """Return the class that makes readers and writers for Spark."""
        found: type[DataSource] = resolve_name(self.source)
        return found

    def aliased(self) -> type[DataSource] | None:
        """Return the same class under the alias; None: there is none."""
        if self.alias is None:
            return None
        source = self.data_source()
        return type(source.__name__, (source,), {"format_name": self.alias})


SQS = Format(
    "sqs",
    "queuegate-sqs",
    "spark_connectors.data_sources:SqsDataSource",
    {
        "stream": "spark_connectors.source.queue_options:STREAM_OPTIONS",
        "batch": "spark_connectors.source.queue_options:BATCH_OPTIONS",
        "sqs-sink": "spark_connectors.sink.sink_options:SINK_OPTIONS",
    },
)
SNS = Format(
    "sns",
    "queuegate-sns",
    "spark_connectors.data_sources:SnsDataSource",
    {"sns-sink": "spark_connectors.sink.sink_options:TOPIC_SINK_OPTIONS"},
)
LOG = Format(
    "queuegate-log",
    None,
    "spark_connectors.data_sources:LogDataSource",
    {
        "log-stream": "spark_connectors.log.log_options:STREAM_OPTIONS",
        "log-batch": "spark_connectors.log.log_options:BATCH_OPTIONS",
        "log-sink": "spark_connectors.log.log_options:LOG_SINK_OPTIONS",
    },
)
FORMATS = (SQS, SNS, LOG)
_CONNECTION = "connection"
TABLES = {_CONNECTION: "spark_connectors.options:CONNECTING"} | {
    name: where for one in FORMATS for name, where in one.options.items()
}
# Options that most jobs need; the defaults of all others are good.
_COMMON = {
    "connection": ("endpointUrl", "region"),
    "stream": (
        *("queueUrl", "queueName", "spoolPath", "maxOffsetsPerTrigger", "visibilityTimeout"),
        *("receiveMode", "deleteMode", "deliveryGuarantee", "failOnDataLoss", "onSpoolMismatch"),
        *("valueFormat", "unwrapSns"),
    ),
    "batch": ("mode", "limit"),
    "sqs-sink": ("deduplicationColumns", "orderBy", "deadLetterQueueUrl", "maxSendPerSecond"),
    "sns-sink": ("topicArn",),
    "log-stream": ("subscribe", "startingOffsets", "groupId", "includeHeaders"),
    "log-batch": ("endingOffsets",),
    "log-sink": ("topic",),
}
COMMON = "common"


def options_of(table: str) -> Sequence[Option]:
    """Return the options of one table, such as ``stream``. The options of every format are in
    ``connection`` alone. ``common`` has the options that most jobs need."""
    if table == COMMON:
        return [
            option
            for name, common in _COMMON.items()
            for option in options_of(name)
            if option.name in common
        ]
    found: Sequence[Option] = resolve_name(TABLES[table])
    elsewhere = resolve_name(TABLES[_CONNECTION]) if table != _CONNECTION else ()
    return [option for option in found if option not in elsewhere]


# The process of a streaming source looks for the job's files below this name. Spark (4.0 to 4.3)
# puts them beside it, so it finds none.
_WHERE_STREAMS_LOOK = "streaming_job"
# Spark's default without PYSPARK_PYTHON.
_NOBODY_NAMED_ONE = "python3"
_NEEDED = ("pyarrow", "botocore")
# Prints the interpreter's version, and those of these packages that it lacks.
_ASK = (
    "import sys; from importlib.util import find_spec; print('%d.%d' % sys.version_info[:2]); "
    "print(*(one for one in sys.argv[1:] if find_spec(one) is None))"
)
_ASK_SECONDS = 60
_OLDEST = (4, 2)


class TooOld(ConnectorError):
    """This Spark lacks what the formats need."""


def check_spark() -> None:
    """Raise TooOld for a PySpark before 4.2."""
    import pyspark

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _OLDEST:
        raise TooOld(
            f"these formats need PySpark 4.2 or newer, and this is {pyspark.__version__}"
            ": before 4.2 a source in Python is not told what Spark has committed, without which "
            "nothing is exactly once. There, jobs read queues with the AWS SDK: see 'JVM jobs' in "
            "the guide of spark_connectors"
        )


class WrongPython(ConnectorError):
    """The Python that Spark starts cannot run the connectors."""


def choose_python(spark: SparkSession) -> None:
    """Make Spark start this very Python where all of its processes are on this machine and
    PYSPARK_PYTHON is not set: otherwise it takes any ``python3`` on the PATH. Raises WrongPython
    when the interpreter that it starts on the driver cannot run the connectors."""
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession):
        return
    context = spark.sparkContext
    is_local = str(context.master).partition("[")[0] == "local"
    if is_local and context.pythonExec == _NOBODY_NAMED_ONE:
        context.pythonExec = sys.executable
    check_python(context.pythonExec)


def check_python(named: str) -> None:
    """Raise WrongPython when the interpreter of that name cannot run the connectors."""
    python = shutil.which(named)
    if python != sys.executable and (why := _why_not(python)):
        raise WrongPython(
            f"Spark starts '{named}' for Python code, which {why}: set PYSPARK_PYTHON "
            f"before the session begins, on every machine, to one like this ({sys.executable})"
        )


def _why_not(python: str | None) -> str | None:
    """Return the reason why that interpreter cannot run the connectors; None: it can."""
    if python is None:
        return "is no command here"
    try:
        asked = subprocess.run(
            [python, "-c", _ASK, *_NEEDED],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=True,
        )
        version, missing = asked.stdout.splitlines()[-2:]
    except (OSError, subprocess.SubprocessError, ValueError) as broken:
        return f"does not run ({broken})"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != ours:
        return f"is Python {version} and not {ours}"
    return f"has no {' and no '.join(missing.split())}" if missing.split() else None


def is_discovered(spark: SparkSession, of: Format) -> bool:
    """Return True if Spark has found this format by itself, in the package named after it. With
    Spark Connect that is unknown: the server finds packages."""
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession) or find_spec(of.package) is None:
        return False
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    return bool(manager.dataSourceExists(of.name))


def link_job_files(spark: SparkSession) -> None:
    """Let streaming sources import the files that ``--py-files`` or ``addPyFile`` brought. Only
    that process needs the link, and it runs on the driver: batches, sinks and executors find the
    files anyway. With Spark Connect nothing is done, for the files are the server's."""
    from pyspark import SparkFiles
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession):
        return
    link = Path(SparkFiles.getRootDirectory(), _WHERE_STREAMS_LOOK)
    # It exists if another session, or a Spark that makes it itself, was first.
    with contextlib.suppress(FileExistsError):
        link.symlink_to(".", target_is_directory=True)
