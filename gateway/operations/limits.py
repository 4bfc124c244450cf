"""What protects the engine: how much one request may ask of it, whatever its face.

One object, which tests can replace. The defaults are the quotas of AWS where it has one
(docs/contract/sqs.md 2.1, docs/contract/sns.md 3.2, docs/contract/scheduler.md 4.5). What only AWS
refuses is in ``gateway.faces.aws.limits``; a bound that concerns one module only stands there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Each limit has its unit in its name."""

    # Requests
    request_bytes: int = 262_144
    """Of the body of a request without a message in it."""
    message_request_bytes: int = 6_815_744
    """Of one with messages: a batch, of which every character may be an escape of six, and half a
    megabyte for what is around it."""
    listed: int = 1_000
    """Things on one page."""

    # Queues
    title_length: int = 200
    """Characters of what an owner calls a queue."""
    queue_size: int = 2_147_483_647
    deliveries: int = 1_000
    """Before a message goes to a dead-letter queue."""

    # Messages
    message_bytes: int = 1_048_576
    nesting_levels: int = 500
    """Of a message or a header in JSON: what everybody's parser can read again."""
    headers: int = 100
    """Of a message. SQS's ten is a rule of SQS; but there would be room for 100,000 short ones, and
    whoever receives a hundred such messages would hold up everybody else."""
    sent_messages: int = 500
    """Of one request, as are the next ones."""
    received_messages: int = 100
    deleted_messages: int = 500
    receipts: int = 1_000
    """That one request gives out, or gives back."""
    published_at_once: int = 100
    """To channels."""
    pushed_credit: int = 1_000
    """Messages that one consumer has and has not acknowledged."""
    browsed_messages: int = 1_000
    browsed_ranges: int = 1_000
    replayed_messages: int = 1_000
    receive_wait_seconds: int = 20
    visibility_timeout_seconds: int = 43_200
    text_visibility_timeout_seconds: int = 86_400
    """On the text face, whose clients have always had a day."""
    delay_seconds: int = 900
    priority: int = 10
    """The most urgent. storage/queues/priorities.sql goes through as many."""
    ttl_seconds: int = 1_209_600
    """The longest retention of a queue."""
    in_flight_messages: int = 120_000
    """Of a queue."""

    # Move tasks
    move_tasks_listed: int = 10
    move_tasks_per_account: int = 100

    # Topics and events
    published_bytes: int = 262_144
    """Of a message and its attributes, and of those of one request together. Topics have their
    own maximum."""
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
    """Of one request."""
    record_key_length: int = 256
    """Characters, as is the next one."""
    record_id_length: int = 128
    record_metadata: int = 100
    """Texts of a record, for the reason of ``headers``."""
    log_partitions: int = 100_000
    shared_partitions: int = 10_000
    """That are made at once, with a log whose keys share them."""
    partitions_listed: int = 10_000
    log_groups: int = 1_000
    """Of one log: each knows of all partitions how far it is."""
    log_subscribers: int = 5_000
    """Of one group, at once."""
    places_given: int = 5_000
    """Of one request, as are the next ones. They fit into `request_bytes`."""
    read_ranges: int = 1_000
    read_records: int = 10_000
    read_bytes: int = 4_194_304
    read_wait_seconds: int = 20
    fetched_records: int = 1_000
    """Of one request, and out of one partition at once."""
    error_length: int = 4_000
    """Characters that a dead letter says of its failure."""

    # Schedules
    schedule_groups: int = 500

    # Keys
    quotas: int = 20_000
    """Accounts and keys with quotas of their own: every process remembers all of them."""
    keys: int = 10_000
    """That are not revoked, of all accounts. Each process keeps them: about six megabytes."""

    # Clocks
    moved_accounts: int = 5_000
    """That have a clock of their own. Each process keeps all of them."""


LIMITS = Limits()
