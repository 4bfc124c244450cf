"""Whole jobs around queues: archive, compact, replay, reports on dead letters and traffic, redrive.

Each is a function of its own module, and a command: ``python -m spark_connectors.pipelines``.
"""
