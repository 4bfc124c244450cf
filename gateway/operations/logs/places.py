"""Where wake-ups have logs: beside queues, whose ids are their places."""

from __future__ import annotations


def place_of_partition(partition_id: int) -> int:
    """Stands for a partition where the id of a queue would be: negative, as no id is. Nobody looks
    at it meanwhile: who waits there has a timer for what it waits for."""
    return -partition_id


def place_of_group(group_id: int) -> int:
    """The same for a group of a log."""
    return -(1 << 50) - group_id


def place_of_log(log_id: int) -> int:
    """The same for a log, where groups hear of further partitions."""
    return -(1 << 51) - log_id
