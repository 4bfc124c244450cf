"""Makes ``format("sqs")`` known to Spark: it looks for packages that are named like this one."""

from __future__ import annotations

from spark_connectors.formats import SQS

DefaultSource = SQS.data_source()

__all__ = ["DefaultSource"]
