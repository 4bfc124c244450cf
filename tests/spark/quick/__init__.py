"""Spark's settings for a session that many tests share."""
