"""Settings: all that can be configured, read from the environment and flags, checked at start.

`Settings.from_env` is the only reader of the environment. Each field carries its variables, its
allowed values and a one-line explanation, so that the help texts and the README table cannot
drift from the code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from gateway.configuration.fields import Variable, number, setting, switch
from gateway.configuration.values import (
    BadSecret,
    BadValue,
    choice,
    directory,
    format_accounts,
    format_list,
    fraction,
    host_names,
    hosts_and_port,
    integer,
    is_loopback,
    parse_account_id,
    parse_accounts,
    parse_auth,
    parse_base_url,
    parse_collector_url,
    parse_database_url,
    parse_hosts,
    parse_log_level,
    parse_origins,
    parse_region,
)

DEFAULT_PORT = 9324
ADDRESS_NAMES = ("QUEUEGATE_ADDRESS", "QUEUE_ADDRESS")
_FLAGS = {"data_dir": "--data", "hosts": "--host"}


class BadSetting(Exception):
    """A setting cannot be used; the text names the variable, the value and what is allowed."""


@dataclass(frozen=True)
class Settings:
    """What one Queuegate runs with. Immutable; durations and sizes carry their unit in the name."""

    hosts: tuple[str, ...] = setting(
        ("localhost",),
        "QUEUEGATE_HOST",
        host_names,
        allowed="addresses or host names, separated by commas",
        explanation="Where to listen. localhost is 127.0.0.1 and ::1; 0.0.0.0 is every interface, "
        ":: with IPv6, too.",
        write=format_list,
    )
    port: int = number(
        DEFAULT_PORT, "QUEUEGATE_PORT", (0, 65535), "Port to listen on; 0 takes a free one."
    )
    base_url: str | None = setting(
        None,
        "QUEUEGATE_BASE_URL QUEUE_BASE_URL",
        parse_base_url,
        allowed="http://host[:port] or https://host[:port], without a path",
        explanation="Start of queue URLs in answers. Unset: scheme and host of each request.",
    )
    queue_urls: str = setting(
        "path",
        "QUEUEGATE_QUEUE_URLS",
        choice("path", "host"),
        allowed="path or host",
        explanation="Where queue URLs name a region. path: /queue/<region>/… unless it is that of "
        "QUEUEGATE_REGION; host: sqs.<region>.<host>, as on AWS.",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "QUEUEGATE_ALLOWED_HOSTS",
        parse_hosts,
        allowed="host names, separated by commas",
        explanation="More names that a gateway on loopback answers to, with their sub-domains.",
        write=format_list,
    )
    allowed_origins: tuple[str, ...] = setting(
        (),
        "QUEUEGATE_ALLOWED_ORIGINS",
        parse_origins,
        allowed="scheme://host[:port] of pages, separated by commas, or *",
        explanation="Web pages that may ask this gateway from a browser, beside its own.",
        write=format_list,
    )
    database_url: str | None = setting(
        None,
        "DATABASE_URL QUEUEGATE_DATABASE_URL",
        parse_database_url,
        allowed="postgresql://user:password@host:5432/database",
        explanation="A PostgreSQL (15 or newer) of your own. Unset: Queuegate starts its own.",
        secret=True,
    )
    data_dir: Path = setting(
        Path(),
        "QUEUEGATE_DATA_DIR",
        directory,
        allowed="a directory",
        explanation="Where the PostgreSQL that Queuegate starts keeps its data.",
    )
    ephemeral: bool = switch(
        False,
        "QUEUEGATE_EPHEMERAL",
        "Keep the data in a temporary directory, without fsync, gone at exit. For tests.",
    )
    workers: int = number(1, "QUEUEGATE_WORKERS", (1, 64), "Gateway processes on the port.")
    region: str = setting(
        "us-east-1",
        "QUEUEGATE_REGION",
        parse_region,
        allowed="a region name such as us-east-1",
        explanation="Region of requests whose signature names none.",
    )
    account_id: str = setting(
        "000000000000",
        "QUEUEGATE_ACCOUNT_ID",
        parse_account_id,
        allowed="12 digits",
        explanation="Account of access keys that are neither configured nor 12 digits themselves.",
    )
    auth: str = setting(
        "presence",
        "QUEUEGATE_AUTH",
        parse_auth,
        allowed="none or presence",
        explanation="presence: requests must carry credentials, any will do. none: not even that.",
    )
    accounts: Mapping[str, str] = setting(
        {},
        "QUEUEGATE_ACCOUNTS",
        parse_accounts,
        allowed="ACCESSKEY=123456789012 pairs, separated by commas",
        explanation="Which account an access key belongs to.",
        write=format_accounts,
    )
    default_visibility_timeout_seconds: int = number(
        30,
        "QUEUEGATE_DEFAULT_VISIBILITY_TIMEOUT QUEUE_DEFAULT_VISIBILITY_TIMEOUT",
        (0, 43_200),
        "VisibilityTimeout, in seconds, of queues that are created without one.",
    )
    max_database_connections: int = number(
        10,
        "QUEUEGATE_MAX_CONNECTIONS QUEUE_MAX_CONNECTIONS",
        (1, 1000),
        "Database connections per process for ordinary statements; the hot path has its own.",
    )
    linger_ms: int = number(
        0,
        "QUEUEGATE_LINGER_MS QUEUE_LINGER_MS",
        (0, 1000),
        "Milliseconds that sends to standard queues gather, at most, to be written together.",
    )
    log_level: str = setting(
        "info",
        "QUEUEGATE_LOG_LEVEL LOG_LEVEL",
        parse_log_level,
        allowed="debug, info, warning or error",
        explanation="Least severe log records that are written.",
    )
    log_format: str = setting(
        "auto",
        "QUEUEGATE_LOG_FORMAT",
        choice("auto", "text", "json"),
        allowed="auto, text or json",
        explanation="Form of the log lines on stderr. auto: text on a terminal, JSON otherwise.",
    )
    access_log: bool = switch(False, "QUEUEGATE_ACCESS_LOG", "Log one line for each request.")
    admin_clock: bool = switch(
        None,
        "QUEUEGATE_ADMIN_CLOCK",
        "Allow POST /_admin/clock, which moves the clock, or an account's. Unset: when ephemeral.",
    )
    max_body_bytes: int = number(
        8_388_608,
        "QUEUEGATE_MAX_BODY_BYTES",
        (1_048_576, 134_217_728),
        "Largest request body. A full batch is 1 MiB of text; its encoding can multiply that.",
    )
    max_buffered_bytes: int = number(
        268_435_456,
        "QUEUEGATE_MAX_BUFFERED_BYTES",
        (16_777_216, 1 << 39),
        "Bytes of requests, and of answers that are not read, that a process holds. Above: 503.",
    )
    max_clients: int | None = setting(
        None,
        "QUEUEGATE_MAX_CLIENTS",
        integer(1, 1_000_000),
        allowed="a whole number from 1 to 1000000",
        explanation="Connections of a process. Unset: what its limit of open files leaves.",
    )
    shutdown_deadline_seconds: int = number(
        10,
        "QUEUEGATE_SHUTDOWN_DEADLINE",
        (0, 3600),
        "Seconds that requests in flight have to finish after SIGTERM.",
    )
    purge_interval_seconds: int = number(
        60,
        "QUEUEGATE_PURGE_INTERVAL",
        (0, 60),
        "Seconds in which a second PurgeQueue is refused. SQS: 60. Unset: 0 when ephemeral.",
    )
    queue_recreate_seconds: int = number(
        60,
        "QUEUEGATE_QUEUE_RECREATE_SECONDS",
        (0, 60),
        "Seconds before the name of a deleted queue is free again. SQS: 60. "
        "Unset: 0 when ephemeral.",
    )
    aws_cooldowns: bool = switch(
        False,
        "QUEUEGATE_AWS_COOLDOWNS",
        "When ephemeral, too, a second purge and the name of a deleted queue wait for 60 s.",
    )
    private_webhooks: bool | None = switch(
        None,
        "QUEUEGATE_PRIVATE_WEBHOOKS",
        "Deliver to private addresses, too. Unset: when ephemeral, or listening on loopback only.",
    )
    delivery_enabled: bool = switch(
        True,
        "QUEUE_HTTP_DELIVERY_ENABLED",
        "Deliver to web hooks from here. `queuegate worker` can do it elsewhere.",
    )
    delivery_poll_ms: int = number(
        1000,
        "QUEUE_HTTP_DELIVERY_POLL_MS",
        (10, 60_000),
        "Milliseconds between looks for deliveries that nobody announced, such as retries.",
    )
    delivery_timeout_seconds: int = number(
        15,
        "QUEUE_HTTP_DELIVERY_TIMEOUT_SECS",
        (1, 300),
        "Seconds that a web hook has to answer, from the look-up of its name on. SNS: 15.",
    )
    delivery_batch_size: int = number(
        256,
        "QUEUE_HTTP_DELIVERY_BATCH_SIZE",
        (1, 10_000),
        "Deliveries claimed at a time, at most.",
    )
    delivery_concurrency: int = number(
        256,
        "QUEUEGATE_DELIVERY_CONCURRENCY",
        (1, 10_000),
        "Requests to web hooks that one process has in flight, at most; 32 to one subscription.",
    )
    webhook_ca_file: Path | None = setting(
        None,
        "QUEUEGATE_WEBHOOK_CA_FILE",
        directory,
        allowed="a file",
        explanation="Certificates, in PEM, that web hooks may be signed by beside the system's.",
    )
    signing_key_file: Path | None = setting(
        None,
        "QUEUEGATE_SIGNING_KEY_FILE",
        directory,
        allowed="a file",
        explanation="RSA key, in PEM, that signs SNS messages. Unset: one is made and kept.",
    )
    signing_certificate_file: Path | None = setting(
        None,
        "QUEUEGATE_SIGNING_CERTIFICATE_FILE",
        directory,
        allowed="a file",
        explanation="Certificate, in PEM, of that key.",
    )
    signing_cert_url_base: str | None = setting(
        None,
        "QUEUEGATE_SIGNING_CERT_URL_BASE",
        parse_base_url,
        allowed="http://host[:port] or https://host[:port], without a path",
        explanation="Start of the SigningCertURL in SNS messages. Unset: that of queue URLs.",
    )
    sign_queue_envelopes: bool = switch(
        True,
        "QUEUEGATE_SIGN_QUEUE_ENVELOPES",
        "Sign the envelopes of SNS in queues, too. A signature is 0.4 ms of CPU at first receipt.",
    )
    outbox_days: int = number(
        14,
        "QUEUEGATE_OUTBOX_DAYS",
        (1, 365),
        "Days that messages stay in the outbox: what would have gone out by e-mail, SMS or push.",
    )
    schedule_enabled: bool = switch(
        True,
        "QUEUE_SCHEDULE_ENABLED",
        "Fire schedules from here. `queuegate worker` can do it elsewhere.",
    )
    schedule_poll_ms: int = number(
        1000,
        "QUEUE_SCHEDULE_POLL_MS",
        (10, 60_000),
        "Milliseconds between looks for due schedules that nobody announced.",
    )
    schedule_batch_size: int = number(
        500,
        "QUEUE_SCHEDULE_BATCH_SIZE",
        (1, 10_000),
        "Due schedules claimed at a time, at most.",
    )
    schedule_preview_count: int = number(
        5,
        "QUEUE_SCHEDULE_PREVIEW_COUNT",
        (0, 100),
        "How many coming times schedules and previews show in next_fires.",
    )
    schedule_list_max: int = number(
        1000,
        "QUEUE_SCHEDULE_LIST_MAX",
        (1, 100_000),
        "Most schedules that GET /v1/schedules answers.",
    )
    otlp_enabled: bool = switch(
        False,
        "QUEUEGATE_OTLP_ENABLED OTLP_ENABLED",
        "Export traces over OTLP. Needs `pip install 'queuegate[otlp]'`.",
    )
    otlp_endpoint: str | None = setting(
        None,
        "QUEUEGATE_OTLP_ENDPOINT OTLP_ENDPOINT",
        parse_collector_url,
        allowed="http://host[:port] or https://host[:port], without a path",
        explanation="Collector of traces. Unset: http://localhost:4318, for grpc "
        "http://localhost:4317.",
    )
    otlp_protocol: str | None = setting(
        None,
        "QUEUEGATE_OTLP_PROTOCOL OTLP_PROTOCOL OTEL_EXPORTER_OTLP_PROTOCOL",
        choice("http/protobuf", "grpc"),
        allowed="http/protobuf or grpc",
        explanation="How the collector is told. Unset: grpc if its port is 4317, else "
        "http/protobuf, which goes to /v1/traces there.",
    )
    otlp_sample_rate: float = setting(
        0.1,
        "QUEUEGATE_OTLP_SAMPLE_RATE OTLP_SAMPLE_RATE",
        fraction,
        allowed="a number from 0 to 1",
        explanation="Part of the traces that begin here which is exported. Callers decide theirs.",
    )
    runtime_dir: Path | None = setting(
        None,
        "QUEUEGATE_RUNTIME_DIR",
        directory,
        allowed="a directory",
        explanation="Sockets by which the processes of one gateway reach each other.",
        internal=True,
    )
    watched_dir: Path | None = setting(
        None,
        "QUEUEGATE_WATCHED_DIR",
        directory,
        allowed="a directory",
        explanation="Data of the database that was started for this process: its disk is watched.",
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
        _read_address(environ, values)
        for item in fields(cls):
            variable = variable_of(item)
            if item.name in given:
                flag = _FLAGS.get(item.name) or "--" + item.name.replace("_", "-")
                values[item.name] = _checked(variable, flag, given[item.name])
                continue
            name = next((name for name in variable.names if environ.get(name)), None)
            if name is not None:
                values[item.name] = _checked(variable, name, environ[name])
        values.setdefault("data_dir", default_data_dir(environ))
        is_ephemeral = bool(values.get("ephemeral", False))
        if values.get("admin_clock") is None:
            values["admin_clock"] = is_ephemeral
        if is_ephemeral and not values.get("aws_cooldowns", False):
            # A test that cleans up would wait for a minute, and no other emulator makes it.
            values.setdefault("purge_interval_seconds", 0)
            values.setdefault("queue_recreate_seconds", 0)
        settings = cls(**values)
        _check_together(settings)
        return settings

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches a gateway with these settings."""
        return all(is_loopback(host) for host in self.hosts)

    @property
    def allows_private_webhooks(self) -> bool:
        """What a gateway with these settings does; workers alone listen nowhere."""
        if self.private_webhooks is not None:
            return self.private_webhooks
        return self.ephemeral or self.is_local

    def to_env(self) -> dict[str, str]:
        """Variables from which `from_env` gives these settings again, for our own children."""
        values: dict[str, str] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value not in (None, {}, ()):
                values[variable_of(item).names[0]] = variable_of(item).write(value)
        return values


def variable_of(item: Field[Any]) -> Variable:
    """The variable behind a field of Settings."""
    variable: Variable = item.metadata["variable"]
    return variable


def process_environment() -> Mapping[str, str]:
    """The environment of this process; others take it as an argument."""
    return os.environ


def use_home(directory: str) -> None:
    """Look for files of the user here from now on: this process has become another user."""
    os.environ["HOME"] = directory


def child_environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process of ours that is to have exactly these settings."""
    ours = {name for item in fields(Settings) for name in variable_of(item).names}
    ours |= set(ADDRESS_NAMES)
    kept = {name: value for name, value in environ.items() if name not in ours}
    return kept | settings.to_env()


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """The state directory of this user; for root, whose home is closed to others, a system one."""
    if os.geteuid() == 0:
        return Path("/var/lib/queuegate")
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "queuegate"
    return Path(environ.get("HOME") or "~").expanduser() / ".local" / "state" / "queuegate"


def _read_address(environ: Mapping[str, str], values: dict[str, Any]) -> None:
    for name in ADDRESS_NAMES:
        if environ.get(name):
            try:
                values["hosts"], values["port"] = hosts_and_port(environ[name])
            except BadValue as bad:
                reason = str(bad) or "allowed is host:port, for example 0.0.0.0:9324"
                raise BadSetting(f"{name}={environ[name]!r}: {reason}") from None
            return


def _check_together(settings: Settings) -> None:
    if settings.ephemeral and settings.database_url is not None:
        raise BadSetting(
            "--ephemeral and DATABASE_URL exclude each other: ephemeral data lives in a "
            "PostgreSQL that Queuegate starts itself. Leave one of them out."
        )
    if (settings.signing_key_file is None) != (settings.signing_certificate_file is None):
        raise BadSetting(
            "QUEUEGATE_SIGNING_KEY_FILE and QUEUEGATE_SIGNING_CERTIFICATE_FILE belong together: "
            "set both of them or none."
        )


def _checked(variable: Variable, name: str, text: Any) -> Any:
    try:
        return variable.parse(str(text))
    except BadValue as bad:
        hides = variable.secret or isinstance(bad, BadSecret)
        shown = "(value hidden)" if hides else repr(str(text))
        reason = str(bad) or f"allowed is {variable.allowed}"
        raise BadSetting(f"{name}={shown}: {reason}") from None
