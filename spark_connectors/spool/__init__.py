"""The spool: received and uncommitted messages, durable before Spark learns of them."""
