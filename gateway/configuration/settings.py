"""Settings: all that can be configured, read from the environment and flags, checked at start.

`Settings.from_env` is the only reader of the environment. Each field carries its variables, its
allowed values and a one-line explanation, so that the help texts and the README table cannot
drift from the code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from queuegate.gateway.configuration import values as texts
from queuegate.gateway.configuration.database_parts import PARTS, database_in_parts, url_of
from queuegate.gateway.configuration.fields import (
    BASE_URL,
    DIRECTORY,
    FILE,
    SWITCH,
    Kind,
    Variable,
    number,
    setting,
    variable_of,
    word,
)
from queuegate.gateway.configuration.listening import ListeningSettings
from queuegate.gateway.configuration.places import default_data_dir
from queuegate.gateway.configuration.together import conflict_of, conflict_of_flags
from queuegate.gateway.configuration.values import BadSecret, BadValue

ADDRESS = Variable(
    ("QUEUEGATE_ADDRESS", "QUEUE_ADDRESS"),
    Kind("host:port", texts.hosts_and_port),
    "Hosts and port in one. The two variables for hosts and port take precedence.",
    title="Where it listens",
)
_RATE = Kind("requests/time, such as 500/s, 100/m or 5000/10s", texts.parse_rate, texts.format_rate)
_COUNT = number(0, 1_000_000)
_FLAGS = {"data_dir": "--data", "hosts": "--host"}


class BadSetting(Exception):
    """A setting cannot be used; the text names the variable, the value and what is allowed."""


@dataclass(frozen=True)
class Settings(ListeningSettings):
    """What one Queuegate runs with. Immutable; durations and sizes carry their unit in the name."""

    database_url: str | None = setting(
        None,
        Kind("postgresql://user:password@host:5432/database", texts.parse_database_url),
        "A PostgreSQL (15 or newer) of your own. Unset: Queuegate starts its own.",
        names="DATABASE_URL QUEUEGATE_DATABASE_URL",
        secret=True,
        title="Data and processes",
    )
    data_dir: Path = setting(
        Path(), DIRECTORY, "Where the PostgreSQL that Queuegate starts keeps its data."
    )
    ephemeral: bool = setting(
        False,
        SWITCH,
        "Keep the data in a temporary directory, without fsync, gone at exit. For tests.",
    )
    workers: int = setting(1, number(1, 64), "Gateway processes on the port.")
    region: str = setting(
        "us-east-1",
        Kind("a region name such as us-east-1", texts.parse_region),
        "Region of requests whose signature names none.",
        title="Accounts",
    )
    account_id: str = setting(
        "000000000000",
        Kind("12 digits", texts.parse_account_id),
        "Account of access keys that are neither configured nor 12 digits themselves.",
    )
    auth: str = setting(
        "presence",
        word("none", "presence", "sigv4"),
        "presence: requests must carry credentials, any will do. none: not even that. sigv4: those "
        "of a key of `queuegate keys`.",
    )
    master_keys: tuple[bytes, ...] | None = setting(
        None,
        Kind("32 bytes in Base64 or hexadecimal digits", texts.parse_master_keys, lambda _: "set"),
        "What secrets of access keys are encrypted with, in the database. sigv4 needs it, unless "
        "ephemeral. A second one, behind a space, is that of `queuegate keys rotate-master`.",
        names="QUEUEGATE_MASTER_KEY",
        secret=True,
    )
    master_key_file: Path | None = setting(
        None, FILE, "The same, in a file, a line each: `openssl rand -base64 32` makes one."
    )
    administrator_key_file: Path | None = setting(
        None,
        FILE,
        "Where the first key in sigv4 mode is written when there is no terminal to show it on. "
        "Unset: administrator-<its name> in the data directory.",
    )
    signature_delay_ms: int = setting(
        1_000,
        number(0, 10_000),
        "Longest delay of an answer to a wrong signature or key. Each client address gets five "
        "such answers at once, then ten a second. 0: none is delayed.",
    )
    unsigned_payload: str = setting(
        "accept",
        word("accept", "tls"),
        "Requests whose signature does not cover their body (UNSIGNED-PAYLOAD), in sigv4 mode. "
        "tls: they are refused unless the client speaks TLS, with this gateway or with a trusted "
        "proxy.",
    )
    session_tokens: str = setting(
        "refuse",
        word("refuse", "accept"),
        "Signed requests of lasting keys with X-Amz-Security-Token, in sigv4 mode. accept looks at "
        "the signature alone. Tokens of sessions that began here are always verified.",
    )
    policies: str | None = setting(
        None,
        word("off", "warn", "enforce"),
        "Policies of queues and topics. enforce: what they do not allow is refused, as on AWS. "
        "warn: the log says once what AWS would refuse, and which statement is missing. Unset: "
        "enforce with sigv4, else off.",
    )
    accounts: Mapping[str, str] = setting(
        {},
        Kind(
            "ACCESSKEY=123456789012 pairs, separated by commas",
            texts.parse_accounts,
            texts.format_accounts,
        ),
        "Which account an access key belongs to.",
    )
    api_key: str | None = setting(
        None,
        Kind("printable text that does not begin with qg_", texts.parse_api_key),
        "The simple queue and the text face want it, or a key of `queuegate keys`. Unset: nothing.",
        names="QUEUEGATE_API_KEY API_KEY",
        secret=True,
    )
    channel_rate_limit: tuple[int, int] | None = setting(
        None,
        _RATE,
        "How often a producer without a key of `queuegate keys` may publish to channels.",
    )
    quota_requests: tuple[int, int] | None = setting(
        None,
        _RATE,
        "How often an account may ask, whatever it asks. This and what follows is what `queuegate "
        "quotas` does not say otherwise; unset: no limit.",
        title="Quotas",
    )
    quota_key_requests: tuple[int, int] | None = setting(
        None, _RATE, "The same of each key of `queuegate keys`."
    )
    quota_queues: int | None = setting(
        None,
        _COUNT,
        "Queues that an account may have, whichever API makes them.",
        names="QUEUEGATE_QUOTA_QUEUES QUEUEGATE_QUEUES_PER_ACCOUNT",
    )
    quota_topics: int | None = setting(None, _COUNT, "Topics that it may have.")
    quota_subscriptions: int | None = setting(None, _COUNT, "Subscriptions of its own.")
    quota_logs: int | None = setting(None, _COUNT, "Logs that it may have.")
    default_visibility_timeout_seconds: int = setting(
        30,
        number(0, 43_200),
        "VisibilityTimeout, in seconds, of queues that are created without one.",
        names="QUEUEGATE_DEFAULT_VISIBILITY_TIMEOUT QUEUE_DEFAULT_VISIBILITY_TIMEOUT",
        title="Queues and the database",
    )
    channel_ack_window_seconds: int = setting(
        30,
        number(1, 43_200),
        "Seconds in which messages of a new channel have to be acknowledged.",
    )
    channel_max_deliveries: int = setting(
        5,
        number(0, 1_000),
        "Deliveries after which a message of a new channel is a dead letter; 0: never.",
    )
    max_database_connections: int = setting(
        10,
        number(1, 1000),
        "Database connections per process for ordinary statements; the hot path has its own.",
        names="QUEUEGATE_MAX_CONNECTIONS QUEUE_MAX_CONNECTIONS",
    )
    linger_ms: int = setting(
        0,
        number(0, 1000),
        "Milliseconds that sends to standard queues gather, at most, to be written together.",
        names="QUEUEGATE_LINGER_MS QUEUE_LINGER_MS",
    )
    delete_commit: str = setting(
        "durable",
        word("durable", "relaxed"),
        "relaxed: deletes of standard queues do not wait for the disk. When the database crashes, "
        "messages deleted in its last second may come again.",
    )
    log_level: str = setting(
        "info",
        Kind("debug, info, warning or error", texts.parse_log_level),
        "Least severe log records that are written.",
        names="QUEUEGATE_LOG_LEVEL LOG_LEVEL",
        title="Logs",
    )
    log_format: str = setting(
        "auto",
        word("auto", "text", "json"),
        "Form of the log lines on stderr. auto: text on a terminal, JSON otherwise.",
    )
    access_log: bool = setting(False, SWITCH, "Log one line for each request.")
    audit: str | None = setting(
        None,
        Kind("off, stderr or /the/path/of/a/file", texts.parse_audit),
        "A line for each refused call and each change of what is set up. Unset: stderr with "
        "sigv4, else off.",
    )
    admin_clock: bool = setting(
        None,
        SWITCH,
        "Allow POST /_admin/clock, which moves the clock, or an account's. Unset: when ephemeral.",
        title="The clock",
    )
    max_body_bytes: int = setting(
        8_388_608,
        number(1_048_576, 134_217_728),
        "Largest request body. A full batch is 1 MiB of text; its encoding can multiply that.",
        title="Bounds",
    )
    max_buffered_bytes: int = setting(
        268_435_456,
        number(16_777_216, 1 << 39),
        "Bytes of requests, and of answers that are not read, that a process holds; accounts share "
        "them.",
    )
    max_clients: int | None = setting(
        None,
        number(1, 1_000_000),
        "Connections of a process. Unset: what its limit of open files leaves.",
    )
    shutdown_deadline_seconds: int = setting(
        10,
        number(0, 3600),
        "Seconds that requests in flight have to finish after SIGTERM.",
        names="QUEUEGATE_SHUTDOWN_DEADLINE",
    )
    purge_interval_seconds: int = setting(
        60,
        number(0, 60),
        "Seconds in which a second PurgeQueue is refused. SQS: 60. Unset: 0 when ephemeral.",
        names="QUEUEGATE_PURGE_INTERVAL",
        title="Cool-downs of SQS",
    )
    queue_recreate_seconds: int = setting(
        60,
        number(0, 60),
        "Seconds before the name of a deleted queue is free again. SQS: 60. "
        "Unset: 0 when ephemeral.",
    )
    aws_cooldowns: bool = setting(
        False,
        SWITCH,
        "When ephemeral, too, a second purge and the name of a deleted queue wait for 60 s.",
    )
    private_webhooks: bool | None = setting(
        None,
        SWITCH,
        "Deliver to private addresses, too. Unset: when ephemeral, or listening on loopback only.",
        title="Web hooks",
    )
    delivery_enabled: bool = setting(
        True,
        SWITCH,
        "Deliver to web hooks from here. `queuegate worker` can do it elsewhere.",
        names="QUEUE_HTTP_DELIVERY_ENABLED",
    )
    delivery_poll_ms: int = setting(
        1000,
        number(10, 60_000),
        "Milliseconds between looks for deliveries that nobody announced, such as retries.",
        names="QUEUE_HTTP_DELIVERY_POLL_MS",
    )
    delivery_timeout_seconds: int = setting(
        15,
        number(1, 300),
        "Seconds that a web hook has to answer, from the look-up of its name on. SNS: 15.",
        names="QUEUE_HTTP_DELIVERY_TIMEOUT_SECS",
    )
    delivery_batch_size: int = setting(
        256,
        number(1, 10_000),
        "Deliveries claimed at a time, at most.",
        names="QUEUE_HTTP_DELIVERY_BATCH_SIZE",
    )
    delivery_concurrency: int = setting(
        256,
        number(1, 10_000),
        "Requests to web hooks that one process has in flight, at most; 32 to one subscription.",
    )
    webhook_ca_file: Path | None = setting(
        None,
        FILE,
        "Certificates, in PEM, that web hooks may be signed by beside the system's.",
    )
    signing_key_file: Path | None = setting(
        None,
        FILE,
        "RSA key, in PEM, that signs SNS messages. Unset: one is made and kept.",
        title="Signatures of SNS",
    )
    signing_certificate_file: Path | None = setting(None, FILE, "Certificate, in PEM, of that key.")
    signing_cert_url_base: str | None = setting(
        None,
        BASE_URL,
        "Start of the SigningCertURL in SNS messages. Unset: that of queue URLs.",
    )
    sign_queue_envelopes: bool = setting(
        True,
        SWITCH,
        "Sign the envelopes of SNS in queues, too. A signature is 0.4 ms of CPU at first receipt.",
    )
    outbox_days: int = setting(
        14,
        number(1, 365),
        "Days that messages stay in the outbox: what would have gone out by e-mail, SMS or push.",
        title="The outbox",
    )
    push_heartbeat_seconds: int = setting(
        20,
        number(1, 3600),
        "Seconds between signs of life on streams and WebSockets. A WebSocket that answers none of "
        "two is closed.",
        title="Channels",
    )
    schedule_enabled: bool = setting(
        True,
        SWITCH,
        "Fire schedules from here. `queuegate worker` can do it elsewhere.",
        names="QUEUE_SCHEDULE_ENABLED",
        title="Schedules",
    )
    schedule_poll_ms: int = setting(
        1000,
        number(10, 60_000),
        "Milliseconds between looks for due schedules that nobody announced.",
        names="QUEUE_SCHEDULE_POLL_MS",
    )
    schedule_batch_size: int = setting(
        500,
        number(1, 10_000),
        "Due schedules claimed at a time, at most.",
        names="QUEUE_SCHEDULE_BATCH_SIZE",
    )
    schedule_preview_count: int = setting(
        5,
        number(0, 100),
        "How many coming times schedules and previews show in next_fires.",
        names="QUEUE_SCHEDULE_PREVIEW_COUNT",
    )
    schedule_list_max: int = setting(
        1000,
        number(1, 100_000),
        "Most schedules that GET /v1/schedules answers.",
        names="QUEUE_SCHEDULE_LIST_MAX",
    )
    otlp_enabled: bool = setting(
        False,
        SWITCH,
        "Export traces over OTLP. Needs `pip install 'queuegate[otlp]'`.",
        names="QUEUEGATE_OTLP_ENABLED OTLP_ENABLED",
        title="Traces, and metrics that are pushed",
    )
    otlp_endpoint: str | None = setting(
        None,
        BASE_URL._replace(parse=texts.parse_collector_url),
        "Collector of traces and metrics. Unset: http://localhost:4318, for grpc http://localhost:4317.",
        names="QUEUEGATE_OTLP_ENDPOINT OTLP_ENDPOINT",
    )
    otlp_protocol: str | None = setting(
        None,
        word("http/protobuf", "grpc"),
        "How the collector is told. Unset: grpc if its port is 4317, else "
        "http/protobuf, which goes to /v1/traces and /v1/metrics there.",
        names="QUEUEGATE_OTLP_PROTOCOL OTLP_PROTOCOL OTEL_EXPORTER_OTLP_PROTOCOL",
    )
    otlp_sample_rate: float = setting(
        0.1,
        Kind("a number from 0 to 1", texts.fraction),
        "Part of the traces that begin here which is exported. Callers decide theirs.",
        names="QUEUEGATE_OTLP_SAMPLE_RATE OTLP_SAMPLE_RATE",
    )
    otlp_metrics_enabled: bool = setting(
        False,
        SWITCH,
        "Push what /metrics shows to the collector, too. Needs `queuegate[otlp]` as well.",
    )
    otlp_metrics_seconds: int = setting(60, number(1, 3_600), "Seconds from push to push.")
    runtime_dir: Path | None = setting(
        None,
        DIRECTORY,
        "Sockets by which the processes of one gateway reach each other.",
        internal=True,
    )
    watched_dir: Path | None = setting(
        None,
        DIRECTORY,
        "Data of the database that was started for this process: its disk is watched.",
        internal=True,
    )

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
    ) -> Settings:
        """Settings from variables; `overrides` (text by field name, from flags) come first.

        Raises BadSetting for the first value that cannot be used.
        """
        values: dict[str, Any] = {}
        given = {name: text for name, text in (overrides or {}).items() if text is not None}
        name = _first_set(ADDRESS, environ)
        if name is not None:
            values["hosts"], values["port"] = _checked(ADDRESS, name, environ[name])
        for item in fields(cls):
            variable = variable_of(item)
            if item.name in given:
                flag = _FLAGS.get(item.name) or "--" + item.name.replace("_", "-")
                values[item.name] = _checked(variable, flag, given[item.name])
                continue
            name = _first_set(variable, environ)
            if name is not None:
                values[item.name] = _checked(variable, name, environ[name])
        values.setdefault("data_dir", default_data_dir(environ))
        is_ephemeral = bool(values.get("ephemeral", False))
        parts = database_in_parts(environ)
        if parts and not is_ephemeral and "database_url" not in values and "data_dir" not in given:
            checked = {v.names[0]: _checked(v, v.names[0], parts[v.names[0]]) for v, _ in PARTS}
            values["database_url"] = url_of(checked)
        if values.get("admin_clock") is None:
            values["admin_clock"] = is_ephemeral
        if is_ephemeral and not values.get("aws_cooldowns", False):
            # A test that cleans up would wait for a minute, and no other emulator makes it.
            values.setdefault("purge_interval_seconds", 0)
            values.setdefault("queue_recreate_seconds", 0)
        settings = cls(**values)
        conflict = conflict_of(settings) or conflict_of_flags(given, settings)
        if conflict is not None:
            raise BadSetting(conflict)
        return settings

    @property
    def allows_private_webhooks(self) -> bool:
        """What a gateway with these settings does; workers alone listen nowhere."""
        if self.private_webhooks is not None:
            return self.private_webhooks
        return self.ephemeral or self.is_local

    @property
    def policy_mode(self) -> str:
        """Whether policies are enforced, warn, or are off."""
        return self.policies or ("enforce" if self.auth == "sigv4" else "off")


def process_environment() -> Mapping[str, str]:
    """The environment of this process; others take it as an argument."""
    return os.environ


def use_home(directory: str) -> None:
    """Look for files of the user here from now on: this process has become another user."""
    os.environ["HOME"] = directory


def _first_set(variable: Variable, environ: Mapping[str, str]) -> str | None:
    return next((name for name in variable.names if environ.get(name)), None)


def _checked(variable: Variable, name: str, text: Any) -> Any:
    try:
        return variable.kind.parse(str(text))
    except BadValue as bad:
        hides = variable.secret or isinstance(bad, BadSecret)
        shown = "(value hidden)" if hides else repr(str(text))
        reason = str(bad) or f"allowed is {variable.kind.allowed}"
        raise BadSetting(f"{name}={shown}: {reason}") from None
