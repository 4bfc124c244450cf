"""The formats, a row each. Registration, discovery, listing and the guide read this table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from spark_connectors.options import Option


class Format(NamedTuple):
    """One format of Spark. Nothing of it is imported before it is used.

    ``alias``: the same format under a name that no other connector has; ``options``: the tables of
    the guide, by their names in `python -m spark_connectors options`. Spark finds ``name`` by
    itself in `discovery/`, in the package ``package``.
    """

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
        return type(source.__name__, (source,), {"name": classmethod(lambda _: self.alias)})


SQS = Format(
    "sqs",
    "queuegate-sqs",
    "spark_connectors.source.sqs_data_source:SqsDataSource",
    {
        "stream": "spark_connectors.source.queue_options:STREAM_OPTIONS",
        "batch": "spark_connectors.source.queue_options:BATCH_OPTIONS",
        "sqs-sink": "spark_connectors.sink.sink_options:SINK_OPTIONS",
    },
)
SNS = Format(
    "sns",
    "queuegate-sns",
    "spark_connectors.sink.sns_data_source:SnsDataSource",
    {"sns-sink": "spark_connectors.sink.sink_options:TOPIC_SINK_OPTIONS"},
)
LOG = Format(
    "queuegate-log",
    None,
    "spark_connectors.log.log_data_source:LogDataSource",
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
