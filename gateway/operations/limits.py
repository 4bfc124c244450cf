"""What requests to operations may ask for, as one object that tests can replace: the quotas of AWS
(docs/contract/sqs.md 2.1, docs/contract/sns.md 3.2, docs/contract/scheduler.md 4.5) and a few of
our own. A bound that concerns one module only stands there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Each limit has its unit in its name. The defaults are AWS's where AWS has one."""

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
    policy_bytes: int = 8_192
    permission_actions: int = 7
    redrive_allow_sources: int = 10
    max_receive_count: int = 1_000
    move_tasks_listed: int = 10
    move_tasks_per_account: int = 100
    move_rate_per_second: int = 500
    move_task_seconds: int = 36 * 3600
    sns_page: int = 100
    outbox_page_bytes: int = 8_388_608
    topic_policy_bytes: int = 30_720
    subscription_policy_length: int = 10_240
    display_name_length: int = 100
    archive_days: int = 365
    list_subscriptions_page: int = 100
    subscriptions_of_fifo_topic: int = 100
    filter_policies_of_topic: int = 200
    filter_policies_of_account: int = 10_000
    confirmation_seconds: int = 2 * 24 * 3600
    endpoint_length: int = 2_048
    event_patterns: int = 2_000
    receive_names: int = 256
    """Of attributes in one receive, in each of its lists. AWS documents no number."""
    request_bytes: int = 262_144
    """Of the body of a request without a message in it."""
    message_request_bytes: int = 6_815_744
    """Of one with messages: a batch, of which every character may be an escape of six, and half a
    megabyte for what is around it."""
    schedule_groups: int = 500
    moved_accounts: int = 5_000
    """That have a clock of their own. Each process keeps all of them."""


LIMITS = Limits()
