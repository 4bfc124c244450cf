"""Makes ``format("sqs")`` known to Spark: it looks for packages that are named like this one."""

from __future__ import annotations

from spark_connectors.source import SqsDataSource as DefaultSource

__all__ = ["DefaultSource"]
