"""Makes ``format("queuegate-log")`` known to Spark, by the name of this package."""

from spark_connectors.formats import LOG

DefaultSource = LOG.data_source()
