"""Format ``sqs``: a queue to read, as stream or batch, and to write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_connectors.errors import hiding_traceback
from spark_connectors.options import NO_TABLES, BadOption
from spark_connectors.rows.row_columns import spark_schema
from spark_connectors.source.queue_options import (
    StreamOptions,
    check_options,
    shape_of,
    stream_options,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class SqsDataSource(DataSource):
    """A queue of SQS, of AWS or of an endpoint that speaks its protocol."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format("sqs")``."""
        return "sqs"

    def schema(self) -> StructType:
        """Return the columns of the rows, by the options that shape them.

        Spark asks this when a reader is loaded, long before it makes one. Raises BadOption.
        """
        with hiding_traceback():
            check_options(self.options)
            return self._columns()

    def _columns(self) -> StructType:
        return spark_schema(shape_of(self._shaping()))

    def _shaping(self) -> dict[str, object]:
        from spark_connectors.options import read_options
        from spark_connectors.source.queue_options import SHAPING

        names = {name.lower() for one in SHAPING for name in (one.name, *one.aliases)}
        given = {name: text for name, text in self.options.items() if name.lower() in names}
        return read_options(SHAPING, given)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream. Raises BadOption, and TooOld."""
        from spark_connectors.packaging import check_spark

        with hiding_traceback():
            # Spark 4.0 and 4.1 find the format by its name.
            check_spark()
            self._agree(schema)
            options: StreamOptions = stream_options(self.options)
        from spark_connectors.source.driver_reader import DriverStreamReader
        from spark_connectors.source.executor_reader import ExecutorStreamReader

        if options.receive_mode == "executor":
            return ExecutorStreamReader(options)
        return DriverStreamReader(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises BadOption."""
        from spark_connectors.source.queue_batch_reader import batch_reader

        with hiding_traceback():
            if not self.options:
                # A table that was created with columns: Spark has not called the source until now.
                raise BadOption(NO_TABLES)
            self._agree(schema)
            return batch_reader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch. Raises BadOption and BadColumns."""
        from spark_connectors.sink.sns_data_source import sqs_writer

        with hiding_traceback():
            return sqs_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream. Raises BadOption and BadColumns."""
        from spark_connectors.sink.sns_data_source import sqs_stream_writer

        with hiding_traceback():
            return sqs_stream_writer(self.options, schema, overwrite)

    def _agree(self, schema: StructType) -> None:
        if schema.fieldNames() != self._columns().fieldNames():
            raise BadOption(
                "the columns of format sqs are given (options valueFormat, unwrapSns, "
                "includeReceiptHandle change them): leave .schema(...) out"
            )
