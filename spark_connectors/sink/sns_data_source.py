"""The format ``sns``, and the writers of the format ``sqs``."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_connectors.errors import ConnectorError, hiding_traceback
from spark_connectors.options import BadOption
from spark_connectors.sink.message_columns import find_columns
from spark_connectors.sink.message_sink import MessageSinkPlan
from spark_connectors.sink.sink_options import MessageSinkSettings, queue_settings, topic_settings
from spark_connectors.sink.writers import BatchWriter, StreamWriter


class OnlyWritable(ConnectorError):
    """A topic cannot be read."""

    def __init__(self) -> None:
        super().__init__(
            "format 'sns' can only be written; subscribe a queue to the topic and read that"
        )


def sqs_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Return the batch writer of format ``sqs``. Raises BadOption, BadColumns, and as
    QueuePlace.check, while planning."""
    settings = queue_settings(options)
    plan = _plan("sqs sink", settings, schema, overwrite)
    if settings.place is not None:
        settings.place.check(settings.connection)
    return BatchWriter(plan)


def sqs_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamWriter:
    """Return the streaming writer of format ``sqs``. Raises BadOption and BadColumns."""
    return StreamWriter(_plan("sqs sink", queue_settings(options), schema, overwrite))


def _plan(
    name: str, settings: MessageSinkSettings, schema: StructType, overwrite: bool
) -> MessageSinkPlan:
    if overwrite:
        raise BadOption(
            "messages cannot be overwritten: use mode('append'), in a stream outputMode 'append' "
            "or 'update'; whoever wants the queue empty before purges it"
        )
    return MessageSinkPlan(name, settings, find_columns(schema, settings))


class SnsDataSource(DataSource):
    """Topics as a sink: ``df.write.format("sns")``, ``df.writeStream.format("sns")``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "sns"

    def schema(self) -> StructType:
        """Raises OnlyWritable."""
        with hiding_traceback():
            raise OnlyWritable

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OnlyWritable."""
        raise OnlyWritable

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Raises OnlyWritable."""
        raise OnlyWritable

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch. Raises BadOption and BadColumns."""
        with hiding_traceback():
            return BatchWriter(_plan("sns sink", topic_settings(self.options), schema, overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a stream. Raises BadOption and BadColumns."""
        with hiding_traceback():
            return StreamWriter(_plan("sns sink", topic_settings(self.options), schema, overwrite))
