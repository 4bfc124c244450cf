"""Options of the queue source as a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_connectors.options.aws import CONNECTING, connection_of
from spark_connectors.options.declaring import (
    TRUTH,
    BadOption,
    Option,
    choice,
    read_options,
    whole,
)
from spark_connectors.options.queues import QUEUE, QueuePlace
from spark_connectors.rows.schema import Shape
from spark_connectors.source.options import (
    RECEIVING,
    SHAPING,
    SPOOLING,
    StreamOptions,
    check_spool,
    shape_of,
    slots_of,
    stream_options,
)
from spark_connectors.transport.aws import Connection

_MODES = ("auto", "browse", "peek", "drain")

BATCH_OPTIONS = (
    *QUEUE,
    *CONNECTING,
    Option(
        "mode",
        choice(*_MODES),
        "auto",
        "`browse`: look, receive nothing (an endpoint of Queuegate). `peek`: receive, hold, give "
        "back. `drain`: move everything into `spoolPath` and read that. `auto`: browse, else peek.",
    ),
    Option("limit", whole(1, 1 << 40), None, "Messages, at most.", (), "all"),
    Option(
        "pushFilters",
        TRUTH,
        False,
        "Browse: let the endpoint filter by `message_id`, `message_group_id`, `sent_timestamp` and "
        "`approximate_receive_count`; needs `spark.sql.python.filterPushdown.enabled`.",
    ),
    Option(
        "peekVisibilitySeconds",
        whole(1, 43_200),
        60,
        "Peek: how long messages are held; the scan must be faster.",
    ),
    *RECEIVING,
    *SPOOLING,
    *SHAPING,
)
_OF_DRAIN = {
    option.name.lower() for option in (*QUEUE, *CONNECTING, *RECEIVING, *SPOOLING, *SHAPING)
} | {alias.lower() for option in (*QUEUE, *CONNECTING, *RECEIVING) for alias in option.aliases}


class BatchOptions(NamedTuple):
    """Options of a batch as they were understood. Picklable."""

    connection: Connection
    place: QueuePlace
    shape: Shape
    slots: int
    mode: str
    limit: int | None
    pushes_filters: bool
    peek_seconds: int
    attribute_names: tuple[str, ...]


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Raises BadOption."""
    read: dict[str, Any] = read_options(BATCH_OPTIONS, given)
    check_spool(read)
    if read["mode"] == "drain" and not read["spoolPath"]:
        raise BadOption(
            "mode=drain deletes what it reads from the queue, so it needs spoolPath: a directory "
            "of its own, where the messages are afterwards, as often as they are read"
        )
    if read["pushFilters"] and read["mode"] in ("peek", "drain"):
        raise BadOption(f"pushFilters goes with mode=browse, not with mode={read['mode']}")
    return BatchOptions(
        connection=connection_of(read),
        place=QueuePlace(read),
        shape=shape_of(read),
        slots=slots_of(read),
        mode=read["mode"],
        limit=read["limit"],
        pushes_filters=read["pushFilters"],
        peek_seconds=read["peekVisibilitySeconds"],
        attribute_names=read["messageAttributeNames"],
    )


def drain_options(given: Mapping[str, str]) -> StreamOptions:
    """A drain is a stream that ends, deletes what the spool has, and keeps the spool.

    Raises BadOption.
    """
    ours = {name: text for name, text in given.items() if name.lower() in _OF_DRAIN}
    return stream_options(ours)._replace(
        receive_mode="drain",
        delete_mode="spool",
        on_mismatch="adopt",
        spool_retention_batches=1 << 40,
        spool_retention_bytes=1 << 60,
    )
