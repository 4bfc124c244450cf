"""Settings: all that can be configured, read from the environment and flags, checked at start.

`Settings.from_env` is the only reader of the environment. Each field carries its allowed values,
and a table has its variables and its explanation, so that the help texts and the documented table
cannot drift from the code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from queuegate.gateway.configuration import values as texts
from queuegate.gateway.configuration.swap_ins import SWAP_INS, defaults_of
from queuegate.gateway.configuration.values import (
    BASE_URL,
    DIRECTORY,
    FILE,
    SWITCH,
    BadSecret,
    BadValue,
    Network,
    SettingKind,
    Variable,
    is_loopback,
    number,
    setting,
    word,
)
from queuegate.protocol.urls import RegionIn

_NAME = SettingKind("text", texts.parse_name)

DATABASE_PARTS: tuple[tuple[Variable, str], ...] = (
    (
        Variable(
            ("DB_HOST",),
            SettingKind(
                "a host name, an address, or the directory of a socket", texts.database_host
            ),
            "Host of a database in parts. If one of these five variables is set, the others have "
            "their defaults. DATABASE_URL, --data and --ephemeral take precedence.",
        ),
        "localhost",
    ),
    (Variable(("DB_PORT",), number(1, 65535), "Port of the database."), "5432"),
    (Variable(("DB_USER",), _NAME, "User of the database."), "postgres"),
    (Variable(("DB_PASSWORD",), _NAME, "Password of the user.", secret=True), "postgres"),
    (Variable(("DB_NAME",), _NAME, "Name of the database."), "postgres"),
)
"""Variables of the parts, with their defaults."""

DATABASE_PART_NAMES = tuple(variable.names[0] for variable, _ in DATABASE_PARTS)


_DEFAULT_PORT = 9324


ADDRESS = Variable(
    ("QUEUEGATE_ADDRESS", "QUEUE_ADDRESS"),
    SettingKind("host:port", texts.hosts_and_port),
    "Hosts and port together. The variables for hosts and for the port take precedence.",
    title="Addresses",
)
_RATE = SettingKind(
    "requests/time, such as 500/s, 100/m or 5000/10s", texts.parse_rate, texts.format_rate
)
_COUNT = number(0, 1_000_000)
_FLAGS = {"data_dir": "--data", "hosts": "--host", "config_prune": "--prune"}


_EXPLANATIONS = """\
hosts QUEUEGATE_HOST: Addresses to listen on. localhost is 127.0.0.1 and ::1; 0.0.0.0 is every IPv4
    interface; :: is every interface.
port: Port to listen on; 0 binds a free port.
base_url QUEUEGATE_BASE_URL QUEUE_BASE_URL: Start of queue URLs in responses. Unset: scheme and host
    of each request.
queue_urls: Place of the region in queue URLs. none: the URL is /<account>/<name>, and the signature
    names the region. path: /queue/<region>/<account>/<name>, unless the region is QUEUEGATE_REGION.
    host: sqs.<region>.<host>, as on AWS.
faces: Enabled APIs, separated by commas. Pages for operators are always enabled.
allowed_hosts: Further host names, with their sub-domains, that a gateway on loopback answers to.
allowed_origins: Origins of web pages that may call this gateway from a browser.
tls_certificate: Certificate chain in PEM: the port serves TLS. Replaced files are loaded within
    seconds.
tls_key: Key of the certificate, in PEM without a password.
operations_address: Separate address of /metrics, /livez and /readyz, in plain HTTP, also of
    `queuegate worker`. Unset: the public port.
trusted_proxies: Proxies whose X-Forwarded-For, -Proto and -Host, or Forwarded, are trusted. These
    headers are ignored from other clients.
console: The web console at /console: on, read-only (its sessions change nothing), or off.
like: Replace this server in tests: its port, region, account, line of start and pages. No
    credentials are needed, and data is ephemeral unless a directory or a database is given.
init_dir: Directory with boot.d, start.d, ready.d and shutdown.d, whose scripts (*.sh, *.py) run at
    these times, in the order of their names. LocalStack: /etc/localstack/init.
# Data and processes
database_url DATABASE_URL QUEUEGATE_DATABASE_URL: Your own PostgreSQL, version 15 or newer. Unset:
    Queuegate starts the bundled one.
direct_database_url: The same database without a pooler, for connections that need a session:
    migrations, notifications and write batchers. DATABASE_URL is then only for the pool of ordinary
    statements, and may lead to PgBouncer in transaction mode. Unset: DATABASE_URL.
data_dir: Data directory of the bundled PostgreSQL.
ephemeral: For tests: keep the data in a temporary directory, without fsync, until exit.
workers: Gateway processes on the port.
config: Seed file (TOML or YAML), elasticmq.conf or CloudFormation template that is applied at each
    start, before the gateway is ready.
config_prune: Delete queues, topics, subscriptions, schedules and logs that this file does not name,
    in its accounts and regions.
# Accounts
region: Region of requests without a region in the signature.
account_id: Account of access keys that are neither configured nor 12 digits.
auth: presence: requests need credentials of any kind. none: requests need no credentials. sigv4:
    requests need a valid signature of a key of `queuegate keys`.
master_keys QUEUEGATE_MASTER_KEY: Encryption key for secrets of access keys in the database. sigv4
    needs it, unless ephemeral. A second key, after a space, is for `queuegate keys rotate-master`.
master_key_file: File with the master keys, one a line: `openssl rand -base64 32` generates one.
administrator_key_file: File for the first administrator's key in sigv4 mode, if stdout is not a
    terminal. Unset: administrator-<access key> in the data directory.
signature_delay_ms: Maximum delay, in milliseconds, of responses to wrong signatures or keys. Each
    client address gets five such responses at once, then ten per second. 0: no delay.
unsigned_payload: Requests with UNSIGNED-PAYLOAD, whose signature does not cover the body, in sigv4
    mode. tls: require TLS to this gateway or to a trusted proxy.
session_tokens: X-Amz-Security-Token in requests of long-term keys, in sigv4 mode. accept: ignore
    the token and verify the signature. Tokens of this gateway's sessions are always verified.
policies: Policies of queues and topics. enforce: refuse requests that they do not allow, as on AWS.
    warn: log each such request once, with the missing statement. Unset: enforce with sigv4, else
    off.
accounts: Accounts of access keys.
api_key QUEUEGATE_API_KEY API_KEY: Key of the simple queue and the text API; keys of `queuegate
    keys` are accepted, too. Unset: no key is needed.
channel_rate_limit: Rate limit of publishes to channels by producers without a key of `queuegate
    keys`.
# Quotas
quota_requests: Maximum requests per second for each account, all actions together. `queuegate
    quotas` overrides this and the following limits. Unset: no limit.
quota_key_requests: Rate limit of each key of `queuegate keys`.
quota_queues QUEUEGATE_QUOTA_QUEUES QUEUEGATE_QUEUES_PER_ACCOUNT: Maximum queues of an account, of
    all APIs together.
quota_topics: Maximum topics of an account.
quota_subscriptions: Maximum subscriptions of an account.
quota_logs: Maximum logs of an account.
# Queues and the database
default_visibility_timeout_seconds QUEUEGATE_DEFAULT_VISIBILITY_TIMEOUT
    QUEUE_DEFAULT_VISIBILITY_TIMEOUT: VisibilityTimeout, in seconds, of queues that are created
    without one.
channel_ack_window_seconds: Acknowledgement window of new channels, in seconds.
channel_max_deliveries: Deliveries before a message of a new channel is dead-lettered; 0: no limit.
max_database_connections QUEUEGATE_MAX_CONNECTIONS QUEUE_MAX_CONNECTIONS: Database connections of a
    process for ordinary statements. The hot path has separate ones.
linger_ms QUEUEGATE_LINGER_MS QUEUE_LINGER_MS: Maximum milliseconds that sends to standard queues
    wait to be written in one batch.
delete_commit: relaxed: deletes from standard queues do not wait for the disk. After a crash of the
    database, messages that were deleted in its last second may be delivered again.
# Logs
log_level QUEUEGATE_LOG_LEVEL LOG_LEVEL: Least severe records to log.
log_format: Format of log lines on stderr. auto: text on a terminal, JSON otherwise.
access_log: Log one line for each request.
audit: Destination of the audit log, with a line for each refused call and each change of
    configuration. Unset: stderr with sigv4, else off.
# Clock
admin_clock: Allow POST /_admin/clock, which moves the clock of all accounts or of one. Unset: when
    ephemeral.
# Limits
max_body_bytes: Maximum request body. A full batch is 1 MiB of text, and its encoding can be several
    times larger.
max_buffered_bytes: Maximum bytes of requests and of unread responses in a process. Accounts share
    them fairly.
max_clients: Maximum connections of a process. Unset: derived from its limit of open files.
shutdown_deadline_seconds QUEUEGATE_SHUTDOWN_DEADLINE: Seconds for requests in flight to finish
    after SIGTERM.
# Cool-downs of SQS
purge_interval_seconds QUEUEGATE_PURGE_INTERVAL: Seconds during which a second PurgeQueue is
    refused. SQS: 60. Unset: 0 when ephemeral.
queue_recreate_seconds: Seconds before the name of a deleted queue can be reused. SQS: 60. Unset: 0
    when ephemeral.
aws_cooldowns: Enforce the 60 s cool-downs of SQS in ephemeral mode.
# Web hooks
private_webhooks: Allow deliveries to private addresses. Unset: when ephemeral, or listening on
    loopback only.
delivery_enabled QUEUE_HTTP_DELIVERY_ENABLED: Deliver to web hooks from this process. `queuegate
    worker` can do so elsewhere.
delivery_poll_ms QUEUE_HTTP_DELIVERY_POLL_MS: Milliseconds between polls for deliveries without a
    notification, such as retries.
delivery_timeout_seconds QUEUE_HTTP_DELIVERY_TIMEOUT_SECS: Timeout of a request to a web hook, in
    seconds, including the look-up of its name. SNS: 15.
delivery_batch_size QUEUE_HTTP_DELIVERY_BATCH_SIZE: Maximum deliveries claimed at once.
delivery_concurrency: Maximum concurrent requests of a process to web hooks; at most 32 for one
    subscription.
webhook_ca_file: Certificate authorities, in PEM, for web hooks, in addition to the system's.
# SNS signatures
signing_key_file: RSA key, in PEM, for signatures of SNS messages. Unset: a key is generated and
    stored.
signing_certificate_file: Certificate of the signing key, in PEM.
signing_cert_url_base: Start of the SigningCertURL in SNS messages. Unset: the start of queue URLs.
sign_queue_envelopes: Sign SNS envelopes in queues, too. A signature costs 0.4 ms of CPU at the
    first receive.
# Outbox
outbox_days: Retention, in days, of the outbox: messages for e-mail, SMS and push are stored, not
    sent.
# Channels
push_heartbeat_seconds: Seconds between heartbeats on streams and WebSockets. A WebSocket that
    misses two of them is closed.
# Schedules
schedule_enabled QUEUE_SCHEDULE_ENABLED: Fire schedules from this process. `queuegate worker` can do
    so elsewhere.
schedule_poll_ms QUEUE_SCHEDULE_POLL_MS: Milliseconds between polls for due schedules without a
    notification.
schedule_batch_size QUEUE_SCHEDULE_BATCH_SIZE: Maximum due schedules claimed at once.
schedule_preview_count QUEUE_SCHEDULE_PREVIEW_COUNT: Number of fire times in next_fires of schedules
    and previews.
schedule_list_max QUEUE_SCHEDULE_LIST_MAX: Maximum schedules in a response of GET /v1/schedules.
# Traces and pushed metrics
otlp_enabled QUEUEGATE_OTLP_ENABLED OTLP_ENABLED: Export traces over OTLP. Needs `pip install
    'queuegate[otlp]'`.
otlp_endpoint QUEUEGATE_OTLP_ENDPOINT OTLP_ENDPOINT: Collector of traces and metrics. Unset:
    http://localhost:4318, for grpc http://localhost:4317.
otlp_protocol QUEUEGATE_OTLP_PROTOCOL OTLP_PROTOCOL OTEL_EXPORTER_OTLP_PROTOCOL: Protocol of the
    collector. Unset: grpc if its port is 4317, else http/protobuf, to the paths /v1/traces and
    /v1/metrics.
otlp_sample_rate QUEUEGATE_OTLP_SAMPLE_RATE OTLP_SAMPLE_RATE: Exported share of the traces that
    start here. Callers decide about their own traces.
otlp_metrics_enabled: Push the metrics of /metrics to the collector. Needs `pip install
    'queuegate[otlp]'`.
otlp_metrics_seconds: Seconds between two pushes of metrics.
# For programs that start a gateway
banner: Form of what is printed when the gateway is ready. json: one line with url and pid.
parent_pid: Number of a process with which the gateway ends, however that ends.
runtime_dir: Directory of sockets between the processes of a gateway.
watched_dir: Data directory whose disk is watched: that of the bundled database.
"""
"""For each field of Settings: its variables, unless it is QUEUEGATE_ and its name, and its
explanation. A heading starts a section of the table of settings.
"""


class BadSetting(Exception):
    """A setting cannot be used; the text names the variable, the value and the allowed values."""


@dataclass(frozen=True)
class Settings:
    """The configuration of a gateway. Names of durations and sizes end in their unit."""

    hosts: tuple[str, ...] = setting(
        ("localhost",),
        SettingKind(
            "addresses or host names, separated by commas", texts.host_names, texts.format_list
        ),
    )
    port: int = setting(_DEFAULT_PORT, number(0, 65535))
    base_url: str | None = setting(None, BASE_URL)
    queue_urls: RegionIn = setting("none", word("none", "path", "host"))
    faces: tuple[str, ...] = setting(
        texts.FACE_NAMES,
        SettingKind(f"some of {', '.join(texts.FACE_NAMES)}", texts.face_names, texts.format_list),
    )
    allowed_hosts: tuple[str, ...] = setting(
        (), SettingKind("host names, separated by commas", texts.parse_hosts, texts.format_list)
    )
    allowed_origins: tuple[str, ...] = setting(
        (),
        SettingKind(
            "scheme://host[:port] of pages, separated by commas, or *",
            texts.parse_origins,
            texts.format_list,
        ),
    )
    tls_certificate: Path | None = setting(None, FILE)
    tls_key: Path | None = setting(None, FILE)
    operations_address: tuple[tuple[str, ...], int] | None = setting(
        None, SettingKind("host:port", texts.hosts_and_port, texts.format_hosts_and_port)
    )
    trusted_proxies: tuple[Network, ...] = setting(
        (),
        SettingKind(
            "addresses and networks such as 10.0.0.0/8, separated by commas",
            texts.parse_networks,
            texts.format_networks,
        ),
    )
    console: str = setting("on", word("on", "read-only", "off"))
    like: str | None = setting(None, word(*SWAP_INS))
    init_dir: Path | None = setting(None, DIRECTORY)
    database_url: str | None = setting(
        None,
        SettingKind("postgresql://user:password@host:5432/database", texts.parse_database_url),
        secret=True,
    )
    direct_database_url: str | None = setting(
        None,
        SettingKind("postgresql://user:password@host:5432/database", texts.parse_database_url),
        secret=True,
    )
    data_dir: Path = setting(Path(), DIRECTORY)
    ephemeral: bool = setting(False, SWITCH)
    workers: int = setting(1, number(1, 64))
    config: Path | None = setting(None, FILE)
    config_prune: bool = setting(False, SWITCH)
    region: str = setting(
        "us-east-1", SettingKind("a region name such as us-east-1", texts.parse_region)
    )
    account_id: str = setting("000000000000", SettingKind("12 digits", texts.parse_account_id))
    auth: str = setting("presence", word("none", "presence", "sigv4"))
    master_keys: tuple[bytes, ...] | None = setting(
        None,
        SettingKind(
            "32 bytes in Base64 or hexadecimal digits", texts.parse_master_keys, lambda _: "set"
        ),
        secret=True,
    )
    master_key_file: Path | None = setting(None, FILE)
    administrator_key_file: Path | None = setting(None, FILE)
    signature_delay_ms: int = setting(1_000, number(0, 10_000))
    unsigned_payload: str = setting("accept", word("accept", "tls"))
    session_tokens: str = setting("refuse", word("refuse", "accept"))
    policies: str | None = setting(None, word("off", "warn", "enforce"))
    accounts: Mapping[str, str] = setting(
        {},
        SettingKind(
            "ACCESSKEY=123456789012 pairs, separated by commas",
            texts.parse_accounts,
            texts.format_accounts,
        ),
    )
    api_key: str | None = setting(
        None,
        SettingKind("printable text that does not begin with qg_", texts.parse_api_key),
        secret=True,
    )
    channel_rate_limit: tuple[int, int] | None = setting(None, _RATE)
    quota_requests: tuple[int, int] | None = setting(None, _RATE)
    quota_key_requests: tuple[int, int] | None = setting(None, _RATE)
    quota_queues: int | None = setting(None, _COUNT)
    quota_topics: int | None = setting(None, _COUNT)
    quota_subscriptions: int | None = setting(None, _COUNT)
    quota_logs: int | None = setting(None, _COUNT)
    default_visibility_timeout_seconds: int = setting(30, number(0, 43_200))
    channel_ack_window_seconds: int = setting(30, number(1, 43_200))
    channel_max_deliveries: int = setting(5, number(0, 1_000))
    max_database_connections: int = setting(10, number(1, 1000))
    linger_ms: int = setting(0, number(0, 1000))
    delete_commit: str = setting("durable", word("durable", "relaxed"))
    log_level: str = setting(
        "info", SettingKind("debug, info, warning or error", texts.parse_log_level)
    )
    log_format: str = setting("auto", word("auto", "text", "json"))
    access_log: bool = setting(False, SWITCH)
    audit: str | None = setting(
        None, SettingKind("off, stderr or /the/path/of/a/file", texts.parse_audit)
    )
    admin_clock: bool = setting(None, SWITCH)
    max_body_bytes: int = setting(8_388_608, number(1_048_576, 134_217_728))
    max_buffered_bytes: int = setting(268_435_456, number(16_777_216, 1 << 39))
    max_clients: int | None = setting(None, number(1, 1_000_000))
    shutdown_deadline_seconds: int = setting(10, number(0, 3600))
    purge_interval_seconds: int = setting(60, number(0, 60))
    queue_recreate_seconds: int = setting(60, number(0, 60))
    aws_cooldowns: bool = setting(False, SWITCH)
    private_webhooks: bool | None = setting(None, SWITCH)
    delivery_enabled: bool = setting(True, SWITCH)
    delivery_poll_ms: int = setting(1000, number(10, 60_000))
    delivery_timeout_seconds: int = setting(15, number(1, 300))
    delivery_batch_size: int = setting(256, number(1, 10_000))
    delivery_concurrency: int = setting(256, number(1, 10_000))
    webhook_ca_file: Path | None = setting(None, FILE)
    signing_key_file: Path | None = setting(None, FILE)
    signing_certificate_file: Path | None = setting(None, FILE)
    signing_cert_url_base: str | None = setting(None, BASE_URL)
    sign_queue_envelopes: bool = setting(True, SWITCH)
    outbox_days: int = setting(14, number(1, 365))
    push_heartbeat_seconds: int = setting(20, number(1, 3600))
    schedule_enabled: bool = setting(True, SWITCH)
    schedule_poll_ms: int = setting(1000, number(10, 60_000))
    schedule_batch_size: int = setting(500, number(1, 10_000))
    schedule_preview_count: int = setting(5, number(0, 100))
    schedule_list_max: int = setting(1000, number(1, 100_000))
    otlp_enabled: bool = setting(False, SWITCH)
    otlp_endpoint: str | None = setting(None, BASE_URL._replace(parse=texts.parse_collector_url))
    otlp_protocol: str | None = setting(None, word("http/protobuf", "grpc"))
    otlp_sample_rate: float = setting(0.1, SettingKind("a number from 0 to 1", texts.fraction))
    otlp_metrics_enabled: bool = setting(False, SWITCH)
    otlp_metrics_seconds: int = setting(60, number(1, 3_600))
    banner: str = setting("text", word("text", "json"))
    parent_pid: int | None = setting(None, number(1, 1 << 31))
    runtime_dir: Path | None = setting(None, DIRECTORY, internal=True)
    watched_dir: Path | None = setting(None, DIRECTORY, internal=True)

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
    ) -> Settings:
        """Read settings from variables; `overrides`, texts by field name, take precedence.

        Raises BadSetting for the first unusable value.
        """
        values: dict[str, Any] = {}
        given = {name: text for name, text in (overrides or {}).items() if text is not None}
        name = _first_set(ADDRESS, environ)
        if name is not None:
            values["hosts"], values["port"] = _checked(ADDRESS, name, environ[name])
        for item in fields(cls):
            variable = VARIABLES[item.name]
            if item.name in given:
                flag = _FLAGS.get(item.name) or "--" + item.name.replace("_", "-")
                values[item.name] = _checked(variable, flag, given[item.name])
                continue
            name = _first_set(variable, environ)
            if name is not None:
                values[item.name] = _checked(variable, name, environ[name])
        if values.get("like") is not None:
            cls._imitate(values, environ)
        values.setdefault("data_dir", default_data_dir(environ))
        is_ephemeral = bool(values.get("ephemeral", False))
        has_parts = any(environ.get(name) for name in DATABASE_PART_NAMES) and not is_ephemeral
        if has_parts and "database_url" not in values and "data_dir" not in given:
            parts = [
                str(_checked(v, v.names[0], environ.get(v.names[0]) or default))
                for v, default in DATABASE_PARTS
            ]
            values["database_url"] = _database_url_of(*parts)
        if values.get("admin_clock") is None:
            values["admin_clock"] = is_ephemeral
        if is_ephemeral and not values.get("aws_cooldowns", False):
            # Clean-up of a test would wait a minute, which no other emulator requires.
            values.setdefault("purge_interval_seconds", 0)
            values.setdefault("queue_recreate_seconds", 0)
        settings = cls(**values)
        conflict = _conflict_of(settings) or _conflict_of_flags(given, settings)
        if conflict is not None:
            raise BadSetting(conflict)
        return settings

    @classmethod
    def _imitate(cls, values: dict[str, Any], environ: Mapping[str, str]) -> None:
        """Set what is not given to the defaults of the server that the gateway replaces."""
        is_kept = bool({"database_url", "data_dir"} & values.keys()) or any(
            environ.get(name) for name in DATABASE_PART_NAMES
        )
        defaults = defaults_of(values["like"], environ, is_kept=is_kept)
        for name, text in defaults.items():
            if values.get(name) is None:
                values[name] = _checked(VARIABLES[name], f"--like {values['like']}: {name}", text)

    @property
    def session_url(self) -> str | None:
        """Return the URL of the database for connections that need a session."""
        return self.direct_database_url or self.database_url

    @property
    def scheme(self) -> str:
        """Return the URL scheme of the port."""
        return "http" if self.tls_certificate is None else "https"

    @property
    def is_local(self) -> bool:
        """Return True if the gateway listens on loopback addresses only."""
        return all(is_loopback(host) for host in self.hosts)

    @property
    def allows_private_webhooks(self) -> bool:
        """Return True if the gateway delivers to private addresses."""
        if self.private_webhooks is not None:
            return self.private_webhooks
        return self.ephemeral or self.is_local

    @property
    def policy_mode(self) -> str:
        """Return the mode of policies: enforce, warn or off."""
        return self.policies or ("enforce" if self.auth == "sigv4" else "off")


def _variables(explanations: str) -> Iterator[tuple[str, Variable]]:
    """Return each field of Settings with its variable."""
    title, of = "", {item.name: item.metadata for item in fields(Settings)}
    for line in re.sub(r"\n +", " ", explanations).splitlines():
        if line.startswith("# "):
            title = line[2:]
            continue
        head, _, explanation = line.partition(": ")
        name, *names = head.split()
        shown = tuple(names) or (f"QUEUEGATE_{name.upper()}",)
        yield name, Variable(shown, explanation=explanation, title=title, **of[name])
        title = ""


VARIABLES = dict(_variables(_EXPLANATIONS))
"""Variables of the fields of Settings."""


def process_environment() -> Mapping[str, str]:
    """Return the environment of this process; other functions take it as an argument."""
    return os.environ


def use_home(directory: str) -> None:
    """Set the home directory, after this process has become another user."""
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


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Return the state directory of this user; for root a system directory, open to its account."""
    if os.geteuid() == 0:
        return Path("/var/lib/queuegate")
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "queuegate"
    return Path(environ.get("HOME") or "~").expanduser() / ".local" / "state" / "queuegate"


def _database_url_of(host: str, port: str, user: str, password: str, name: str) -> str:
    """Return the URL of a database from its checked parts, in the order of DATABASE_PARTS."""
    who = f"{quote(user, safe='')}:{quote(password, safe='')}"
    path = quote(name, safe="")
    if host.startswith("/"):
        return f"postgresql://{who}@/{path}?host={quote(host, safe='')}&port={port}"
    return f"postgresql://{who}@{f'[{host}]' if ':' in host else host}:{port}/{path}"


def _conflict_of(settings: Settings) -> str | None:
    """Return the conflict between valid settings; None if there is none."""
    if settings.master_keys is not None and settings.master_key_file is not None:
        return (
            "QUEUEGATE_MASTER_KEY and QUEUEGATE_MASTER_KEY_FILE exclude each other: leave one of "
            "them out."
        )
    has_key = settings.master_keys or settings.master_key_file or settings.ephemeral
    if settings.auth == "sigv4" and not has_key:
        return (
            "QUEUEGATE_AUTH=sigv4 needs QUEUEGATE_MASTER_KEY_FILE, which secrets of keys are "
            "encrypted with: `openssl rand -base64 32 > FILE` makes one. Keep it: without it the "
            "keys are lost."
        )
    if settings.ephemeral and settings.database_url is not None:
        return (
            "--ephemeral and DATABASE_URL exclude each other: ephemeral data lives in a "
            "PostgreSQL that Queuegate starts itself. Leave one of them out."
        )
    if settings.direct_database_url is not None and settings.database_url is None:
        return (
            "QUEUEGATE_DIRECT_DATABASE_URL belongs to DATABASE_URL, which names a pooler: set both "
            "of them, or DATABASE_URL alone."
        )
    if settings.like is not None and settings.auth == "sigv4":
        return (
            "--like and QUEUEGATE_AUTH=sigv4 exclude each other: the pages of other servers show "
            "all messages to everybody. Leave one of them out."
        )
    if settings.workers > 1 and (settings.like is not None or settings.init_dir is not None):
        return "--like and QUEUEGATE_INIT_DIR are for one process: leave --workers out."
    if (settings.signing_key_file is None) != (settings.signing_certificate_file is None):
        return (
            "QUEUEGATE_SIGNING_KEY_FILE and QUEUEGATE_SIGNING_CERTIFICATE_FILE belong together: "
            "set both of them or none."
        )
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        return "--tls-certificate and --tls-key belong together: set both of them or none."
    return None


def _conflict_of_flags(flags: Container[str], settings: Settings) -> str | None:
    """Return the reason why an option has no effect; None if all have."""
    if "data_dir" in flags and settings.ephemeral:
        return (
            "--data and --ephemeral exclude each other: ephemeral data lives in a temporary "
            "directory. Leave one of them out."
        )
    if "data_dir" in flags and settings.database_url is not None:
        return (
            "--data and DATABASE_URL exclude each other: --data is for the PostgreSQL that "
            "Queuegate starts itself. Leave one of them out."
        )
    if "database_url" in flags and settings.direct_database_url is not None:
        # Commands would work on the other database without a word.
        return (
            "--database-url and QUEUEGATE_DIRECT_DATABASE_URL exclude each other: the option may "
            "name another database. Set DATABASE_URL instead, or unset the variable."
        )
    return None
