"""Sending rows to queues and topics: the format ``sns``, and the writers of ``sqs``.

Nothing is imported before it is used: the source does not pay for the sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_connectors.sink.data_source import (
        QueuegateSnsDataSource,
        SnsDataSource,
        sqs_stream_writer,
        sqs_writer,
    )

__all__ = ["QueuegateSnsDataSource", "SnsDataSource", "sqs_stream_writer", "sqs_writer"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from spark_connectors.sink import data_source

        return getattr(data_source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
