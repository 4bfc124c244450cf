"""Options of the connectors: declared once, read from what Spark passes, listed in the guide."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.transport.aws import Connection, StaticCredentials, Transport, open_transport

# Spark passes its own options to a source or sink along with the user's.
_OF_SPARK = {"path", "checkpointlocation", "queryname", "mergeschema", "header"}
# Set by CREATE TABLE alone.
_OF_TABLES = "provider"
NO_TABLES = (
    "a queue or topic cannot be kept by CREATE TABLE ... USING: Spark 4.2 and 4.3 give a source "
    "in Python none of a table's options when that is read or written. CREATE TEMPORARY VIEW name "
    "USING sqs OPTIONS (queueUrl '...') does the same for a session, and takes INSERT, too"
)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_SIZES = {"k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


class BadOption(ConnectorError):
    """An option that cannot be parsed, is unknown, or contradicts another."""


class OptionKind(NamedTuple):
    """The parser of an option's text. ``read`` raises ValueError with the expected form."""

    name: str
    read: Callable[[str], Any]


def _text(given: str) -> str:
    if not given:
        raise ValueError("a text")
    return given


def _truth(given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return given.lower() == "true"


def whole(least: int, most: int) -> OptionKind:
    """Return the kind of a whole number within these bounds, both included."""

    def read(given: str) -> int:
        expected = f"a whole number from {least} to {most}"
        try:
            number = int(given)
        except ValueError:
            raise ValueError(expected) from None
        if not least <= number <= most:
            raise ValueError(expected)
        return number

    return OptionKind("number", read)


def seconds(least: float, most: float) -> OptionKind:
    """Return the kind of a duration in seconds, fractions allowed."""

    def read(given: str) -> float:
        expected = f"seconds from {least:g} to {most:g}"
        try:
            number = float(given)
        except ValueError:
            raise ValueError(expected) from None
        if not least <= number <= most:
            raise ValueError(expected)
        return number

    return OptionKind("seconds", read)


def duration(least: float, most: float) -> OptionKind:
    """Return the kind of a time in seconds, or with the unit ms, s, m, h or d, as in Kafka's
    source."""

    def read(given: str) -> float:
        expected = f"a time from {least:g} to {most:g} seconds, such as 30s, 15m or 1h"
        text = given.strip().lower()
        unit = text.lstrip("0123456789.")
        try:
            found = float(text.removesuffix(unit)) * _UNITS[unit or "s"]
        except (ValueError, KeyError):
            raise ValueError(expected) from None
        if not least <= found <= most:
            raise ValueError(expected)
        return found

    return OptionKind("time", read)


def size(least: int, most: int) -> OptionKind:
    """Return the kind of a size in bytes: a number, or one with the unit k, m or g (powers of
    1024)."""

    def read(given: str) -> int:
        expected = f"bytes from {least} to {most}, such as 65536, 512k or 64m"
        number = given.strip().lower()
        unit = number.lstrip("0123456789")
        try:
            found = int(number.removesuffix(unit)) * (_SIZES[unit] if unit else 1)
        except (ValueError, KeyError):
            raise ValueError(expected) from None
        if not least <= found <= most:
            raise ValueError(expected)
        return found

    return OptionKind("bytes", read)


def choice(*words: str) -> OptionKind:
    """Return the kind of a choice between these words."""

    def read(given: str) -> str:
        if given.lower() not in words:
            raise ValueError(" or ".join(words))
        return given.lower()

    return OptionKind("|".join(words), read)


def _names(given: str) -> tuple[str, ...]:
    try:
        found = json.loads(given) if given.lstrip().startswith("[") else given.split(",")
        names = tuple(one.strip() for one in found)
    except (ValueError, AttributeError):
        names = ()
    if not names or not all(names):
        raise ValueError("names with commas between, or a JSON list of texts")
    return names


TEXT = OptionKind("text", _text)
TRUTH = OptionKind("true|false", _truth)
NAMES = OptionKind("names", _names)


class Option(NamedTuple):
    """One option. ``default``: its value when absent; ``shown``: the default in the guide."""

    name: str
    kind: OptionKind
    default: Any
    meaning: str
    aliases: tuple[str, ...] = ()
    shown: str = ""


def read_options(declared: Sequence[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return values by the options' own names, with defaults; names are matched in any case.

    Raises BadOption for an option that is unknown (with the nearest name), named twice, or not
    understood.
    """
    if any(name.lower() == _OF_TABLES for name in given):
        raise BadOption(NO_TABLES)
    for name in unknown_names(declared, given):
        raise BadOption(f"unknown option '{name}'{_nearest(name, declared)}")
    by_name = _by_name(declared)
    found: dict[str, Any] = {}
    for name, text in given.items():
        option = by_name.get(name.lower())
        if option is None:
            continue
        if option.name in found:
            raise BadOption(f"option '{option.name}' is given twice: '{name}' is the same one")
        try:
            found[option.name] = option.kind.read(str(text).strip())
        except ValueError as unreadable:
            shown = f"'{text}'" if "secret" not in option.name.lower() else "its value"
            raise BadOption(f"option '{option.name}': expected {unreadable}, got {shown}") from None
    return {option.name: found.get(option.name, option.default) for option in declared}


def unknown_names(declared: Sequence[Option], given: Iterable[str]) -> list[str]:
    """Return the names that are neither options nor Spark's own."""
    known = _by_name(declared).keys() | _OF_SPARK
    return [one for one in given if one.lower() not in known and not one.startswith("__")]


def _by_name(declared: Sequence[Option]) -> dict[str, Option]:
    return {name.lower(): one for one in declared for name in (one.name, *one.aliases)}


def _nearest(name: str, declared: Sequence[Option]) -> str:
    known = {one.lower(): one for option in declared for one in (option.name, *option.aliases)}
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f": did you mean '{known[close[0]]}'?" if close else ""


def table(declared: Sequence[Option]) -> Iterator[str]:
    """Yield the options as the lines of a Markdown table."""
    yield "| option | default | meaning |"
    yield "| --- | --- | --- |"
    for option in declared:
        names = " ".join([f"`{option.name}`", *(f"(`{one}`)" for one in option.aliases)])
        kind = "" if option.kind.name in ("text", "number") else f"`{option.kind.name}`. "
        meaning = (kind + option.meaning).replace("|", "\\|")
        yield f"| {names} | {_default(option)} | {meaning} |"


def _default(option: Option) -> str:
    if option.shown:
        return option.shown
    if option.default is None or option.default == ():
        return ""
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    if isinstance(option.default, tuple):
        return f"`{','.join(option.default)}`"
    return f"`{option.default}`"


ENDPOINT = Option(
    "endpointUrl",
    TEXT,
    None,
    "Where the service is, such as `http://localhost:9324`.",
    ("endpoint",),
)
RETRIES = Option(
    "maxRetries",
    whole(0, 100),
    8,
    "How often a call, or an entry of a batch, that failed for a passing reason is repeated.",
)


CONNECTING = (
    ENDPOINT._replace(
        shown="`AWS_ENDPOINT_URL_SQS`, `AWS_ENDPOINT_URL_SNS`, `AWS_ENDPOINT_URL`, then AWS"
    ),
    Option("region", TEXT, None, "Region to sign for.", (), "as botocore finds it"),
    Option("profile", TEXT, None, "Profile of the AWS configuration files."),
    Option("roleArn", TEXT, None, "Role to assume, with the credentials found otherwise."),
    Option("roleSessionName", TEXT, None, "Name of that role's session.", (), "`queuegate-spark`"),
    Option(
        "transport",
        choice("auto", "lean", "boto3"),
        "auto",
        "`lean` costs an eighth of boto3's CPU; `auto` is `lean` for an endpoint, `boto3` for AWS.",
    ),
    RETRIES,
    Option(
        "allowStaticCredentials",
        TRUTH,
        False,
        "Whether keys may stand among the options, which Spark shows in plans and logs.",
    ),
    Option("accessKeyId", TEXT, None, "Only with `allowStaticCredentials`.", ("awsAccessKeyId",)),
    Option("secretAccessKey", TEXT, None, "Likewise.", ("awsSecretAccessKey", "awsSecretKey")),
    Option("sessionToken", TEXT, None, "Likewise.", ("awsSessionToken",)),
)


def connection_of(options: dict[str, Any]) -> Connection:
    """Return the connection. Raises BadOption for keys that are not allowed, or incomplete."""
    keys = [options[name] for name in ("accessKeyId", "secretAccessKey", "sessionToken")]
    static = None
    if any(keys):
        if not options["allowStaticCredentials"]:
            raise BadOption(
                "keys among the options end up in Spark's plans and event logs: leave them to the "
                "environment, a profile or a role, or set allowStaticCredentials=true"
            )
        if not (keys[0] and keys[1]):
            raise BadOption("accessKeyId and secretAccessKey belong together")
        static = StaticCredentials(*keys)
    return Connection(
        endpoint_url=options["endpointUrl"],
        region=options["region"],
        profile=options["profile"],
        role_arn=options["roleArn"],
        role_session_name=options["roleSessionName"],
        static=static,
        kind=options["transport"],
        max_retries=options["maxRetries"],
    )


_NO_RIGHT = frozenset({"AccessDenied", "AuthorizationError"})

QUEUE = (
    Option("queueUrl", TEXT, None, "The queue; this or `queueName`.", ("sqsUrl",), "required"),
    Option("queueName", TEXT, None, "The queue by name."),
    Option("queueOwnerAWSAccountId", TEXT, None, "Whose queue `queueName` is."),
)


class QueuePlace:
    """The queue that options name. Its URL is looked up once, when it is first needed."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._url: str | None = options["queueUrl"]
        self._name: str | None = options["queueName"]
        self._owner: str | None = options["queueOwnerAWSAccountId"]
        if (self._url is None) == (self._name is None):
            raise BadOption("one of queueUrl and queueName is required, and not both")
        if self._url is not None and "://" not in self._url:
            raise BadOption(f"option 'queueUrl': '{self._url}' is no URL; a name goes in queueName")

    @property
    def name(self) -> str:
        """The queue's name, as it ends the URL."""
        return self._name or (self._url or "").rstrip("/").rpartition("/")[2]

    @property
    def is_fifo(self) -> bool:
        """True for a FIFO queue, by its name."""
        return self.name.endswith(".fifo")

    def check(self, connection: Connection) -> None:
        """Raise Refused for a queue that does not exist, NotNow for an endpoint
        that does not answer, ConnectorError for a bad endpoint or missing credentials."""
        transport = open_transport(connection)
        try:
            transport.figures(self.url(transport))
        except Refused as no:
            # A sender needs no permission to read attributes.
            if no.code not in _NO_RIGHT:
                what = self._url or f"queue '{self.name}'"
                raise Refused(no.code, f"{no.message} (asking for {what})") from None
        finally:
            transport.close()

    def url(self, transport: Transport) -> str:
        """Return the queue's URL. Raises as Transport.queue_url does."""
        if self._url is None:
            assert self._name is not None
            self._url = transport.queue_url(self._name, self._owner)
        return self._url
