"""Every limit of the product in one place, with its unit in its name (contract/sqs.md 2.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may ask for. The defaults are AWS's."""

    message_bytes: int = 1_048_576
    batch_bytes: int = 1_048_576
    batch_entries: int = 10
    message_attributes: int = 10
    attribute_name_length: int = 256
    receive_messages: int = 10
    receive_wait_seconds: int = 20
    visibility_timeout_seconds: int = 43_200
    delay_seconds: int = 900
    in_flight_messages: int = 120_000
    queue_name_length: int = 80
    list_queues_page: int = 1_000
    tags: int = 50
    tag_key_length: int = 128
    tag_value_length: int = 256
    policy_bytes: int = 8_192
    permission_actions: int = 7
    redrive_allow_sources: int = 10
    max_receive_count: int = 1_000
    move_tasks_listed: int = 10
    move_tasks_per_account: int = 100
    move_rate_per_second: int = 500
    move_task_seconds: int = 36 * 3600


LIMITS = Limits()
