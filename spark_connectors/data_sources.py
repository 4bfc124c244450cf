"""The formats ``sqs``, ``sns`` and ``queuegate-log``: readers and writers for Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource

from spark_connectors.errors import ConnectorError, hiding_traceback
from spark_connectors.formats import check_spark
from spark_connectors.options import NO_TABLES, TRUTH, BadOption, read_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from spark_connectors.sink.sender import Sink


class OnlyWritable(ConnectorError):
    """A topic cannot be read."""


class _Source(DataSource):
    """A format. Every method raises BadOption; the writers BadColumns too."""

    format_name: ClassVar[str]
    # The options that change the columns.
    shaping = ""
    _check: Callable[[], None]
    _columns: Callable[[], StructType]
    _batch_reader: Callable[[], DataSourceReader]
    _stream_reader: Callable[[], DataSourceStreamReader]
    _sink: Callable[..., Sink]

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return cls.format_name

    def schema(self) -> StructType:
        """Return the columns of the rows. Spark asks this long before it makes a reader."""
        with hiding_traceback():
            self._check()
            return self._columns()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        with hiding_traceback():
            if not self.options:
                # A table that was created with columns: Spark has not called the source until now.
                raise BadOption(NO_TABLES)
            self._agree(schema)
            return self._batch_reader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream. Raises TooOld."""
        with hiding_traceback():
            # Spark 4.0 and 4.1 find the format by its name.
            check_spark()
            self._agree(schema)
            return self._stream_reader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        from spark_connectors.sink.sender import BatchWriter

        with hiding_traceback():
            return BatchWriter(self._planned(schema, overwrite, is_batch=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        from spark_connectors.sink.sender import StreamWriter

        with hiding_traceback():
            return StreamWriter(self._planned(schema, overwrite, is_batch=False))

    def _planned(self, schema: StructType, overwrite: bool, *, is_batch: bool) -> Sink:
        if overwrite:
            raise BadOption(
                "what was sent cannot be overwritten: use mode('append'), in a stream outputMode "
                "'append' or 'update'; whoever wants the queue or log empty before purges it"
            )
        return self._sink(schema, is_batch=is_batch)

    def _agree(self, schema: StructType) -> None:
        if schema.fieldNames() != self._columns().fieldNames():
            raise BadOption(
                f"the columns of format {self.name()} are given ({self.shaping}): leave "
                ".schema(...) out"
            )


class SqsDataSource(_Source):
    """A queue of SQS, of AWS or of an endpoint that speaks its protocol."""

    format_name = "sqs"
    shaping = "options valueFormat, unwrapSns, includeReceiptHandle change them"

    def _check(self) -> None:
        from spark_connectors.source import queue_options

        queue_options.check_options(self.options)

    def _columns(self) -> StructType:
        from spark_connectors.message_rows import spark_schema
        from spark_connectors.source import queue_options

        shaping = queue_options.SHAPING
        names = {name.lower() for one in shaping for name in (one.name, *one.aliases)}
        given = {name: text for name, text in self.options.items() if name.lower() in names}
        return spark_schema(queue_options.shape_of(read_options(shaping, given)))

    def _stream_reader(self) -> DataSourceStreamReader:
        from spark_connectors.source import queue_options
        from spark_connectors.source.queue_stream_reader import QueueStreamReader

        return QueueStreamReader(queue_options.stream_options(self.options))

    def _batch_reader(self) -> DataSourceReader:
        from spark_connectors.source.queue_batch_reader import batch_reader

        return batch_reader(self.options)

    def _sink(self, schema: StructType, *, is_batch: bool) -> Sink:
        from spark_connectors.sink.message_sink import message_sink
        from spark_connectors.sink.sink_options import queue_settings

        settings = queue_settings(self.options)
        plan = message_sink("sqs sink", settings, schema)
        if is_batch and settings.place is not None:
            settings.place.check(settings.connection)
        return plan


class SnsDataSource(_Source):
    """Topics as a sink: ``df.write.format("sns")``, ``df.writeStream.format("sns")``."""

    format_name = "sns"

    def _columns(self) -> NoReturn:
        raise OnlyWritable(
            "format 'sns' can only be written; subscribe a queue to the topic and read that"
        )

    _check = _columns

    def _sink(self, schema: StructType, *, is_batch: bool) -> Sink:
        from spark_connectors.sink.message_sink import message_sink
        from spark_connectors.sink.sink_options import topic_settings

        settings = topic_settings(self.options)
        return message_sink("sns sink", settings, schema)


class LogDataSource(_Source):
    """Logs of a Queuegate, with the columns of Kafka's source."""

    format_name = "queuegate-log"
    shaping = "includeHeaders adds one"

    def _check(self) -> None:
        from spark_connectors.log import log_options

        log_options.check_options(self.options)

    def _columns(self) -> StructType:
        from spark_connectors.log.log_api import log_spark_schema

        given = {name.lower(): text for name, text in self.options.items()}
        return log_spark_schema(has_headers=TRUTH.read(given.get("includeheaders", "false")))

    def _stream_reader(self) -> DataSourceStreamReader:
        from spark_connectors.log import log_options
        from spark_connectors.log.log_readers import LogStreamReader

        return LogStreamReader(log_options.stream_options(self.options))

    def _batch_reader(self) -> DataSourceReader:
        from spark_connectors.log import log_options
        from spark_connectors.log.log_readers import batch_reader

        return batch_reader(log_options.batch_options(self.options))

    def _sink(self, schema: StructType, *, is_batch: bool) -> Sink:
        from spark_connectors.log.record_sink import planned

        return planned(self.options, schema)
