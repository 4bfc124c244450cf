"""Makes ``format("sqs")`` known to Spark: it looks for packages that are named like this one."""

from spark_connectors.formats import SQS

DefaultSource = SQS.data_source()
