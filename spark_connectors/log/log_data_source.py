"""Format ``queuegate-log``: logs to read, as stream or batch, and to write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_connectors.errors import hiding_traceback
from spark_connectors.log.log_options import STREAM_OPTIONS, batch_options, stream_options
from spark_connectors.log.record_columns import log_spark_schema
from spark_connectors.options import NO_TABLES, TRUTH, BadOption, unknown_names

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class LogDataSource(DataSource):
    """Logs of a Queuegate."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format("queuegate-log")``."""
        return "queuegate-log"

    def schema(self) -> StructType:
        """Return the columns of Kafka's source. Raises BadOption for options that fit neither a
        stream nor a batch."""
        with hiding_traceback():
            self._check()
            return self._columns()

    def _check(self) -> None:
        try:
            stream_options(self.options)
        except BadOption as of_stream:
            try:
                batch_options(self.options)
            except BadOption as of_batch:
                is_batch = unknown_names(STREAM_OPTIONS, self.options)
                raise (of_batch if is_batch else of_stream) from None

    def _columns(self) -> StructType:
        given = {name.lower(): text for name, text in self.options.items()}
        return log_spark_schema(has_headers=TRUTH.read(given.get("includeheaders", "false")))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream. Raises BadOption, and TooOld."""
        from spark_connectors.log.log_stream_reader import LogStreamReader
        from spark_connectors.packaging import check_spark

        with hiding_traceback():
            check_spark()
            self._agree(schema)
            return LogStreamReader(stream_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises BadOption."""
        from spark_connectors.log.log_batch_reader import batch_reader

        with hiding_traceback():
            if not self.options:
                # A table that was created with columns: Spark has not called the source until now.
                raise BadOption(NO_TABLES)
            self._agree(schema)
            return batch_reader(batch_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch. Raises BadOption and BadColumns."""
        from spark_connectors.log.record_sink import planned
        from spark_connectors.sink.writers import BatchWriter

        with hiding_traceback():
            return BatchWriter(planned(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream. Raises BadOption and BadColumns."""
        from spark_connectors.log.record_sink import planned
        from spark_connectors.sink.writers import StreamWriter

        with hiding_traceback():
            return StreamWriter(planned(self.options, schema, overwrite=overwrite))

    def _agree(self, schema: StructType) -> None:
        if schema.fieldNames() != self._columns().fieldNames():
            raise BadOption(
                "the columns of format queuegate-log are given (includeHeaders adds one): leave "
                ".schema(...) out"
            )
