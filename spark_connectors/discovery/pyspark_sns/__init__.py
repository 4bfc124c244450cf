"""Makes ``format("sns")`` known to Spark: it looks for packages that are named like this one."""

from spark_connectors.formats import SNS

DefaultSource = SNS.data_source()
