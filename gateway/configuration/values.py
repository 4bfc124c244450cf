"""Values of settings: parsers of their texts, formatters, and the fields that carry both.

A parser raises BadValue for a text that is not allowed. An empty BadValue means that the list of
allowed values is explanation enough; otherwise its text is the reason.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

Network: TypeAlias = IPv4Network | IPv6Network

FACE_NAMES = ("aws", "rest", "simple", "text", "channels", "log")
"""Faces that can be switched off (``gateway.process.gateway_process``)."""


class BadValue(Exception):
    """The text of a setting is not allowed."""


class BadSecret(BadValue):
    """The text of a setting is not allowed, and must not be shown."""


def boolean(text: str) -> bool:
    """Parse true, yes, on or 1, or their opposites, in any case."""
    word = text.strip().lower()
    if word in {"true", "yes", "on", "1"}:
        return True
    if word in {"false", "no", "off", "0"}:
        return False
    raise BadValue


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from low to high."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,12}", text.strip(), re.ASCII):
            raise BadValue
        value = int(text)
        if not low <= value <= high:
            raise BadValue
        return value

    return parse


def fraction(text: str) -> float:
    """Parse a number from 0 to 1."""
    if not re.fullmatch(r"\d(\.\d{1,9})?", text.strip(), re.ASCII):
        raise BadValue
    value = float(text)
    if value > 1:
        raise BadValue
    return value


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser of one of these words."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            raise BadValue
        return word

    return parse


def face_names(text: str) -> tuple[str, ...]:
    """Parse names of faces, separated by commas; return them in the order of FACE_NAMES."""
    named = {part.strip().lower() for part in text.split(",")}
    if not named <= set(FACE_NAMES):
        raise BadValue
    return tuple(name for name in FACE_NAMES if name in named)


def host_name(text: str) -> str:
    """Parse an address or name without port, with or without the brackets of IPv6."""
    name = text.strip()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    if not name or re.search(r"[\s/\[\]@]", name):
        raise BadValue
    return name


def host_names(text: str) -> tuple[str, ...]:
    """Parse hosts, separated by commas; return each once."""
    return tuple(dict.fromkeys(host_name(part) for part in text.split(",")))


def is_name_of_loopback(host: str) -> bool:
    """Return True for localhost, which needs no look-up."""
    return host.lower() == "localhost"


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches a listener on this host."""
    if is_name_of_loopback(host):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_and_port(text: str) -> tuple[tuple[str, ...], int]:
    """Parse host:port or several hosts and a port; without a host it is every interface."""
    hosts, colon, port = text.strip().rpartition(":")
    try:
        if not colon:
            raise BadValue
        return host_names(hosts or "0.0.0.0"), integer(0, 65535)(port)
    except BadValue:
        raise BadValue("allowed is host:port, for example 0.0.0.0:9324") from None


def format_hosts_and_port(place: tuple[tuple[str, ...], int]) -> str:
    """Format hosts and port as hosts_and_port parses them."""
    hosts, port = place
    return f"{format_list(f'[{host}]' if ':' in host else host for host in hosts)}:{port}"


def parse_base_url(text: str) -> str:
    """Parse scheme, host and port; return them without a slash at the end."""
    try:
        parts = urlsplit(text.strip())
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        raise BadValue from None
    right_scheme = parts.scheme in {"http", "https"} and bool(parts.hostname) and port_is_right
    if not right_scheme or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise BadValue
    return f"{parts.scheme}://{parts.netloc}"


def parse_audit(text: str) -> str:
    """Parse a keyword or the absolute path of a file."""
    if text not in ("off", "stderr") and not text.startswith("/"):
        raise BadValue
    return text


def parse_hosts(text: str) -> tuple[str, ...]:
    """Parse host names or addresses without ports; return them in lower case."""
    names = [part.strip().lower().rstrip(".") for part in text.split(",")]
    if not all(
        re.fullmatch(r"\[[0-9a-f:.]+\]|[0-9a-z_-]+(\.[0-9a-z_-]+)*", name) for name in names
    ):
        raise BadValue
    return tuple(names)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse addresses and networks, separated by commas."""
    try:
        return tuple(ip_network(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise BadValue(str(error)) from None


def format_networks(networks: Iterable[Network]) -> str:
    """Format networks as parse_networks parses them."""
    return format_list(str(network) for network in networks)


def parse_origins(text: str) -> tuple[str, ...]:
    """Parse origins of web pages, or * for all; return them in lower case."""
    origins = [part.strip().lower() for part in text.split(",")]
    if not all(
        origin == "*" or re.fullmatch(r"[a-z][a-z0-9+.-]*://[0-9a-z._\[\]:-]+", origin)
        for origin in origins
    ):
        raise BadValue
    return tuple(origins)


def format_list(values: Iterable[str]) -> str:
    """Join values by commas."""
    return ",".join(values)


def parse_collector_url(text: str) -> str:
    """Parse a base URL without credentials, because the URL is logged."""
    if "@" in text:
        raise BadSecret(
            "the URL has credentials; set OTEL_EXPORTER_OTLP_HEADERS instead; allowed is "
            "http://host[:port] or https://host[:port], without a path"
        )
    return parse_base_url(text)


def database_host(text: str) -> str:
    """Parse a host name or address, or the directory of PostgreSQL's socket."""
    return text.strip() if text.strip().startswith("/") else host_name(text)


def parse_name(text: str) -> str:
    """Accept any text without control characters."""
    if not text or not text.isprintable():
        raise BadValue
    return text


def parse_database_url(text: str) -> str:
    """Parse a PostgreSQL URL. Several hosts are allowed, so the port is not checked here."""
    url = text.strip()
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise BadValue(
            "this is not a URL; allowed is postgresql://user:password@host:5432/database"
        )
    if scheme not in {"postgres", "postgresql"}:
        raise BadValue(f"{scheme}:// is not supported; only postgresql:// is")
    if not rest.strip("/"):
        raise BadValue("no host; allowed is postgresql://user:password@host:5432/database")
    place, *behind = re.split("[/?#]", rest, maxsplit=1)
    if "@" not in place and any(re.match("[^=]*@", one) for one in behind):
        # Everything up to there would be a host and a port, which errors name.
        raise BadValue("characters of the password need percent-encoding: %2F is /, %3F ?, %23 #")
    return url


def parse_region(text: str) -> str:
    """Parse a region name: lower-case words and digits joined by hyphens."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text.strip()) or len(text) > 64:
        raise BadValue
    return text.strip()


def parse_account_id(text: str) -> str:
    """Parse an account id: 12 digits."""
    if not re.fullmatch(r"\d{12}", text.strip(), re.ASCII):
        raise BadValue
    return text.strip()


def parse_accounts(text: str) -> dict[str, str]:
    """Parse pairs of access key and account, separated by commas."""
    accounts: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, account = pair.partition("=")
        if not equals or not re.fullmatch(r"\w{1,128}", key, re.ASCII):
            raise BadValue
        accounts[key] = parse_account_id(account)
    return accounts


def format_accounts(accounts: Mapping[str, str]) -> str:
    """Format accounts as parse_accounts parses them."""
    return ",".join(f"{key}={account}" for key, account in accounts.items())


def parse_api_key(text: str) -> str:
    """Parse a key for a header that does not look like a key of `queuegate keys`."""
    key = text.strip()
    if not key or len(key) > 4096 or not key.isprintable() or key.startswith("qg_"):
        raise BadValue
    return key


_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


def parse_rate(text: str) -> tuple[int, int]:
    """Parse a rate such as 500/s or 5000/10m; return requests and seconds."""
    found = re.fullmatch(r"(\d{1,7})/(\d{0,5})([smh])", text.strip().lower(), re.ASCII)
    if found is None:
        raise BadValue
    requests, seconds = int(found[1]), int(found[2] or 1) * _UNIT_SECONDS[found[3]]
    if not (1 <= requests <= 1_000_000 and 1 <= seconds <= 86_400):
        raise BadValue("up to 1,000,000 requests in up to a day are allowed")
    return requests, seconds


def format_rate(rate: tuple[int, int]) -> str:
    """Format a rate as parse_rate parses it."""
    return f"{rate[0]}/{rate[1]}s"


_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_byte_rate(text: str) -> tuple[int, int]:
    """Parse a rate such as 10MB/s, 512KiB/s or 1GB/10m; return bytes and seconds."""
    found = re.fullmatch(
        r"(\d{1,13})((?:[kmg]i?)?)b/(\d{0,5})([smh])", text.strip().lower(), re.ASCII
    )
    if found is None:
        raise BadValue
    size_bytes, seconds = int(found[1]) * _BYTES[found[2]], int(found[3] or 1)
    seconds *= _UNIT_SECONDS[found[4]]
    if not (1024 <= size_bytes <= 1 << 40 and 1 <= seconds <= 86_400):
        raise BadValue("1 KiB to 1 TiB in up to a day are allowed")
    return size_bytes, seconds


_MASTER_KEY_BYTES = 32


def parse_master_keys(text: str) -> tuple[bytes, ...]:
    """Parse one or two keys: the present one and the next. Each has 32 bytes, in Base64 or
    hexadecimal digits, on a separate line."""
    found = tuple(map(_master_key, text.split()))
    if len(found) not in (1, 2):
        raise BadSecret
    return found


def _master_key(text: str) -> bytes:
    try:
        if len(text) == 2 * _MASTER_KEY_BYTES:
            return bytes.fromhex(text)
        key = b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != _MASTER_KEY_BYTES:
        raise BadSecret
    return key


def parse_log_level(text: str) -> str:
    """Parse a level name; warn means warning."""
    word = text.strip().lower()
    return choice("debug", "info", "warning", "error")("warning" if word == "warn" else word)


def directory(text: str) -> Path:
    """Return an absolute path; ~ is the home, a relative path starts at the working directory."""
    if not text.strip() or "\0" in text:
        raise BadValue
    return Path(text).expanduser().absolute()


class SettingKind(NamedTuple):
    """Allowed texts of a setting, their parser and their formatter."""

    allowed: str
    parse: Callable[[str], Any]
    write: Callable[[Any], str] = str


@dataclass(frozen=True)
class Variable:
    """The environment variables of a field of Settings; the first that is set counts.

    ``title``: heading of the section of the table that starts here.
    """

    names: tuple[str, ...]
    kind: SettingKind
    explanation: str
    secret: bool = False
    internal: bool = False
    title: str = ""


def setting(
    default: Any, kind: SettingKind, *, secret: bool = False, internal: bool = False
) -> Any:
    """Declare a field of Settings, of which ``settings.VARIABLES`` has the explanation."""
    metadata = {"kind": kind, "secret": secret, "internal": internal}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, repr=not secret, metadata=metadata)


def number(low: int, high: int) -> SettingKind:
    """Return the kind of whole numbers from low to high."""
    return SettingKind(f"a whole number from {low} to {high}", integer(low, high))


def word(*allowed: str) -> SettingKind:
    """Return the kind of one of these words."""
    shown = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    return SettingKind(shown, choice(*allowed))


SWITCH = SettingKind("true or false", boolean, lambda value: "true" if value else "false")
FILE = SettingKind("a file", directory)
DIRECTORY = SettingKind("a directory", directory)
BASE_URL = SettingKind("http://host[:port] or https://host[:port], without a path", parse_base_url)
