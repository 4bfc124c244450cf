"""Options of the log's sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_connectors.log.options import BOOTSTRAP, check_name, with_bootstrap
from spark_connectors.options.aws import CONNECTING, connection_of
from spark_connectors.options.declaring import TEXT, BadOption, Option, choice, read_options, whole
from spark_connectors.sink.options import SINK_OPTIONS as OF_QUEUES
from spark_connectors.transport.aws import Connection

MOST_RECORDS = 1_000
_SAME = {option.name: option for option in OF_QUEUES}

SINK_OPTIONS = (
    BOOTSTRAP,
    *CONNECTING,
    Option(
        "topic",
        TEXT,
        None,
        "The log; it is made by its first record.",
        (),
        "required, unless rows have a column `topic`",
    ),
    Option(
        "batchSize",
        whole(1, MOST_RECORDS),
        MOST_RECORDS,
        "Records in a request, at most; all or none.",
    ),
    Option(
        "deduplication",
        choice("column", "rows", "none"),
        None,
        "Where the records' ids come from: the column `id`; `rows`, a digest of query, batch, "
        "partition and what the row says, so that a row which is sent again by the same task is "
        "known, in whatever order; `none`.",
        (),
        "`column` where there is one, else `rows`",
    ),
    _SAME["deduplicationColumns"]._replace(
        meaning="Columns that say what a row is; their SHA-256 becomes the record's id."
    ),
    _SAME["orderBy"],
    _SAME["maxSendPerSecond"],
    _SAME["concurrency"]._replace(
        meaning="Requests of a task under way at once. A key has one of them."
    ),
    _SAME["summaryPath"],
)


class SinkSettings(NamedTuple):
    """What the options of a sink come to. ``log`` None: each row says."""

    connection: Connection
    log: str | None
    most_records: int
    deduplication: str | None
    deduplication_columns: tuple[str, ...]
    order_by: tuple[str, ...]
    most_per_second: int | None
    concurrency: int
    summary_path: str | None


def sink_settings(given: Mapping[str, str]) -> SinkSettings:
    """Raises BadOption."""
    read = read_options(SINK_OPTIONS, given)
    if read["topic"] is not None:
        check_name("topic", read["topic"])
    if read["deduplication"] and read["deduplicationColumns"]:
        raise BadOption("deduplication and deduplicationColumns: a record has one id, choose one")
    return SinkSettings(
        connection=connection_of(with_bootstrap(read)),
        log=read["topic"],
        most_records=read["batchSize"],
        deduplication="columns" if read["deduplicationColumns"] else read["deduplication"],
        deduplication_columns=read["deduplicationColumns"],
        order_by=read["orderBy"],
        most_per_second=read["maxSendPerSecond"],
        concurrency=read["concurrency"],
        summary_path=read["summaryPath"],
    )
