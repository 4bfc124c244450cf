"""Whole jobs around queues: archive, replay, a report on dead letters, and figures of traffic.

The first three are commands, ``python -m spark_connectors.pipelines``, each a function of its own
module. Figures are DataFrames.
"""
