"""The spool: what was received and is not yet committed, durable before Spark hears of it."""
