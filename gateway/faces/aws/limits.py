"""What only AWS refuses: limits that protect nothing of ours, but that clients know and test.

What protects the engine is in ``runtime.limits``; the intervals between two purges and
before a name is used again are settings (``runtime.engine.EngineRules``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AwsLimits:
    """Each limit has its unit in its name (docs/contract/sqs.md 2.1, docs/contract/sns.md 3.2,
    docs/contract/scheduler.md 4.5)."""

    # Batches and messages
    batch_entries: int = 10
    batch_bytes: int = 1_048_576
    batch_entry_id_length: int = 80
    received_messages: int = 10
    message_attributes: int = 10
    attribute_name_length: int = 256

    # Queues
    queues_page: int = 1_000
    policy_bytes: int = 8_192
    permission_actions: int = 7
    redrive_allow_sources: int = 10
    max_receive_count: int = 1_000
    move_rate_per_second: int = 500
    move_handle_length: int = 2_048
    tags: int = 50
    """Of a queue or a topic."""

    # Topics
    topics_page: int = 100
    """And of whatever else SNS lists, but for subscriptions."""
    subscriptions_page: int = 100
    topic_policy_bytes: int = 30_720
    subscription_policy_length: int = 10_240
    display_name_length: int = 100
    topic_archive_days: int = 365
    topic_message_bytes: tuple[int, int] = (1_024, 1_048_576)

    # Mobile push and SMS
    application_name_length: int = 256
    application_secret_length: int = 65_536
    application_value_length: int = 2_048
    device_data_bytes: int = 2_048
    device_token_bytes: int = 2_048
    apple_token_length: int = 400
    origination_numbers_page: int = 30

    # Schedules
    schedules_page: int = 100
    schedule_group_tags: int = 200
    retry_attempts: int = 185
    event_age_seconds: int = 86_400


AWS = AwsLimits()
