"""Limits of the engine: maximum cost of one request, on every face.

One object, which tests can replace. Defaults are quotas of AWS where it has one
(docs/contract/sqs.md 2.1, docs/contract/sns.md 3.2, docs/contract/scheduler.md 4.5).
``gateway.faces.aws.aws_rules`` has limits of AWS alone. A limit that concerns one module is in that
module.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The name of each limit has its unit."""

    # Requests
    request_bytes: int = 262_144
    message_request_bytes: int = 6_815_744
    """Body of a request with messages: a batch in which every character is an escape of six
    characters, and 512 KiB for the rest."""
    listed: int = 1_000
    """Elements of a page."""

    # Queues
    title_length: int = 200
    queue_size: int = 2_147_483_647
    deliveries: int = 1_000
    """Receives before a message is dead-lettered."""

    # Messages
    message_bytes: int = 1_048_576
    nesting_levels: int = 500
    """Levels of a message or header in JSON, which every parser can read."""
    headers: int = 100
    """Headers of a message. SQS's maximum of ten applies to SQS only. Without a maximum, a message
    could have 100,000 short headers, and receiving a hundred such messages would delay other
    requests."""
    sent_messages: int = 500
    """In one request, as are the next ones."""
    received_messages: int = 100
    deleted_messages: int = 500
    receipts: int = 1_000
    published_at_once: int = 100
    """Messages for channels in one request."""
    pushed_credit: int = 1_000
    browsed_messages: int = 1_000
    browsed_ranges: int = 1_000
    replayed_messages: int = 1_000
    receive_wait_seconds: int = 20
    visibility_timeout_seconds: int = 43_200
    text_visibility_timeout_seconds: int = 86_400
    """On the text face, which has always allowed a day."""
    delay_seconds: int = 900
    priority: int = 10
    """The most urgent priority. storage/queues/priorities.sql iterates over as many."""
    ttl_seconds: int = 1_209_600
    """The longest retention of a queue."""
    in_flight_messages: int = 120_000
    """For each queue."""

    # Move tasks
    move_tasks_listed: int = 10
    move_tasks_per_account: int = 100

    # Topics and events
    published_bytes: int = 262_144
    """Message with attributes, and all messages of one request together. Each topic also has a
    maximum."""
    subscriptions_of_large_messages: int = 100
    subscriptions_of_fifo_topic: int = 100
    filter_policies_of_topic: int = 200
    filter_policies_of_account: int = 10_000
    confirmation_seconds: int = 2 * 24 * 3600
    endpoint_length: int = 2_048
    event_patterns: int = 2_000
    outbox_page_bytes: int = 8_388_608

    # Logs
    published_records: int = 1_000
    """In one request."""
    record_key_length: int = 256
    """Characters, as in the next one."""
    record_id_length: int = 128
    record_metadata: int = 100
    """Texts of a record, for the reason of ``headers``."""
    log_partitions: int = 100_000
    shared_partitions: int = 10_000
    """Partitions that are created with a log whose keys share them."""
    partitions_listed: int = 10_000
    log_groups: int = 1_000
    """For each log: each group has a position in every partition."""
    log_subscribers: int = 5_000
    places_given: int = 5_000
    """In one request, as are the next ones. They fit into `request_bytes`."""
    read_ranges: int = 1_000
    read_records: int = 10_000
    read_bytes: int = 4_194_304
    read_wait_seconds: int = 20
    fetched_records: int = 1_000
    """In one request, and from one partition."""
    error_length: int = 4_000

    # Schedules
    schedule_groups: int = 500

    # Keys
    quotas: int = 20_000
    """Accounts and keys with stored quotas. Every process caches all of them."""
    keys: int = 10_000
    """Keys of all accounts that are not revoked. Every process caches them, in about 6 MB."""

    # Clocks
    moved_accounts: int = 5_000
    """Accounts with clocks of their own. Every process caches all of them."""

    # Saved states
    states_of_account: int = 100
    state_name_length: int = 80


LIMITS = Limits()
