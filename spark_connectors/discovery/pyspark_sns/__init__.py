"""Makes ``format("sns")`` known to Spark: it looks for packages that are named like this one."""

from __future__ import annotations

from spark_connectors.sink import SnsDataSource as DefaultSource

__all__ = ["DefaultSource"]
